package main

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
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
			return withID(c.TaskID, err)
		}
		if a.json {
			return printJSON(a.out, answer)
		}
		return printExplanation(a.out, answer)
	})
}

// printExplanation shows on one screen what an operator asks first: why the task is not running,
// and what happened to its last lease.
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
	case lessorv1.FindingCode_FINDING_CODE_COMPLETED, lessorv1.FindingCode_FINDING_CODE_FAILED,
		lessorv1.FindingCode_FINDING_CODE_CANCELLED:
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
	d.add("why", words.Cause(l))
	return d.flush()
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
			words.Name(r.GetKind()),
			fmt.Sprint(r.GetAttempt()),
			r.GetWorkerId(),
			words.LateBy(r),
			words.Refused(r),
		)
	}
	return rows.flush()
}

func clockOrNever(t *timestamppb.Timestamp) string { return cmp.Or(clock(t), "never") }

// relative returns a time, with how far it is from now, or "" if there is none.
func relative(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	if d := time.Until(t.AsTime()); d > 0 {
		return fmt.Sprintf("%s, in %s", clock(t), words.Span(d))
	}
	return fmt.Sprintf("%s, %s ago", clock(t), words.Span(time.Since(t.AsTime())))
}
