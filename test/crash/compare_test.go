//go:build faults

package crash

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// comparer compares the coordinator with the book, while no producer and no unary worker is at
// work.
type comparer struct {
	b       *book
	tasks   lessorv1.TaskServiceClient
	workers lessorv1.WorkerServiceClient
	rand    *rand.Rand
	absent  []*submission // submits without an answer whose tasks were not there after the kill
}

func (c *comparer) connect(conn grpc.ClientConnInterface) {
	c.tasks, c.workers = lessorv1.NewTaskServiceClient(conn), lessorv1.NewWorkerServiceClient(conn)
}

// must fails the test if a call fails. No kill disturbs the calls of the comparer.
func (c *comparer) must(err error) {
	if err != nil {
		c.b.t.Error(err)
	}
}

// compare compares tasks, several at the same time.
func (c *comparer) compare(ctx context.Context, due []*task) {
	const atOnce = 8
	next := make(chan *task)
	var busy sync.WaitGroup
	for range atOnce {
		one := *c
		one.rand = rand.New(rand.NewPCG(c.rand.Uint64(), 0))
		busy.Go(func() {
			for t := range next {
				one.must(one.task(ctx, t))
			}
		})
	}
	for _, t := range due {
		next <- t
	}
	close(next)
	busy.Wait()
	c.b.update(func() { c.b.counts.compared += len(due) })
}

// task compares one task, and repeats the reports of its attempts.
func (c *comparer) task(ctx context.Context, t *task) error {
	streamed := c.b.verdictsOnStreams(t)
	got, err := c.tasks.GetTask(ctx, &lessorv1.GetTaskRequest{TaskId: t.id})
	switch status.Code(err) {
	case codes.OK:
		c.b.recordFound(t, got.GetTask(), streamed)
	case codes.NotFound:
		c.b.recordMissing(t)
	default:
		return err
	}
	for _, a := range t.attempts {
		if err := c.attempt(ctx, a, got.GetTask()); err != nil {
			return err
		}
	}
	return nil
}

// verdictsOnStreams copies the verdicts that stream workers were told so far. They must be copied
// before the task is read: more verdicts may arrive meanwhile.
func (b *book) verdictsOnStreams(t *task) map[uint32]answer {
	b.mu.Lock()
	defer b.mu.Unlock()
	verdicts := map[uint32]answer{}
	for attempt, got := range t.streamed {
		verdicts[attempt] = got
	}
	return verdicts
}

// recordMissing enters that the task does not exist.
func (b *book) recordMissing(t *task) {
	b.update(func() {
		if t.deleted == no {
			b.violated("A6", t, "is gone")
		}
		t.deleted = yes
	})
}

// recordFound enters how the task was found.
func (b *book) recordFound(t *task, got *lessorv1.Task, streamed map[uint32]answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.deleted == yes {
		b.violated("A6", t, "was deleted, and is there")
	}
	t.deleted = no
	b.sameSpecLocked(t, got.GetSpec())
	b.sameAttemptsLocked(t, got)
	b.sameHistoryLocked(t, got)
	b.sameOutcomeLocked(t, got)
	for attempt, verdicts := range streamed {
		if verdicts.verdict == committed && outcomeOf(got, attempt) == nil {
			b.violated("A6", t, "attempt %d on a stream was %v, and its outcome is not there", attempt, verdicts)
		}
	}
	b.endedLocked(t, got.GetState())
}

func (b *book) sameSpecLocked(t *task, got *lessorv1.TaskSpec) {
	switch want := t.spec; {
	case want == nil: // its submit was not acknowledged, and settle did not find it either
		b.violated("A6", t, "was given to a worker, and its submit is not there")
	case !bytes.Equal(want.GetPayload(), got.GetPayload()), want.GetRunId() != got.GetRunId(), want.GetTaskKey() != got.GetTaskKey(),
		want.GetQueue() != got.GetQueue(), want.GetIdempotencyKey() != got.GetIdempotencyKey():
		b.violated("A6", t, "was submitted as %v, and is %v", want, got)
	}
}

// sameAttemptsLocked compares the number of attempts. By now each grant to a unary worker was told,
// at the latest to the repeat of its request, unless its lease may have ended before that.
func (b *book) sameAttemptsLocked(t *task, got *lessorv1.Task) {
	if len(t.attempts) == 0 {
		return
	}
	last := t.attempts[len(t.attempts)-1].number
	if got.GetAttempt() < last || got.GetAttempt() > last && !b.leaseMayEndLocked(t) {
		b.violated("A2", t, "attempt %d was granted, and it has %d", last, got.GetAttempt())
	}
}

// sameHistoryLocked compares the history: entries that were read before stay the same, and no
// attempt ends twice.
func (b *book) sameHistoryLocked(t *task, got *lessorv1.Task) {
	history := got.GetHistory()
	if got.GetHistoryDropped() > 0 || len(history) < len(t.history) {
		b.violated("T10", t, "its history had %d entries, and has %d", len(t.history), len(history))
		return
	}
	for i, e := range t.history {
		if !proto.Equal(e, history[i]) {
			b.violated("A4, A10", t, "entry %d of its history was %v, and is %v", i, e, history[i])
		}
	}
	t.history = history
	b.soundHistoryLocked(t)
}

func (b *book) soundHistoryLocked(t *task) {
	granted, ends, outcomes, over := uint32(0), map[uint32]int{}, 0, false
	for _, e := range t.history {
		if over && e.GetType() == lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_GRANTED {
			b.violated("A5", t, "attempt %d was granted after the end: %v", e.GetAttempt(), t.history)
		}
		over = over || final(e.GetTaskState())
		switch e.GetType() {
		case lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_GRANTED:
			if granted++; e.GetAttempt() != granted {
				b.violated("A2", t, "attempt %d was granted after attempt %d", e.GetAttempt(), granted-1)
			}
		case lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_COMPLETED, lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_FAILED:
			ends[e.GetAttempt()]++
			if final(e.GetTaskState()) {
				outcomes++
			}
		case lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_RELEASED, lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_LEASE_ENDED:
			ends[e.GetAttempt()]++
		}
	}
	if outcomes > 1 {
		b.violated("A5", t, "it has %d outcomes: %v", outcomes, t.history)
	}
	for attempt, n := range ends {
		if n > 1 {
			b.violated("A3", t, "attempt %d ended %d times: %v", attempt, n, t.history)
		}
	}
}

// sameOutcomeLocked compares the output and the checkpoint.
func (b *book) sameOutcomeLocked(t *task, got *lessorv1.Task) {
	if e := outcomeOf(got, got.GetAttempt()); e.GetType() == lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_COMPLETED {
		if want := output(t.id, e.GetAttempt()); string(got.GetOutput()) != want {
			b.violated("A6", t, "attempt %d completed it with %q, and its output is %q", e.GetAttempt(), want, got.GetOutput())
		}
	}
	checkpoint := got.GetCheckpoint()
	if unsure := slices.ContainsFunc(t.unsure, func(c []byte) bool { return bytes.Equal(c, checkpoint) }); !unsure && !bytes.Equal(checkpoint, t.checkpoint) {
		b.violated("A6", t, "its checkpoint was %q or one of %q, and is %q", t.checkpoint, t.unsure, checkpoint)
	}
	t.checkpoint, t.unsure = checkpoint, nil
}

// outcomeOf returns the history entry of the report by which the holder ended an attempt; nil if
// there is none.
func outcomeOf(t *lessorv1.Task, attempt uint32) *lessorv1.HistoryEvent {
	i := slices.IndexFunc(t.GetHistory(), func(e *lessorv1.HistoryEvent) bool {
		switch e.GetType() {
		case lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_COMPLETED, lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_FAILED,
			lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_RELEASED:
			return e.GetAttempt() == attempt
		}
		return false
	})
	if i < 0 {
		return nil
	}
	return t.GetHistory()[i]
}
