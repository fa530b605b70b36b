package lease

import (
	"cmp"
	"crypto/subtle"
	"fmt"
)

// judgeAll judges the reports of the command in their order.
func (s *step) judgeAll(c Judge) {
	for _, r := range c.Reports {
		s.out.Answers = append(s.out.Answers, s.judgeReport(c.Tenant, r))
	}
}

// judgeReport gives the verdict on one report. The order is that of the verdict table (V1 to V12):
// the first match wins.
func (s *step) judgeReport(tenant string, r *Report) Answer {
	if err := r.check(s.rules.Limits); err != nil && !s.wasCommitted(tenant, r) { // V1
		detail := err.Error()
		if r.Kind == KindHeartbeat { // whether there is still a lease to renew is not looked at
			detail += "; this heartbeat did not renew the lease"
		}
		return s.refuseMalformed(tenant, r, rejected(InvalidRequest, detail))
	}
	id, wellFormed := ParseTaskID(r.TaskID)
	var found *Task
	if wellFormed {
		found = s.newest(id)
		if found != nil && found.Tenant != tenant { // V2
			return rejected(UnknownTask, "task_id: no such task")
		}
		s.openFound(found)
	}
	ticket, genuine := s.recognize(tenant, r.LeaseID, found)
	// V2: the answer must not show whether another tenant has the task
	if s.task == nil && (!genuine || ticket.Task != id) {
		return rejected(UnknownTask, "task_id: no such task")
	}
	if !genuine || ticket.Task != id || s.neverGranted(ticket) { // V3
		return s.withTaskState(rejected(InvalidLease, "lease_id: was not issued for this task"), ticket.Attempt)
	}
	if done := s.committed(s.task, ticket); done != nil && r.Kind.Closes() && r.sameAs(done) { // V4
		return Answer{Verdict: VerdictCommitted, Reason: None, State: done.State, RetryAt: done.RetryAt, Replayed: true}
	} else if done != nil { // V5
		return s.recordRefusal(r, ticket, s.withTaskState(answerSecondReport(r, done), ticket.Attempt))
	}
	if a, refused := s.judgeLease(r, ticket); refused { // V6-V11
		return s.recordRefusal(r, ticket, s.withTaskState(a, ticket.Attempt))
	}
	return s.commit(r) // V12
}

// refuseMalformed refuses a report whose form is bad (V1). It records the refusal if the lease
// belongs to a task of the tenant (T10). The answer is the same in both cases, so it reveals
// nothing about the lease or the task.
func (s *step) refuseMalformed(tenant string, r *Report, a Answer) Answer {
	ticket, genuine := s.rules.Authority.Open(tenant, r.LeaseID)
	if !genuine || ticket.Task.String() != r.TaskID {
		return a
	}
	found := s.newest(ticket.Task)
	if found == nil || found.Tenant != tenant || s.openFound(found) == nil || s.neverGranted(ticket) {
		return a
	}
	// any other field may be the bad one, so the history keeps none of them
	return s.recordRefusal(&Report{Kind: r.Kind}, ticket, a)
}

// recognize opens the lease id of a report. found is the task that the report names, if it belongs
// to the tenant; else nil. If the id equals the id of the live lease, it is genuine, and its MAC is
// not computed: most reports are about the live lease, and the comparison costs a tenth of a MAC.
// The comparison takes constant time, so it tells nothing to an attacker who guesses. The MAC of
// every other id is verified, even for a lease that was granted before a restart, because the id of
// such a lease is not in memory.
func (s *step) recognize(tenant, leaseID string, found *Task) (k Ticket, genuine bool) {
	if found != nil && found.Lease != nil && found.Lease.hasID(leaseID) {
		return found.Lease.ticket(found.ID), true
	}
	return s.rules.Authority.Open(tenant, leaseID)
}

// hasID reports whether the lease has the given id. It is false if the id of the lease is not in
// memory.
func (l *Lease) hasID(leaseID string) bool {
	return l.ID != "" && subtle.ConstantTimeCompare([]byte(l.ID), []byte(leaseID)) == 1
}

// judgeLease decides about a report under a genuine lease under which nothing was committed: V6 to
// V11 in their order.
func (s *step) judgeLease(r *Report, k Ticket) (a Answer, refused bool) {
	if r.Attempt != 0 && r.Attempt != k.Attempt { // V6
		return rejected(InvalidRequest,
			fmt.Sprintf("attempt: is %d; the lease is of attempt %d", r.Attempt, k.Attempt)), true
	}
	if a, lost := s.leaseEnded(k); lost { // V7-V10
		return a, true
	}
	if r.tooLarge(s.rules.Limits) { // V11
		return rejected(ResultTooLarge, fmt.Sprintf("output: has %d bytes; the limit is %d; the lease stays live",
			len(r.Result.Output), s.rules.Limits.Output)), true
	}
	return Answer{}, false
}

// neverGranted reports whether a genuine ticket belongs to a grant that was lost in a crash, before
// it was durable and before anyone learned of it.
func (s *step) neverGranted(k Ticket) bool {
	return s.task != nil && k.Epoch == s.rules.Authority.Epoch && s.task.neverHad(k)
}

// neverHad reports whether the task has had no attempt with the number of the ticket yet, or
// another one. Nonces of attempts before the last one are not kept, and so not compared.
func (t *Task) neverHad(k Ticket) bool {
	switch {
	case t.Lease != nil && t.Lease.Attempt == k.Attempt:
		return t.Lease.Nonce != k.Nonce
	case t.Last.Attempt == k.Attempt:
		return t.Last.Nonce != k.Nonce
	}
	return k.Attempt > t.Attempt()
}

// wasCommitted reports whether the same report was COMMITTED under its lease before. Such a report
// is not refused for its form: if a limit was lowered since then, the recorded verdict still counts
// (V14).
func (s *step) wasCommitted(tenant string, r *Report) bool {
	k, genuine := s.rules.Authority.Open(tenant, r.LeaseID)
	if !genuine || k.Task.String() != r.TaskID {
		return false
	}
	done := s.committed(s.newest(k.Task), k)
	return done != nil && r.sameAs(done)
}

// committed returns the report that was COMMITTED under the lease of the ticket, or nil. t is the
// task of the lease; nil if the task is gone.
func (s *step) committed(t *Task, k Ticket) *Committed {
	if t != nil && t.Lease != nil && t.Lease.Attempt == k.Attempt {
		return nil
	}
	if t != nil && t.Outcome != nil && t.Outcome.madeUnder(k) {
		return t.Outcome
	}
	for i := range s.change.Ledger { // an earlier report of this step added it
		if s.change.Ledger[i].madeUnder(k) {
			return &s.change.Ledger[i]
		}
	}
	if done := s.view.Committed(k.Task, k.Attempt); done != nil && done.madeUnder(k) {
		return done
	}
	return nil
}

// madeUnder reports whether the report was made under the lease of the ticket. It is false for an
// adoption, which needs no lease.
func (c *Committed) madeUnder(k Ticket) bool {
	return c.Kind != KindAdopt && c.Attempt == k.Attempt && c.Nonce == k.Nonce
}

// sameAs reports whether r is the same report as done (V13).
func (r *Report) sameAs(done *Committed) bool {
	return r.Kind == done.Kind && r.Digest() == done.Digest
}

// answerSecondReport answers a report under a lease under which another report was committed before
// (V5). If the task was deleted since, its state is that after the committed report, as in a replay
// of that one.
func answerSecondReport(r *Report, done *Committed) Answer {
	a := rejected(DuplicateReport, "another report ("+done.Kind.String()+") was already committed under this lease")
	if !r.Kind.Closes() {
		a = Answer{
			Verdict: VerdictCancelled, Reason: AlreadyReported,
			Detail: "a report (" + done.Kind.String() + ") was already committed under this lease",
		}
	}
	a.State = done.State
	return a
}

// leaseEnded reports whether the lease is no longer live, and returns the answer that says why: V7
// to V10 in their order.
func (s *step) leaseEnded(k Ticket) (Answer, bool) {
	t := s.task
	switch {
	case k.Epoch != s.rules.Authority.Epoch:
		return cancelled(CoordinatorRecovered,
			fmt.Sprintf("the lease is of epoch %d; this is epoch %d", k.Epoch, s.rules.Authority.Epoch)), true
	case t == nil:
		return cancelled(TaskGone, "the task was deleted"), true
	case t.Attempt() > k.Attempt:
		return cancelled(Superseded, fmt.Sprintf("attempt %d has been granted since", t.Attempt())), true
	case t.Lease == nil:
		return cancelled(t.Last.Cause, t.describeEnd()), true
	}
	return Answer{}, false
}

// describeEnd says in words how and when the last lease ended. The answer to a report that comes
// too late has it as detail.
func (t *Task) describeEnd() string {
	return t.causeOfEnd() + " at " + t.Last.At.Time().Format(clockTime)
}

func (t *Task) causeOfEnd() string {
	switch t.Last.Cause {
	case LeaseExpired:
		return "the lease expired"
	case DispatchUnacked:
		return "the grant was not acknowledged in time"
	case CoordinatorRecovered:
		return "a recovery of the coordinator ended the lease"
	case TaskCancelled:
		return "the task was cancelled"
	case CancelTimeout:
		return "cancel_grace passed"
	case DeadlineExceeded: // the history says which of the two, as long as it has the event
		return cmp.Or(t.EndDetail(), "attempt_timeout or the deadline passed")
	case Revoked:
		return "the lease was revoked"
	}
	return ""
}

func rejected(reason Reason, detail string) Answer {
	return Answer{Verdict: VerdictRejected, Reason: reason, Detail: detail}
}

func cancelled(reason Reason, detail string) Answer {
	return Answer{Verdict: VerdictCancelled, Reason: reason, Detail: detail, ShouldCancel: true}
}

// withTaskState adds the state of the task to an answer, and where they apply its newest attempt
// and the reason of its cancel. attempt is the caller's own.
func (s *step) withTaskState(a Answer, attempt uint32) Answer {
	t := s.task
	if t == nil {
		return a
	}
	a.State = t.State()
	if a.Verdict == VerdictCancelled && t.Attempt() != attempt {
		a.CurrentAttempt = t.Attempt()
	}
	if a.ShouldCancel && t.Cancel != nil {
		a.CancelReason = t.Cancel.Reason
	}
	return a
}
