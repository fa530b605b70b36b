package bench

import (
	"maps"
	"time"
)

// span is a stretch of a phase: its time, and what it cost.
type span struct {
	wall, cpu time.Duration
	flushes   uint64
	counted   bool // the disk counts its flushes
}

// begin starts a span; end ends it and returns it.
func (s *coordinator) begin() (end func() span) {
	endProfiles := s.profiler.begin()
	flushed, counted := s.disk.read()
	cpu, start := s.cpu(), time.Now()
	return func() span {
		ran := span{wall: time.Since(start), cpu: s.cpu() - cpu}
		now, still := s.disk.read()
		ran.flushes, ran.counted = now-flushed, counted && still
		endProfiles()
		return ran
	}
}

// rate returns the tasks per second of a phase, with its costs.
func (s span) rate(name string, tasks int) samples {
	found := samples{name: float64(tasks) / s.wall.Seconds()}
	maps.Copy(found, s.costs(name, tasks))
	return found
}

// costs returns the costs of a metric for 1,000 tasks: the coordinator's processor time in
// milliseconds, and the flushes of the disk, which others may have requested too.
func (s span) costs(name string, tasks int) samples {
	found := samples{cpuOf(name): millis(s.cpu) * 1000 / float64(tasks)}
	if s.counted {
		found[flushesOf(name)] = float64(s.flushes) * 1000 / float64(tasks)
	}
	return found
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
