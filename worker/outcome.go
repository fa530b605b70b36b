package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// startReport is a Start with all that it consists of, and completion a Complete: one of each is made for nearly every task, and
// in one piece it is one allocation instead of five.
type startReport struct {
	report
	message lessorv1.Report
	kind    lessorv1.Report_Start
	start   lessorv1.StartRequest
	at      timestamppb.Timestamp
}

type completion struct {
	report
	message  lessorv1.Report
	kind     lessorv1.Report_Complete
	complete lessorv1.CompleteRequest
	at       timestamppb.Timestamp
}

// start is the report that execution begins.
func (a *attempt) start(now time.Time) *report {
	r := &startReport{report: report{a: a, size: startSize}}
	r.item, r.message.Report, r.kind.Start = &r.message, &r.kind, &r.start
	r.start.TaskId = a.task.ID
	r.start.LeaseId = a.leaseID
	r.start.Attempt = a.task.Attempt
	r.start.WorkerId = a.w.cfg.Name
	r.start.Traceparent = a.task.Traceparent
	r.start.StartedAt = stamp(&r.at, now)
	return &r.report
}

// stamp sets t to the given time.
func stamp(t *timestamppb.Timestamp, now time.Time) *timestamppb.Timestamp {
	t.Seconds, t.Nanos = now.Unix(), int32(now.Nanosecond())
	return t
}

// outcome is the one report that follows from what the handler returned and how its context ended, and the error in it. The
// methods of an error are code of the handler's too: those of a nil pointer, returned by mistake, panic as a rule.
func (a *attempt) outcome(output []byte, err error) (r *report, told error) {
	defer func() {
		if value := recover(); value != nil {
			// As text: the value's own methods may be no better.
			text := fmt.Sprintf("in the methods of the handler's error, which is a %T: %v", err, value)
			told = &PanicError{Value: text, Stack: debug.Stack()}
			r = a.outcomeOf(nil, told)
		}
	}()
	return a.outcomeOf(output, err), err
}

func (a *attempt) outcomeOf(output []byte, err error) *report {
	if err == nil {
		return a.complete(output)
	}
	var release *releaseError
	if errors.As(err, &release) {
		return a.release(release.delay, release.reason)
	}
	steer, cause := steering(err), context.Cause(a.ctx)
	if errors.Is(cause, ErrDraining) && !steer.wantsFailure() {
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

func (a *attempt) complete(output []byte) *report {
	_, metrics := a.feedback.newest()
	r := &completion{report: report{a: a}}
	r.item, r.message.Report, r.kind.Complete = &r.message, &r.kind, &r.complete
	r.complete.TaskId = a.task.ID
	r.complete.LeaseId = a.leaseID
	r.complete.Attempt = a.task.Attempt
	r.complete.WorkerId = a.w.cfg.Name
	r.complete.Traceparent = a.task.Traceparent
	r.complete.ReportId = a.w.reportID()
	r.complete.Output = output
	r.complete.Artifacts = a.takeArtifacts()
	r.complete.Metrics = metrics
	r.complete.CompletedAt = stamp(&r.at, time.Now())
	return &r.report
}

func (a *attempt) fail(failure *lessorv1.TaskError) *report {
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
	return &report{a: a, item: &lessorv1.Report{Report: &lessorv1.Report_Fail{Fail: f}}}
}

func (a *attempt) release(delay time.Duration, reason string) *report {
	return &report{a: a, item: &lessorv1.Report{Report: &lessorv1.Report_Release{Release: &lessorv1.ReleaseRequest{
		TaskId:      a.task.ID,
		LeaseId:     a.leaseID,
		Attempt:     a.task.Attempt,
		WorkerId:    a.w.cfg.Name,
		Traceparent: a.task.Traceparent,
		ReportId:    a.w.reportID(),
		Reason:      clip(reason, maxReason),
		Delay:       optionalSpan(delay),
	}}}}
}

// unreportable is the failure that stands for an outcome which the coordinator cannot take: another attempt would end
// the same way, and without a report the lease would run out again and again. What is too large is a matter of
// CONFIGURATION: the worker was not told the coordinator's limit.
func (a *attempt) unreportable(category Category, why string) *report {
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
