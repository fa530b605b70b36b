//go:build faults

package crash

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// holder is a worker that leases and reports by unary calls.
type holder struct {
	b       *book
	name    string
	workers lessorv1.WorkerServiceClient
	rand    *rand.Rand
	// from holds the attempts that earlier rounds left open.
	from chan *attempt
}

// step makes one random move. It returns an error if a call got no answer or failed.
func (h *holder) step(ctx context.Context) error {
	if h.rand.IntN(3) == 0 {
		select {
		case a := <-h.from:
			return h.work(ctx, a)
		default:
		}
	}
	return h.lease(ctx)
}

// requests numbers the Lease requests, for their request_id.
var requests atomic.Int64

func (h *holder) lease(ctx context.Context) error {
	req := &lessorv1.LeaseRequest{
		WorkerId:  h.name,
		Queues:    []string{patientQueue, shortQueue},
		MaxTasks:  uint32(1 + h.rand.IntN(4)),
		Wait:      durationpb.New(20 * time.Millisecond),
		RequestId: fmt.Sprintf("lease-%d", requests.Add(1)),
	}
	m, err := h.workers.Lease(ctx, req)
	if noAnswer(err) {
		h.b.update(func() { h.b.leases = append(h.b.leases, req) })
	}
	if err != nil {
		return err
	}
	var mine []*attempt
	for _, g := range m.GetAssignments() {
		mine = append(mine, h.b.granted(req, g))
	}
	for _, a := range mine {
		if err := h.work(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// work does what a worker may do with an attempt. Now and then it does not report, and leaves the
// attempt for a later round.
func (h *holder) work(ctx context.Context, a *attempt) error {
	if h.rand.IntN(3) > 0 {
		m, err := h.workers.Start(ctx, &lessorv1.StartRequest{TaskId: a.task.id, LeaseId: a.leaseID, Attempt: a.number})
		if err != nil {
			return err
		}
		h.b.recordHeartbeat(a, answerOf(m))
	}
	if h.rand.IntN(3) == 0 {
		if err := h.heartbeat(ctx, a); err != nil {
			return err
		}
	}
	if h.rand.IntN(5) == 0 {
		return nil
	}
	if a.task.queue == shortQueue && h.rand.IntN(2) == 0 {
		sleep(ctx, shortLease+10*time.Millisecond) // let the lease expire; whether it did, the coordinator decides
	}
	return h.b.sendReport(ctx, h.workers, a, h.outcome(a))
}

// heartbeat renews a lease and stores a checkpoint.
func (h *holder) heartbeat(ctx context.Context, a *attempt) error {
	checkpoint := fmt.Appendf(nil, "%s/%d/%d", a.task.id, a.number, h.rand.Uint32())
	h.b.update(func() {
		t := h.b.touchLocked(a.task.id)
		t.unsure = append(t.unsure, checkpoint)
	})
	m, err := h.workers.Heartbeat(ctx, &lessorv1.HeartbeatRequest{
		TaskId: a.task.id, LeaseId: a.leaseID, Attempt: a.number, Checkpoint: checkpoint,
	})
	if err != nil {
		return err
	}
	h.b.update(func() { a.task.checkpointAnswered(checkpoint, a.number, m.GetVerdict()) })
	h.b.recordHeartbeat(a, answerOf(m))
	return nil
}

// checkpointAnswered enters the verdict on the heartbeat that sent a checkpoint. The answers to two
// holders may come in any order.
func (t *task) checkpointAnswered(checkpoint []byte, attempt uint32, v lessorv1.Verdict) {
	t.unsure = slices.DeleteFunc(t.unsure, func(c []byte) bool { return bytes.Equal(c, checkpoint) })
	if v == committed && attempt >= t.storedBy {
		t.checkpoint, t.storedBy = checkpoint, attempt
	}
}

// sleep waits.
func sleep(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

func (h *holder) outcome(a *attempt) *report {
	switch n := h.rand.IntN(10); {
	case n < 6:
		return completion(a, output(a.task.id, a.number))
	case n < 8:
		return failure(a, output(a.task.id, a.number), true)
	case n < 9 && a.number < 5: // not again and again
		return release(a)
	}
	return failure(a, output(a.task.id, a.number), false)
}

// output names the attempt, so that a task's output shows which attempt it is from.
func output(id string, attempt uint32) string { return fmt.Sprintf("output of %s/%d", id, attempt) }

// sendReport sends the report of an attempt and enters the verdict.
func (b *book) sendReport(ctx context.Context, workers lessorv1.WorkerServiceClient, a *attempt, r *report) error {
	b.recordReport(a, r)
	got, err := r.send(ctx, workers)
	if err == nil {
		b.recordVerdict(a, got)
	}
	return err
}
