package bench

import "time"

// span is a stretch of a phase: its time, and the processor time of the coordinator.
type span struct{ wall, cpu time.Duration }

// begin starts a span; the function that it returns ends it.
func (s *coordinator) begin() (end func() span) {
	cpu, start := s.cpu(), time.Now()
	return func() span {
		wall := time.Since(start)
		return span{wall: wall, cpu: s.cpu() - cpu}
	}
}

// rate is tasks per second.
func (s span) rate(tasks int) float64 { return float64(tasks) / s.wall.Seconds() }

// cpuOf is the coordinator's processor time for 1,000 tasks, in milliseconds.
func (s span) cpuOf(tasks int) float64 { return millis(s.cpu) * 1000 / float64(tasks) }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
