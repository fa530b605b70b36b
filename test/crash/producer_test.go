//go:build faults

package crash

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// The queues differ in who works on them, and in how long a lease lives without a heartbeat.
const (
	patientQueue = "patient" // unary workers; leases outlive the test
	shortQueue   = "short"   // unary workers; leases as short as is allowed
	streamQueue  = "stream"  // stream workers; leases outlive the test
)

const (
	longer     = time.Hour              // more than the whole test takes
	shortLease = 100 * time.Millisecond // the shortest heartbeat timeout that is allowed
)

// holdType is the type of tasks on streamQueue whose handler waits until the coordinator was killed
// and is back.
const holdType = "hold"

// submission is one submit call.
type submission struct {
	// run is the RunId of its tasks, unique to it. If the submit got no answer, its tasks are found
	// by it.
	run   string
	specs []*lessorv1.TaskSpec
	// keyed says that the specs have idempotency keys, so that the submit may be repeated.
	keyed bool
	// made holds the tasks, once the submit was acknowledged.
	made []*task
}

// producer submits tasks, and now and then cancels or deletes one.
type producer struct {
	b     *book
	tasks lessorv1.TaskServiceClient
	rand  *rand.Rand
}

// step makes one random call. It returns an error if the call got no answer or failed.
func (p *producer) step(ctx context.Context) error {
	switch n := p.rand.IntN(100); {
	case n < 55:
		return p.submit(ctx, 1)
	case n < 80:
		return p.submit(ctx, 2+p.rand.IntN(4))
	case n < 92:
		return p.cancel(ctx)
	}
	return p.delete(ctx)
}

func (p *producer) submit(ctx context.Context, n int) error {
	s := newSubmission(p.rand, n)
	made, err := s.send(ctx, p.tasks)
	switch {
	case noAnswer(err):
		p.b.update(func() { p.b.submits = append(p.b.submits, s) })
	case err == nil:
		p.b.submitted(s, made)
	}
	return err
}

// submissions numbers the submits.
var submissions atomic.Int64

func newSubmission(r *rand.Rand, n int) *submission {
	number := submissions.Add(1)
	s := &submission{run: fmt.Sprintf("submit-%d", number), keyed: r.IntN(2) == 0}
	for i := range n {
		spec := newSpec(r)
		spec.RunId, spec.TaskKey = s.run, fmt.Sprint(i)
		if s.keyed {
			spec.IdempotencyKey = fmt.Sprintf("%s/%d", s.run, i)
		}
		s.specs = append(s.specs, spec)
	}
	return s
}

func newSpec(r *rand.Rand) *lessorv1.TaskSpec {
	spec := &lessorv1.TaskSpec{
		Queue:            patientQueue,
		Payload:          bytes.Repeat([]byte{byte(r.UintN(256))}, r.IntN(300)),
		HeartbeatTimeout: durationpb.New(longer),
		CancelGrace:      durationpb.New(longer),
		RetryPolicy: &lessorv1.RetryPolicy{
			InitialBackoff: durationpb.New(time.Millisecond),
			MaxBackoff:     durationpb.New(10 * time.Millisecond),
		},
	}
	switch n := r.IntN(100); {
	case n < 15:
		spec.Queue, spec.HeartbeatTimeout = shortQueue, durationpb.New(shortLease)
	case n < 35:
		spec.Queue = streamQueue
	case n < 38:
		spec.Queue, spec.Type = streamQueue, holdType
	}
	return spec
}

// send submits: a single task by SubmitTask, several by BatchSubmitTasks.
func (s *submission) send(ctx context.Context, tasks lessorv1.TaskServiceClient) ([]*lessorv1.SubmitResult, error) {
	if len(s.specs) == 1 {
		m, err := tasks.SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: s.specs[0]})
		t := m.GetTask()
		return []*lessorv1.SubmitResult{{TaskId: t.GetTaskId(), Created: m.GetCreated(), State: t.GetState()}}, err
	}
	m, err := tasks.BatchSubmitTasks(ctx, &lessorv1.BatchSubmitTasksRequest{Tasks: s.specs})
	return m.GetResults(), err
}

// submitted enters the answer to a submit.
func (b *book) submitted(s *submission, made []*lessorv1.SubmitResult) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(made) != len(s.specs) {
		b.t.Errorf("A6: %s made %d tasks of %d", s.run, len(made), len(s.specs))
		return
	}
	b.counts.submits++
	for i, m := range made {
		s.made = append(s.made, b.madeLocked(m.GetTaskId(), s.specs[i]))
	}
	if s.keyed {
		b.keyed = append(b.keyed, s)
	}
}

// madeLocked enters the task that a spec made. Two specs must not have made the same task.
func (b *book) madeLocked(id string, spec *lessorv1.TaskSpec) *task {
	t := b.touchLocked(id)
	if t.spec != nil {
		b.violated("T1", t, "was made of two specs, %q and %q", t.spec.GetRunId(), spec.GetRunId())
	}
	t.spec = spec
	t.setQueue(spec.GetQueue())
	b.counts.tasks++
	return t
}

// recordInterference notes that a producer is about to cancel or delete the task.
func (b *book) recordInterference(t *task) {
	b.update(func() { b.touchLocked(t.id).interfered = true })
}

func (p *producer) cancel(ctx context.Context) error {
	t := p.b.randomTask(p.rand)
	if t == nil {
		return nil
	}
	p.b.recordInterference(t)
	m, err := p.tasks.CancelTask(ctx, &lessorv1.CancelTaskRequest{TaskId: t.id, Reason: "crash test"})
	switch status.Code(err) {
	case codes.OK:
		p.b.update(func() { p.b.counts.cancels++; p.b.endedLocked(t, m.GetTask().GetState()) })
	case codes.FailedPrecondition, codes.NotFound: // the task is final already, or deleted
		return nil
	}
	return err
}

func (p *producer) delete(ctx context.Context) error {
	t := p.b.randomTask(p.rand)
	if t == nil {
		return nil
	}
	p.b.recordInterference(t)
	p.b.update(func() { t.deleted = max(t.deleted, perhaps) })
	_, err := p.tasks.DeleteTask(ctx, &lessorv1.DeleteTaskRequest{TaskId: t.id, Force: p.rand.IntN(2) == 0})
	switch status.Code(err) {
	case codes.OK:
		p.b.update(func() { p.b.counts.deletes++; t.deleted = yes })
	case codes.FailedPrecondition, codes.NotFound: // the task is leased, or deleted already
		return nil
	}
	return err
}
