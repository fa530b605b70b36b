package service

import (
	"context"
	"maps"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// The calls of AdminService that are about queues (T13).

// ListQueues lists the queues of a workspace, sorted by name.
func (s *adminService) ListQueues(
	ctx context.Context, req *lessorv1.ListQueuesRequest,
) (*lessorv1.ListQueuesResponse, error) {
	f := s.fields()
	space := engine.Space{
		Tenant:    gate.Identify(ctx).Tenant,
		Workspace: f.Workspace("workspace_id", req.GetWorkspaceId()),
	}
	size := f.Items("page_size", req.GetPageSize(), defaultPage)
	list := newListing("queues", space.Tenant, &lessorv1.ListQueuesRequest{WorkspaceId: space.Workspace})
	after := list.cursor(f, req.GetPageToken())
	if f.Err != nil {
		return nil, refusal.Status(f.Err)
	}
	found, err := s.Engine.Queues(ctx, space, string(after), size+1, mostHeads)
	if err != nil {
		return nil, refusal.Status(err)
	}
	oldest, err := s.oldestOfQueues(space, found)
	if err != nil {
		return nil, refusal.Status(err)
	}
	res, page := &lessorv1.ListQueuesResponse{}, pageSize{most: size}
	for i := range found {
		if page.full() {
			res.NextPageToken = list.token([]byte(found[i-1].Name))
			break
		}
		q := s.queueWithAges(space.Workspace, &found[i], oldest)
		res.Queues = append(res.Queues, q)
		page.add(q)
	}
	return res, nil
}

// GetQueue returns one queue.
func (s *adminService) GetQueue(
	ctx context.Context, req *lessorv1.GetQueueRequest,
) (*lessorv1.GetQueueResponse, error) {
	f := s.fields()
	space, name := queueName(ctx, f, req)
	if f.Err != nil {
		return nil, refusal.Status(f.Err)
	}
	q, found, err := s.Engine.Queue(ctx, space, name, mostHeads)
	switch {
	case err != nil:
		return nil, refusal.Status(err)
	case !found:
		return nil, refusal.Status(refusal.ErrNoQueue)
	}
	oldest, err := s.oldestOfQueues(space, []engine.QueueInfo{q})
	if err != nil {
		return nil, refusal.Status(err)
	}
	return &lessorv1.GetQueueResponse{Queue: s.queueWithAges(space.Workspace, &q, oldest)}, nil
}

// queueName reads the name of the queue in a request.
func queueName(ctx context.Context, f *convert.Fields, req interface {
	GetWorkspaceId() string
	GetName() string
},
) (engine.Space, string) {
	space := engine.Space{
		Tenant:    gate.Identify(ctx).Tenant,
		Workspace: f.Workspace("workspace_id", req.GetWorkspaceId()),
	}
	return space, f.Required("name", req.GetName())
}

// UpdateQueue changes the settings of a queue.
func (s *adminService) UpdateQueue(
	ctx context.Context, req *lessorv1.UpdateQueueRequest,
) (*lessorv1.UpdateQueueResponse, error) {
	f := s.fields()
	space, name := queueName(ctx, f, req)
	policy := convert.ParseRetryPolicy(f, "retry_policy", req.GetRetryPolicy())
	if f.Err != nil {
		return nil, refusal.Status(f.Err)
	}
	q, err := s.Engine.UpdateQueue(ctx, space, name, func(settings *lease.Settings) { update(settings, req, policy) })
	if err != nil {
		return nil, refusal.Status(err)
	}
	return &lessorv1.UpdateQueueResponse{Queue: queueProto(space.Workspace, &q)}, nil
}

// update changes only those settings that the request has.
func update(s *lease.Settings, req *lessorv1.UpdateQueueRequest, policy lease.RetryPolicy) {
	if req.Paused != nil {
		s.Paused = req.GetPaused()
	}
	if req.MaxInflight != nil {
		s.MaxInflight = req.GetMaxInflight()
	}
	if r := req.GetRateLimit(); r != nil {
		s.Rate = lease.Rate{PerSecond: r.GetPerSecond(), Burst: r.GetBurst()}
	}
	switch {
	case policy.IsSet():
		s.Retry = policy.Or(s.Retry)
	case req.GetRetryPolicy() != nil:
		s.Retry = lease.RetryPolicy{}
	}
	if changes := req.GetFairnessWeights(); len(changes) > 0 {
		s.Weights = weights(s.Weights, changes)
	}
}

// weights returns a new map with the changes; a weight of 0 removes a key.
func weights(have, changes map[string]float64) map[string]float64 {
	all := maps.Clone(have)
	if all == nil {
		all = map[string]float64{}
	}
	for key, w := range changes {
		if all[key] = w; w == 0 {
			delete(all, key)
		}
	}
	return all
}

// PurgeQueue deletes the waiting tasks of a queue.
func (s *adminService) PurgeQueue(
	ctx context.Context, req *lessorv1.PurgeQueueRequest,
) (*lessorv1.PurgeQueueResponse, error) {
	f := s.fields()
	space, name := queueName(ctx, f, req)
	list := newListing("purge", space.Tenant, &lessorv1.PurgeQueueRequest{WorkspaceId: space.Workspace, Name: name})
	sw := engine.Sweep{Space: space, Matches: func(t *lease.Task) bool { return t.Spec.Queue == name }}
	sw.After, sw.Until, _ = list.pair(f, req.GetPageToken())
	if f.Err != nil {
		return nil, refusal.Status(f.Err)
	}
	// when the first calls have deleted all tasks of a queue, it may be forgotten before the last
	// call
	if req.GetPageToken() == "" {
		switch _, found, err := s.Engine.Queue(ctx, space, name, 0); {
		case err != nil:
			return nil, refusal.Status(err)
		case !found:
			return nil, refusal.Status(refusal.ErrNoQueue)
		}
	}
	sw.Choose = func(t *lease.Task) (lease.Command, bool) {
		if t.Lease != nil || t.Rest.Final() {
			return nil, false
		}
		return lease.Delete{Tenant: space.Tenant, Task: t.ID}, false
	}
	result, err := s.sweep(ctx, list, sw)
	if err != nil {
		return nil, refusal.Status(err)
	}
	return &lessorv1.PurgeQueueResponse{Result: result}, nil
}

func queueProto(workspace string, q *engine.QueueInfo) *lessorv1.Queue {
	s := &q.Settings
	m := &lessorv1.Queue{
		Name:            q.Name,
		WorkspaceId:     workspace,
		Ready:           q.Ready,
		Scheduled:       q.Scheduled,
		Leased:          q.Leased,
		Blocked:         q.Parked,
		Completed:       q.Completed,
		Failed:          q.Failed,
		Cancelled:       q.Cancelled,
		CreatedAt:       convert.Stamp(q.CreatedAt),
		Takers:          uint32(q.Takers),
		Paused:          s.Paused,
		PausedAt:        convert.Stamp(s.PausedAt),
		MaxInflight:     s.MaxInflight,
		FairnessWeights: s.Weights,
	}
	if s.Rate.PerSecond != 0 {
		m.RateLimit = &lessorv1.RateLimit{PerSecond: s.Rate.PerSecond, Burst: s.Rate.Burst}
	}
	if s.Retry.IsSet() {
		m.RetryPolicy = convert.RetryPolicyProto(&s.Retry)
	}
	return m
}

// queueWithAges is queueProto with the oldest READY task of the queue and its oldest blocker, and
// for how long they have been so.
func (s *adminService) queueWithAges(workspace string, q *engine.QueueInfo, oldest map[string]waiting) *lessorv1.Queue {
	m := queueProto(workspace, q)
	if w, ok := oldest[q.Name]; ok {
		m.OldestReady, m.OldestReadyTaskId = durationpb.New(w.age), w.task.String()
		m.OldestReadyAtLeast = w.atLeast
	}
	if b := q.Blocker; b.Since != 0 {
		m.OldestBlocker, m.OldestBlockerTaskId = durationpb.New(time.Duration(max(s.Engine.Now().Wall-b.Since, 0))), b.Task.String()
	}
	return m
}
