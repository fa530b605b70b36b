package runner

import (
	"sync"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// rateWindow is the time over which the rate is measured.
const rateWindow = 20 * time.Second

// tally counts lines by how they end. What it has heard is only for the progress bar, because
// events may be missed or come twice. What was printed is exact.
type tally struct {
	lines int64
	// since is when the last of the lines ended that an earlier process has worked on. They are
	// counted from the beginning, so events up to then are not.
	since time.Time

	mu struct {
		sync.Mutex
		heard   counts // counted from events
		printed counts // counted from printed lines
		samples []sample
	}
}

// newTally returns a tally that has the lines that had ended before: they are no progress of this
// process, and must not count in its rate.
func newTally(j *Job) *tally {
	t := &tally{lines: j.Lines(), since: j.before.last}
	t.mu.heard = j.before.counts
	return t
}

// counts are numbers of lines.
type counts struct{ done, failed, retried int64 }

func (c counts) ended() int64 { return c.done + c.failed }

// sample is how many lines had ended at a time.
type sample struct {
	at    time.Time
	ended int64
}

// event counts an event of a task.
func (t *tally) event(e *lessorv1.HistoryEvent) {
	if !e.GetAt().AsTime().After(t.since) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	heard := &t.mu.heard
	switch e.GetTaskState() {
	case lessorv1.TaskState_TASK_STATE_COMPLETED:
		heard.done++
	case lessorv1.TaskState_TASK_STATE_FAILED, lessorv1.TaskState_TASK_STATE_CANCELLED:
		heard.failed++
	default:
		if isRetry(e) {
			heard.retried++
		}
	}
}

// isRetry reports whether an event is the end of an attempt after which there is another one.
func isRetry(e *lessorv1.HistoryEvent) bool {
	switch e.GetType() {
	case lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_FAILED, lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_LEASE_ENDED:
		return e.GetTaskState() == lessorv1.TaskState_TASK_STATE_READY ||
			e.GetTaskState() == lessorv1.TaskState_TASK_STATE_SCHEDULED
	}
	return false
}

// print counts a line that counts as printed.
func (t *tally) print(task *lessorv1.Task) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.printed.add(task)
}

// add counts a task that has ended.
func (c *counts) add(task *lessorv1.Task) {
	if task.GetState() == lessorv1.TaskState_TASK_STATE_COMPLETED {
		c.done++
	} else {
		c.failed++
	}
	c.retried += int64(max(task.GetAttempt(), 1) - 1)
}

// now returns the counts so far, and how many lines end per second, or 0 if that is not known.
func (t *tally) now(at time.Time) (c counts, rate float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c = t.mu.heard
	if t.mu.printed.ended() > c.ended() {
		c = t.mu.printed
		c.retried = max(c.retried, t.mu.heard.retried) // which has those of lines that have not ended
	}
	return c, t.rateLocked(at, c.ended())
}

func (t *tally) rateLocked(at time.Time, ended int64) float64 {
	t.mu.samples = append(t.mu.samples, sample{at: at, ended: ended})
	for len(t.mu.samples) > 2 && at.Sub(t.mu.samples[1].at) >= rateWindow {
		t.mu.samples = t.mu.samples[1:]
	}
	samples := t.mu.samples
	span := at.Sub(samples[0].at).Seconds()
	if span <= 0 {
		return 0
	}
	return float64(ended-samples[0].ended) / span
}
