package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// taskExplainCmd is lessor task explain.
type taskExplainCmd struct {
	server `embed:""`
	TaskID string `arg:"" help:"Task to explain."`
}

// Help is shown below the flags.
func (taskExplainCmd) Help() string {
	return `Shows in this order: why the task is in its state, and what would change that; what happened to the lease that ended last; which
reports under its leases were refused, and how late they came.

Example:
  lessor task explain t0000200000000001`
}

func (c taskExplainCmd) Run(a *app) error {
	return c.with(a, func(cl *client) error {
		answer, err := cl.tasks.ExplainTask(a.ctx, &lessorv1.ExplainTaskRequest{TaskId: c.TaskID})
		if err != nil {
			return about(c.TaskID, err)
		}
		if a.json {
			return printJSON(a.out, answer)
		}
		return printExplanation(a.out, answer)
	})
}

// printExplanation shows on one screen what an operator asks first: why the task is not running, and what happened to its last lease.
func printExplanation(w io.Writer, x *lessorv1.ExplainTaskResponse) error {
	if _, err := fmt.Fprintln(w, printable(x.GetSummary())); err != nil {
		return err
	}
	d := newDetails(w)
	for i, f := range x.GetFindings() {
		if i > 0 { // the summary already has the message of the first
			d.add("also", f.GetMessage())
		}
		d.addFinding(f)
	}
	if err := d.flush(); err != nil {
		return err
	}
	if err := printStory(w, x.GetLastLease()); err != nil {
		return err
	}
	return printRefusals(w, x.GetRefusals())
}

func (d details) addFinding(f *lessorv1.Finding) {
	until := "until"
	switch f.GetCode() {
	case lessorv1.FindingCode_FINDING_CODE_COMPLETED, lessorv1.FindingCode_FINDING_CODE_FAILED, lessorv1.FindingCode_FINDING_CODE_CANCELLED:
		until = "kept until"
	}
	d.add("since", relative(f.GetSince()))
	d.add(until, relative(f.GetUntil()))
	d.add("changes when", f.GetRemedy())
}

// printStory prints the events of a lease from its grant to its end.
func printStory(w io.Writer, l *lessorv1.LeaseStory) error {
	if l == nil {
		return nil
	}
	if _, err := fmt.Fprintf(w, "\nlast lease, attempt %d of worker %s\n", l.GetAttempt(), printable(l.GetWorkerId())); err != nil {
		return err
	}
	d := newDetails(w)
	d.add("offered", clock(l.GetGrantedAt()))
	d.add("acknowledged", clockOrNever(l.GetAckedAt()))
	d.add("started", clockOrNever(l.GetStartedAt()))
	d.add("last heartbeat", clockOrNever(l.GetHeartbeatAt()))
	d.add("ended", clock(l.GetEndedAt()))
	d.add("why", causeText(l))
	return d.flush()
}

// causeText returns the code of the cause, then words for people.
func causeText(l *lessorv1.LeaseStory) string {
	text := short(l.GetCause(), "REASON_")
	switch l.GetCause() {
	case lessorv1.Reason_REASON_REPORTED:
		text += ": its worker reported"
	case lessorv1.Reason_REASON_LEASE_EXPIRED, lessorv1.Reason_REASON_DISPATCH_UNACKED:
		text += fmt.Sprintf(": the worker was silent for %v", silence(l))
	case lessorv1.Reason_REASON_CANCEL_TIMEOUT:
		text += ": its worker did not stop within cancel_grace"
	case lessorv1.Reason_REASON_DEADLINE_EXCEEDED:
		text += ": attempt_timeout or the deadline passed"
	case lessorv1.Reason_REASON_REVOKED:
		if l.GetDetail() != "" {
			return text + ": " + printable(l.GetDetail())
		}
		text += ": it was revoked, or its worker said goodbye"
	case lessorv1.Reason_REASON_COORDINATOR_RECOVERED:
		text += ": the coordinator ended older leases at its start (--recovery)"
	}
	return text
}

// silence returns the time from the worker's last message about a lease to the end of the lease.
func silence(l *lessorv1.LeaseStory) time.Duration {
	last := l.GetGrantedAt().AsTime()
	for _, at := range []*timestamppb.Timestamp{l.GetAckedAt(), l.GetStartedAt(), l.GetHeartbeatAt()} {
		if at != nil && at.AsTime().After(last) {
			last = at.AsTime()
		}
	}
	return l.GetEndedAt().AsTime().Sub(last).Round(time.Millisecond)
}

func printRefusals(w io.Writer, refusals []*lessorv1.Refusal) error {
	if len(refusals) == 0 {
		return nil
	}
	if _, err := io.WriteString(w, "\nrefused\n"); err != nil {
		return err
	}
	rows := newTable(w, inZone("AT"), "WHAT", "ATTEMPT", "WORKER", "LATE BY", "WHY")
	for _, r := range refusals {
		rows.row(
			stamp(r.GetAt()),
			short(r.GetKind(), "REFUSED_KIND_"),
			fmt.Sprint(r.GetAttempt()),
			r.GetWorkerId(),
			lateText(r),
			strings.Join([]string{short(r.GetVerdict(), "VERDICT_"), short(r.GetReason(), "REASON_"), r.GetDetail()}, ": "),
		)
	}
	return rows.flush()
}

func lateText(r *lessorv1.Refusal) string {
	if r.GetLateBy() == nil {
		return ""
	}
	return spanText(r.GetLateBy().AsDuration())
}

func clockOrNever(t *timestamppb.Timestamp) string { return cmp.Or(clock(t), "never") }

// relative returns a time, with how far it is from now, or "" if there is none.
func relative(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	if d := time.Until(t.AsTime()); d > 0 {
		return fmt.Sprintf("%s, in %s", clock(t), spanText(d))
	}
	return fmt.Sprintf("%s, %s ago", clock(t), spanText(time.Since(t.AsTime())))
}

// spanText returns a duration, rounded as far as people need it.
func spanText(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < 48*time.Hour:
		return d.Round(time.Second).String()
	}
	hours := int(d.Round(time.Hour).Hours())
	return fmt.Sprintf("%dd%dh", hours/24, hours%24)
}
