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

// startReport is a Start with all its parts, and completion a Complete with all its parts. Nearly
// every task makes one of each. With all parts in one struct, each is one allocation instead of
// five.
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
	begun    timestamppb.Timestamp
	at       timestamppb.Timestamp
}

// start returns the Start.
func (a *attempt) start() *report {
	r := &startReport{report: report{a: a, size: startSize}}
	r.item, r.message.Report, r.kind.Start = &r.message, &r.kind, &r.start
	r.start.TaskId = a.task.ID
	r.start.LeaseId = a.leaseID
	r.start.Attempt = a.task.Attempt
	r.start.WorkerId = a.w.cfg.Name
	r.start.Traceparent = a.task.Traceparent
	r.start.StartedAt = stamp(&r.at, a.begun)
	r.start.Begun = true
	return &r.report
}

// stamp sets t to the given time. It returns nil if that is zero.
func stamp(t *timestamppb.Timestamp, at time.Time) *timestamppb.Timestamp {
	if at.IsZero() {
		return nil
	}
	t.Seconds, t.Nanos = at.Unix(), int32(at.Nanosecond())
	return t
}

// outcome returns the one report that follows from what the handler returned and how its context
// ended, and the error in that report. The methods of the handler's error are the user's code too
// and may panic, for example if the error is a nil pointer that was returned by mistake. Then the
// report is that panic.
func (a *attempt) outcome(output []byte, err error) (r *report, reported error) {
	defer func() {
		if value := recover(); value != nil {
			// The value becomes text here, because its own methods may panic as well.
			text := fmt.Sprintf("in the methods of the handler's error, which is a %T: %v", err, value)
			reported = &PanicError{Value: text, Stack: debug.Stack()}
			r = a.failureOf(reported)
		}
	}()
	var artifacts []*lessorv1.Artifact
	if err == nil {
		if artifacts, err = a.takeArtifacts(); err == nil {
			return a.complete(output, artifacts), nil
		}
		err = Permanent(err)
	}
	return a.failureOf(err), err
}

// failureOf returns the report of an error: a Fail, or a Release.
func (a *attempt) failureOf(err error) *report {
	if release, ok := errors.AsType[*releaseError](err); ok {
		return a.release(release.delay, release.reason)
	}
	steer, cause := steering(err), context.Cause(a.ctx)
	if errors.Is(cause, ErrDraining) && !steer.wantsFailure() {
		return a.release(0, cause.Error()) // the worker is at fault, not the task
	}
	if steer.category == 0 {
		steer.category = categoryOf(err, cause)
	}
	r := a.fail(&lessorv1.TaskError{
		Category:   steer.category,
		Message:    clip(err.Error(), maxText),
		StackTrace: clipFront(steer.stack, maxText),
		Retryable:  steer.retryable,
		RetryAfter: optionalSpan(min(steer.retryAfter, maxDelay)),
	})
	if len(steer.partial) <= maxText { // the coordinator would refuse the whole report
		r.item.GetFail().PartialProgress = steer.partial
	}
	return r
}

// categoryOf returns the category of an error that names none itself.
func categoryOf(err, cause error) Category {
	switch {
	case errors.Is(cause, ErrCancelled):
		return Cancelled
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	}
	return UserCode
}

func (a *attempt) complete(output []byte, artifacts []*lessorv1.Artifact) *report {
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
	r.complete.Artifacts = artifacts
	r.complete.Metrics = metrics
	r.complete.StartedAt = stamp(&r.begun, a.begun)
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
		StartedAt:   stamp(new(timestamppb.Timestamp), a.begun),
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
		StartedAt:   stamp(new(timestamppb.Timestamp), a.begun),
		Reason:      clip(reason, maxReason),
		Delay:       optionalSpan(delay),
	}}}}
}

// unreportable is the failure that is reported in place of an outcome that the coordinator cannot
// accept. It is not retryable, because another attempt would end the same way, and without any
// report the lease would expire again and again. An outcome that is too large has category
// CONFIGURATION: the worker's limit does not match the coordinator's.
func (a *attempt) unreportable(category Category, why string) *report {
	retryable := false
	return a.fail(&lessorv1.TaskError{
		Category:  category,
		Message:   clip("the outcome could not be reported: "+why, maxText),
		Retryable: &retryable,
	})
}

// reportID returns the id of an outcome for logs. It is as unique as the instance. It is no secret,
// and no decision depends on it (V13), so it need not be random: a random id was a tenth of the
// cost of a short task.
func (w *Worker) reportID() string {
	return string(strconv.AppendUint(append(make([]byte, 0, 64), w.instance+"-"...), w.outcomes.Add(1), 10))
}
