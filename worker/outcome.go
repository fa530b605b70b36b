package worker

import (
	"context"
	"errors"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// start is the report that execution begins.
func (a *attempt) start() *lessorv1.Report {
	return &lessorv1.Report{Report: &lessorv1.Report_Start{Start: &lessorv1.StartRequest{
		TaskId:      a.task.ID,
		LeaseId:     a.leaseID,
		Attempt:     a.task.Attempt,
		WorkerId:    a.w.cfg.Name,
		Traceparent: a.task.Traceparent,
		StartedAt:   timestamppb.Now(),
	}}}
}

// outcome is the one report that follows from what the handler returned and how its context ended.
func (a *attempt) outcome(output []byte, err error) *lessorv1.Report {
	if err == nil {
		return a.complete(output)
	}
	var release *releaseError
	if errors.As(err, &release) {
		return a.release(release.delay, release.reason)
	}
	steer, cause := steering(err), context.Cause(a.ctx)
	if errors.Is(cause, ErrDraining) && !steer.decides() {
		return a.release(0, cause.Error()) // the worker is at fault, not the task
	}
	if steer.category == 0 {
		steer.category = categoryOf(err, cause)
	}
	return a.fail(&lessorv1.TaskError{
		Category:   steer.category,
		Message:    clip(err.Error(), maxText),
		StackTrace: clipFront(steer.stack, maxText),
		Retryable:  steer.retryable,
		RetryAfter: optionalSpan(min(steer.retryAfter, maxDelay)),
	})
}

// categoryOf is the category of an error that names none.
func categoryOf(err, cause error) Category {
	switch {
	case errors.Is(cause, ErrCancelled):
		return Cancelled
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	}
	return UserCode
}

func (a *attempt) complete(output []byte) *lessorv1.Report {
	_, metrics := a.feedback.newest()
	return &lessorv1.Report{Report: &lessorv1.Report_Complete{Complete: &lessorv1.CompleteRequest{
		TaskId:      a.task.ID,
		LeaseId:     a.leaseID,
		Attempt:     a.task.Attempt,
		WorkerId:    a.w.cfg.Name,
		Traceparent: a.task.Traceparent,
		ReportId:    a.w.reportID(),
		Output:      output,
		Artifacts:   a.takeArtifacts(),
		Metrics:     metrics,
		CompletedAt: timestamppb.Now(),
	}}}
}

func (a *attempt) fail(failure *lessorv1.TaskError) *lessorv1.Report {
	progress, metrics := a.feedback.newest()
	f := &lessorv1.FailRequest{
		TaskId:      a.task.ID,
		LeaseId:     a.leaseID,
		Attempt:     a.task.Attempt,
		WorkerId:    a.w.cfg.Name,
		Traceparent: a.task.Traceparent,
		ReportId:    a.w.reportID(),
		Error:       failure,
		Metrics:     metrics,
		CompletedAt: timestamppb.Now(),
	}
	if failure.GetCategory() == Cancelled {
		f.CancelledDuringPhase = progress.GetStage()
	}
	return &lessorv1.Report{Report: &lessorv1.Report_Fail{Fail: f}}
}

func (a *attempt) release(delay time.Duration, reason string) *lessorv1.Report {
	return &lessorv1.Report{Report: &lessorv1.Report_Release{Release: &lessorv1.ReleaseRequest{
		TaskId:      a.task.ID,
		LeaseId:     a.leaseID,
		Attempt:     a.task.Attempt,
		WorkerId:    a.w.cfg.Name,
		Traceparent: a.task.Traceparent,
		ReportId:    a.w.reportID(),
		Reason:      clip(reason, maxText),
		Delay:       optionalSpan(delay),
	}}}
}

// unreportable is the failure that stands for an outcome which the coordinator cannot take: another attempt would end
// the same way, and without a report the lease would run out again and again. What is too large is a matter of
// CONFIGURATION: the worker was not told the coordinator's limit.
func (a *attempt) unreportable(category Category, why string) *lessorv1.Report {
	retryable := false
	return a.fail(&lessorv1.TaskError{
		Category:  category,
		Message:   clip("the outcome could not be reported: "+why, maxText),
		Retryable: &retryable,
	})
}

// reportID names an outcome in logs, and is as unique as the instance. It is no secret and decides nothing (V13), so that it
// need not be random: that was a tenth of what a short task cost.
func (w *Worker) reportID() string {
	return string(strconv.AppendUint(append(make([]byte, 0, 64), w.instance+"-"...), w.outcomes.Add(1), 10))
}
