package convert

import (
	"strings"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/tracing"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// Assigner makes assignments: the messages that hand a task to the holder of its lease.
type Assigner struct {
	// Tokens makes the task token of each assignment. CallbackURL is the address where workers use
	// these tokens; it is empty without an HTTP listener.
	Tokens      Tokens
	CallbackURL string // set before the coordinator serves, and not changed later
	// Tracer knows the traces of assignments; nil: they have those that were submitted.
	Tracer *tracing.Tracer
}

// Assignments returns the assignments for new leases, payloads and checkpoints included, for a
// worker with this credential. It leaves out a task that was deleted since the grant, because its
// lease has ended.
func (a *Assigner) Assignments(
	r store.Reader, now lease.Now, credential string, granted []engine.Granted,
) ([]*lessorv1.Assignment, error) {
	all := make([]*lessorv1.Assignment, 0, len(granted))
	at := &Times{Now: now}
	made := make([]assigned, len(granted))
	serverTime, tokens := at.Stamp(now.Wall), a.Tokens.For(credential)
	for i := range granted {
		m, err := a.assignment(r, at, tokens, &granted[i], &made[i])
		if err != nil {
			return nil, err
		}
		if m != nil {
			m.ServerTime = serverTime
			all = append(all, m)
		}
	}
	return all, nil
}

// payloadFor returns the payload of a task. It reads the payload from the store unless the engine
// has kept it in memory for the grant. The payload is nil if the task was deleted since the grant.
func payloadFor(r store.Reader, t *lease.Task) ([]byte, error) {
	if len(t.Spec.Payload) == t.Spec.Size {
		return t.Spec.Payload, nil
	}
	return records.Payload(r, t.ID)
}

// assigned is the memory of one assignment. The memory of all assignments in an answer is allocated
// at once.
type assigned struct {
	whole lessorv1.Assignment
	task  lessorv1.Task
	spec  lessorv1.TaskSpec
	retry lessorv1.RetryPolicy
}

// assignment writes one assignment into m and returns it, or nil if the task was deleted since the
// grant. It does not set the server's time, which all assignments of an answer share.
func (a *Assigner) assignment(
	r store.Reader, at *Times, tokens Tokens, g *engine.Granted, m *assigned,
) (*lessorv1.Assignment, error) {
	t, l := g.Task, g.Task.Lease
	until := t.ExpiresAt(at.Now)
	payload, err := payloadFor(r, t)
	if err != nil || payload == nil && t.Spec.Size > 0 {
		return nil, err
	}
	showWork(m, at, t)
	m.spec.Payload = payload
	var checkpoint []byte
	if t.HasCheckpoint() {
		if checkpoint, err = records.Checkpoint(r, t.ID); err != nil {
			return nil, err
		}
	}
	token, tokenEnds := tokens.Of(at, t.Holding(), until)
	m.whole = lessorv1.Assignment{
		Task:              &m.task,
		Attempt:           l.Attempt,
		AttemptId:         lease.AttemptID(t.ID, l.Attempt),
		LeaseId:           g.LeaseID,
		FencingToken:      g.Token,
		ExpiresAt:         at.StampAt(until),
		ExpiresIn:         at.Left(until),
		HeartbeatInterval: at.Span(t.Spec.HeartbeatInterval),
		HeartbeatTimeout:  at.Span(t.Spec.HeartbeatTimeout),
		CancelGrace:       at.Span(t.Spec.CancelGrace),
		Traceparent:       a.Tracer.Traceparent(t),
		Checkpoint:        checkpoint,
		RunSeq:            runSeq(t),
		TaskToken:         token,
		TokenExpiresAt:    tokenEnds,
		CallbackBaseUrl:   a.CallbackURL,
	}
	m.task.TaskId, _, _ = strings.Cut(m.whole.GetAttemptId(), "-") // an attempt id begins with the id of its task
	return &m.whole, nil
}

// runSeq returns a number that orders the tasks of a run, or 0 for a task without a run.
func runSeq(t *lease.Task) uint64 {
	if t.Spec.RunID == "" {
		return 0
	}
	return t.ID.Seq
}

// showWork writes the fields of a task that its worker needs, except for the id. It leaves out
// fields that the assignment itself has, and fields that only the coordinator needs. They made up
// half of an assignment, which is made, sent and read for each attempt.
func showWork(m *assigned, at *Times, t *lease.Task) {
	s := t.Spec
	m.task = lessorv1.Task{
		TenantId: t.Tenant, State: lessorv1.TaskState(t.State()), Spec: &m.spec,
		Round: t.Round, Attempt: t.Attempt(), Failures: t.Failures, Losses: t.Losses, CreatedAt: at.Stamp(t.CreatedAt),
	}
	m.retry = lessorv1.RetryPolicy{MaxAttempts: s.Retry.MaxAttempts, MaxLosses: s.Retry.MaxLosses}
	m.spec = lessorv1.TaskSpec{
		RetryPolicy:    &m.retry,
		WorkspaceId:    t.Workspace,
		Queue:          s.Queue,
		Type:           s.Type,
		RunId:          s.RunID,
		TaskKey:        s.TaskKey,
		AssetId:        s.AssetID,
		IdempotencyKey: s.IdempotencyKey,
		Priority:       s.Priority,
		Deadline:       at.Stamp(t.Deadline),
		AttemptTimeout: at.Span(s.AttemptTimeout),
		Labels:         s.Labels,
		ConcurrencyKey: s.ConcurrencyKey,
		FairnessKey:    s.FairnessKey,
		Requirements:   requirementsProto(s.Requirements),
		ResourceRefs:   refsProto(s.ResourceRefs),
		Affinity:       affinityProto(s.Affinity),
		TraceMeta:      traceProto(s.Trace),
	}
}
