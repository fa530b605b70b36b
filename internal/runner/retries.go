package runner

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// retryNotes tells which attempts have failed and are made again. When many fail, it tells of some,
// and how many others there were: at most maxRetryNotes and that one in every retryNoteInterval.
type retryNotes struct {
	screen *Screen
	failed chan failedAttempt
	more   atomic.Int64 // attempts that are not told of one by one
}

const (
	maxRetryNotes     = 5
	retryNoteInterval = 2 * time.Second
)

// failedAttempt is an attempt that has failed and is made again.
type failedAttempt struct {
	task  *lessorv1.Task // as it was when the event came
	event *lessorv1.HistoryEvent
}

func newRetryNotes(cfg Config) *retryNotes {
	return &retryNotes{screen: cfg.Screen, failed: make(chan failedAttempt, maxRetryNotes)}
}

// event takes the event of a failed attempt of a line. It does not block.
func (n *retryNotes) event(task *lessorv1.Task, e *lessorv1.HistoryEvent) {
	select {
	case n.failed <- failedAttempt{task, e}:
	default:
		n.more.Add(1)
	}
}

// run tells of the attempts until ctx ends.
func (n *retryNotes) run(ctx context.Context) error {
	again := time.NewTicker(retryNoteInterval)
	defer again.Stop()
	for room := maxRetryNotes; ; {
		select {
		case a := <-n.failed:
			if room == 0 {
				n.more.Add(1)
				continue
			}
			room--
			n.tell(a)
		case <-again.C:
			room = maxRetryNotes
			if more := n.more.Swap(0); more > 0 {
				n.screen.Note("other attempts that failed and are made again: %d", more)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// tell tells of one attempt. If the next one has begun already, it is only counted.
func (n *retryNotes) tell(a failedAttempt) {
	task := a.task
	if task.GetAttempt() != a.event.GetAttempt() || words.Final(task.GetState()) {
		n.more.Add(1)
		return
	}
	why := task.GetError().GetMessage()
	if a.event.GetType() == lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_LEASE_ENDED {
		why = words.Name(a.event.GetReason())
	}
	when := "at once"
	if task.GetRetryAt() != nil {
		when = "in " + words.Age(task.GetRetryAt().AsTime().Sub(a.event.GetAt().AsTime()).Round(time.Second))
	}
	n.screen.Note("line %d: %s: %s (attempt %d; %s); again %s",
		LineOf(task), quoteLine(task), why, task.GetAttempt(), failuresText(task), when)
}

// failuresText says how many of its failures a line has had.
func failuresText(task *lessorv1.Task) string {
	return fmt.Sprintf("%d of %d failures", task.GetFailures(), task.GetSpec().GetRetryPolicy().GetMaxAttempts())
}
