package service

import (
	"context"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// ExplainTask explains the state of a task, for example why it waits.
func (s *taskService) ExplainTask(
	ctx context.Context, req *lessorv1.ExplainTaskRequest,
) (*lessorv1.ExplainTaskResponse, error) {
	id, err := parseTaskID(ctx, s.fields(), req.GetTaskId())
	if err != nil {
		return nil, refusal.Status(err)
	}
	x, err := s.Engine.Explain(ctx, gate.Identify(ctx).Tenant, id)
	if err != nil {
		return nil, refusal.Status(err)
	}
	return explanationProto(&x), nil
}

func explanationProto(x *lease.Explanation) *lessorv1.ExplainTaskResponse {
	m := &lessorv1.ExplainTaskResponse{TaskId: x.Task.ID.String(), State: lessorv1.TaskState(x.Task.State())}
	m.Summary = x.Task.State().String()
	if len(x.Findings) > 0 {
		m.Summary += ": " + x.Findings[0].Message
	}
	for i := range x.Findings {
		f := &x.Findings[i]
		m.Findings = append(m.Findings, &lessorv1.Finding{
			Code: lessorv1.FindingCode(f.Code), Message: f.Message, Since: convert.Stamp(f.Since),
			Until: convert.Stamp(f.Until), Remedy: f.Remedy,
		})
	}
	if last := &x.Task.Last; last.Attempt != 0 {
		m.LastLease = &lessorv1.LeaseStory{
			Attempt:     last.Attempt,
			WorkerId:    last.Worker,
			GrantedAt:   convert.Stamp(last.GrantedAt),
			AckedAt:     convert.Stamp(last.AckedAt),
			StartedAt:   convert.Stamp(last.StartedAt),
			HeartbeatAt: convert.Stamp(last.HeartbeatAt),
			EndedAt:     convert.Stamp(last.At),
			Cause:       lessorv1.Reason(last.Cause),
			Message:     x.Story,
			Detail:      x.Detail,
		}
	}
	for i := range x.Refusals {
		m.Refusals = append(m.Refusals, refusalProto(&x.Refusals[i]))
	}
	return m
}

func refusalProto(r *lease.Refusal) *lessorv1.Refusal {
	return &lessorv1.Refusal{
		At:       convert.Stamp(r.At),
		Attempt:  r.Attempt,
		WorkerId: r.Actor,
		Kind:     lessorv1.RefusedKind(r.Kind),
		Verdict:  lessorv1.Verdict(r.Reason.Verdict()),
		Reason:   lessorv1.Reason(r.Reason),
		Detail:   r.Detail,
		LateBy:   convert.Span(r.LateBy),
	}
}
