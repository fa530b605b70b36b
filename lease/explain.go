package lease

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Explanation says why a task is in its present state (S6).
type Explanation struct {
	Task *Task
	// Findings are the reasons, the most important first.
	Findings []Finding
	// Story says what happened under the lease that ended last; it is empty if no lease of the task
	// has ended.
	Story string
	// Detail is the detail that the history recorded for the end of that lease; it may be empty.
	Detail string
	// Refusals are the refused reports under leases of the task, oldest first.
	Refusals []Refusal
}

// Finding is one reason why a task is in its present state.
type Finding struct {
	Code    FindingCode
	Message string
	Since   Wall   // 0: not known
	Until   Wall   // when the reason ends without anybody's help; 0: never
	Remedy  string // what would end the reason; empty: nobody needs to act
}

// FindingCode is the kind of a Finding.
type FindingCode uint8

// The finding codes have the same numbers as on the wire. Explain never returns the ones about
// workers (no worker, busy, in line, requirements, pin, affinity, single flight) and the disk: the
// rules know neither, so the caller of Explain adds those findings.
const (
	FoundLeased FindingCode = iota + 1
	FoundUnacknowledged
	FoundCancelling
	FoundRunAt
	FoundBackoff
	FoundQueuePaused
	FoundMaxInflight
	FoundRateLimit
	FoundConcurrencyKey
	FoundNoWorker
	FoundNoWorkerForType
	FoundWorkersBusy
	FoundInLine
	FoundCompleted
	FoundFailed
	FoundCancelled
	FoundTimeLimit
	FoundLateResult
	FoundRequirements
	FoundPinnedWorker
	FoundAffinity
	FoundSingleFlight
	FoundDiskFull
	FoundStoreGone
)

// Refusal is an EventRefused with the delay of the refused report.
type Refusal struct {
	Event
	// LateBy is from the end of the lease to the report; 0 if that end is not known, or the report
	// was refused for another reason.
	LateBy time.Duration
}

// Explain says why a task is in its present state. It uses the same functions as the decisions
// about the task. The caller must apply the due timers of the task first (Expire).
func Explain(now Now, view View, t *Task) Explanation {
	x := Explanation{Task: t, Refusals: refusals(t)}
	if t.Last.Attempt != 0 {
		x.Story, x.Detail = t.Last.story(), t.EndDetail()
	}
	switch {
	case t.Lease != nil:
		x.Findings = append(x.Findings, t.leasedFinding(now))
	case t.Rest == Scheduled:
		x.Findings = append(x.Findings, t.scheduledFinding(now))
		// A limit of its queue may let it pass when its time has come; a pause lasts until somebody
		// ends it.
		x.Findings = append(x.Findings, t.pauseFindings(view.Queue(t.ID.Space, t.Spec.Queue))...)
	case t.Rest == Ready:
		x.Findings = append(x.Findings, t.blockFindings(now, view)...)
	default:
		x.Findings = append(x.Findings, t.finalFinding(now.Wall))
	}
	x.Findings = append(x.Findings, t.timeLimitFindings(now)...)
	x.Findings = append(x.Findings, t.lateResultFindings()...)
	return x
}

// lateResultFindings returns a finding if an operator could still adopt a discarded result (V15).
func (t *Task) lateResultFindings() []Finding {
	n := len(t.Discarded)
	if n == 0 || t.Lease != nil || t.Outcome != nil {
		return nil
	}
	d := &t.Discarded[n-1]
	return []Finding{{
		Code:  FoundLateResult,
		Since: d.At,
		Message: fmt.Sprintf("the result of attempt %d (%s) came too late and is kept",
			d.Attempt, countOf(d.Size, "byte")),
		Remedy: "an operator adopts that result; the task is then COMPLETED",
	}}
}

// leasedFinding says who holds the live lease, and for what a LEASED, RUNNING or CANCELLING task
// waits.
func (t *Task) leasedFinding(now Now) Finding {
	l := t.Lease
	switch {
	case t.Cancel != nil:
		f := Finding{
			Code:    FoundCancelling,
			Since:   t.Cancel.At,
			Until:   now.WallAt(l.CancelBy),
			Message: fmt.Sprintf("a cancel waits for worker %q, which holds attempt %d, to stop", l.Worker, l.Attempt),
			Remedy:  "its worker stops, or cancel_grace ends and the task is FAILED with CANCEL_TIMEOUT",
		}
		if silent := l.silentBy(); silent < l.CancelBy {
			f.Until = now.WallAt(silent)
			f.Remedy = "its worker stops, or the lease ends because the worker is silent and the task is CANCELLED"
		}
		return f
	case l.AwaitsAck():
		return Finding{
			Code:  FoundUnacknowledged,
			Since: l.GrantedAt,
			Until: now.WallAt(min(l.silentBy(), t.ExpiresAt(now))),
			Message: fmt.Sprintf("attempt %d was offered to worker %q, which has not acknowledged it",
				l.Attempt, l.Worker),
			Remedy: "the worker acknowledges it, or the task goes back to its old place in line",
		}
	}
	word, at := "granted", l.GrantedAt
	if l.StartedAt != 0 {
		word, at = "started", l.StartedAt
	}
	if l.HeartbeatAt > at {
		word, at = "last heartbeat", l.HeartbeatAt
	}
	f := Finding{
		Code:    FoundLeased,
		Since:   l.GrantedAt,
		Until:   now.WallAt(t.ExpiresAt(now)),
		Message: fmt.Sprintf("worker %q holds attempt %d; %s %v ago", l.Worker, l.Attempt, word, ago(now, at)),
		Remedy:  "its worker reports, or the lease expires because no heartbeat arrives",
	}
	if due := t.Spec.HeartbeatInterval; ago(now, at) > due+due/2 { // a heartbeat may be late by as much as a session allows
		f.Message += fmt.Sprintf("; a heartbeat is overdue, one is due every %v", due)
		if r := l.rejected(); r != nil {
			f.Message += "; " + r.rejection()
		}
	}
	return f
}

// rejected returns an event about a report under the lease that was rejected, of a heartbeat if
// there is one: its holder was heard then, but did not renew the lease. It returns nil if there is
// none.
func (l *Lease) rejected() (found *Event) {
	for i := range l.Events { // these may be about earlier attempts, too
		e := &l.Events[i]
		if e.Type == EventRefused && e.Attempt == l.Attempt && e.Reason.Verdict() == VerdictRejected &&
			(found == nil || e.Kind == KindHeartbeat) {
			found = e
		}
	}
	return found
}

// rejection says in words that a report was rejected. The history has each kind of refusal once, so
// the time is that of the first.
func (e *Event) rejection() string {
	return fmt.Sprintf("a %s was rejected, first at %s: %s", e.Kind, e.At.Time().Format("15:04:05.000"), e.Reason)
}

// silentBy returns when the lease ends if nothing more is heard of its holder, without regard to
// other limits.
func (l *Lease) silentBy() Instant {
	if l.AwaitsAck() {
		return min(l.AckBy, l.ExpiresAt)
	}
	return l.ExpiresAt
}

func (t *Task) scheduledFinding(now Now) Finding {
	if t.RetryAt == 0 {
		return Finding{Code: FoundRunAt, Since: t.CreatedAt, Until: t.RunAt, Message: "its run_at is in the future"}
	}
	return Finding{
		Code: FoundBackoff, Since: t.Last.At, Until: now.WallAt(t.RetryAt),
		Message: fmt.Sprintf("it waits before the next attempt because %s; so far %s",
			t.describeLastEnd(), t.budgets()),
	}
}

// describeLastEnd says in words how the last attempt ended.
func (t *Task) describeLastEnd() string {
	attempt := fmt.Sprintf("attempt %d ", t.Last.Attempt)
	if t.Last.Cause == DeadlineExceeded {
		return attempt + fmt.Sprintf("reached attempt_timeout (%v)", t.Spec.AttemptTimeout)
	}
	for _, e := range slices.Backward(t.History) {
		switch {
		case e.Attempt != t.Last.Attempt:
		case e.Type == EventFailed:
			return attempt + "failed (" + Clip(strings.TrimSuffix(e.Detail, ": "), 200) + ")"
		case e.Type == EventReleased:
			return attempt + "was released by its worker"
		}
	}
	return attempt + "lost its lease (" + t.Last.Cause.String() + ")"
}

func (t *Task) budgets() string {
	p := &t.Spec.Retry
	return fmt.Sprintf("%d of %d failures, %d of %d losses", t.Failures, p.MaxAttempts, t.Losses, p.MaxLosses)
}

// blockFindings returns all the reasons why a READY task may not be granted to any worker: its
// queue, and its concurrency key. Nothing records since when a queue or a key has had no room.
func (t *Task) blockFindings(now Now, view View) []Finding {
	q := view.Queue(t.ID.Space, t.Spec.Queue)
	all := t.queueFindings(now, q)
	if key := t.Spec.ConcurrencyKey; key != "" {
		switch h := view.Holders(t.ID.Space, key); {
		case !h.Room(t.Spec.ConcurrencyLimit):
			all = append(all, Finding{
				Code: FoundConcurrencyKey,
				Message: fmt.Sprintf("its concurrency_key %q has no room: %s of at most %d",
					key, countOf(int(h.Count), "live lease"), min(h.Limit, t.Spec.ConcurrencyLimit)),
				Remedy: "one of these leases ends",
			})
		case t.Parked:
			all = append(all, Finding{
				Code:    FoundConcurrencyKey,
				Message: fmt.Sprintf("an earlier task waits for the same concurrency_key %q", key),
				Remedy:  "that task is granted or ends",
			})
		}
	}
	return all
}

// queueFindings returns what blocks the whole queue of a task (T13).
func (t *Task) queueFindings(now Now, q Queue) (all []Finding) {
	all = t.pauseFindings(q)
	if q.full() {
		all = append(all, Finding{
			Code: FoundMaxInflight,
			Message: fmt.Sprintf("queue %q has %s, and its max_inflight is %d",
				t.Spec.Queue, countOf(int(q.Leased), "live lease"), q.Settings.MaxInflight),
			Remedy: "one of these leases ends, or max_inflight is raised",
		})
	}
	if q.usedUp(now.Serving) {
		all = append(all, Finding{
			Code:    FoundRateLimit,
			Until:   now.WallAt(q.Settings.Rate.Next(q.Bucket, now.Serving)),
			Message: fmt.Sprintf("the rate limit of queue %q, %s, holds grants back", t.Spec.Queue, q.Settings.Rate),
			Remedy:  "time passes, or rate_limit is raised",
		})
	}
	return all
}

// pauseFindings returns a finding if the queue of a task is paused.
func (t *Task) pauseFindings(q Queue) []Finding {
	if !q.paused() {
		return nil
	}
	return []Finding{{
		Code: FoundQueuePaused, Since: q.Settings.PausedAt,
		Message: fmt.Sprintf("queue %q is paused", t.Spec.Queue), Remedy: "the queue is resumed",
	}}
}

// finalFinding says how the round of a COMPLETED, FAILED or CANCELLED task ended.
func (t *Task) finalFinding(now Wall) Finding {
	f := Finding{Since: t.FinishedAt, Until: t.FinishedAt.Add(t.Spec.Retention)}
	switch t.Rest {
	case Completed:
		f.Code, f.Message = FoundCompleted, "it is completed by the report of attempt "+t.outcomeAttempt()
		if t.Outcome != nil && t.Outcome.Kind == KindAdopt {
			f.Message = "it is completed: an operator adopted the discarded result of attempt " + t.outcomeAttempt()
		}
		return f
	case Cancelled:
		f.Code, f.Message, f.Remedy = FoundCancelled, "it was cancelled", t.retryRemedy(now)
		if t.Cancel != nil && t.Cancel.Reason != "" {
			f.Message += ": " + t.Cancel.Reason
		}
	default:
		f.Code, f.Message, f.Remedy = FoundFailed, t.whyFailed(), t.retryRemedy(now)
	}
	return f
}

// retryRemedy says what a producer can do about a FAILED or CANCELLED task. It has the same
// conditions as the command Retry (T9).
func (t *Task) retryRemedy(now Wall) string {
	switch {
	case t.Spec.checkNotExpired(now) != nil:
		return "a new task is submitted; a retry of this one is refused, because a resource has expired"
	case t.Deadline != 0 && t.Deadline <= now:
		return "a retry with a new deadline opens a new round"
	}
	return "a retry opens a new round"
}

func (t *Task) outcomeAttempt() string {
	if t.Outcome == nil {
		return "?"
	}
	return fmt.Sprint(t.Outcome.Attempt)
}

func (t *Task) whyFailed() string {
	p := &t.Spec.Retry
	switch t.Reason {
	case HeartbeatTimeout:
		return fmt.Sprintf("%s, and that was loss %d of at most %d; it is quarantined",
			t.describeLastEnd(), t.Losses, p.MaxLosses)
	case StartTimeout:
		return fmt.Sprintf("no worker took it within its start_timeout of %v", t.Spec.StartTimeout)
	case DeadlineExceeded:
		if t.Deadline != 0 && t.FinishedAt >= t.Deadline { // else the last attempt reached attempt_timeout
			return "its deadline passed"
		}
	case CancelTimeout:
		return "it was cancelled, and its worker did not stop within cancel_grace"
	case ResourceGone:
		return t.finalDetail("a resource that it needs is gone")
	case DispatchUnavailable:
		if t.Unacked < MaxUnacked {
			return t.finalDetail("it could not be granted")
		}
		return fmt.Sprintf("%d grants in a row were not acknowledged", t.Unacked)
	}
	if t.Failures >= p.MaxAttempts {
		return fmt.Sprintf("%s, and that was failure %d of at most %d", t.describeLastEnd(), t.Failures, p.MaxAttempts)
	}
	return t.describeLastEnd() + ", which is not retried"
}

// finalDetail returns the detail of the event that ended the task, or otherwise if the history does
// not have that event any more.
func (t *Task) finalDetail(otherwise string) string {
	for _, e := range slices.Backward(t.History) {
		if e.Type == EventEnded {
			return e.Detail
		}
	}
	return otherwise
}

// timeLimitFindings returns the times at which a time limit will end the task or its attempt (T6).
// A final task has none.
func (t *Task) timeLimitFindings(now Now) (all []Finding) {
	add := func(until Wall, words string) {
		all = append(all, Finding{Code: FoundTimeLimit, Until: until, Message: words})
	}
	if t.Rest.Final() || t.Cancel != nil {
		return nil
	}
	if t.Deadline != 0 {
		add(t.Deadline, "the task is FAILED at its deadline")
	}
	if first := t.Spec.firstExpiry(); first != 0 && t.Lease == nil {
		add(first, "a resource that it needs expires; the task is FAILED if it still waits then")
	}
	switch d := t.Spec.StartTimeout; {
	case t.Lease != nil && t.Lease.AttemptBy != 0:
		add(now.WallAt(t.Lease.AttemptBy), fmt.Sprintf("attempt_timeout of %v ends the attempt", t.Spec.AttemptTimeout))
	case t.Lease == nil && t.Rest == Ready && d != 0:
		add(now.WallAt(t.ReadyAt.Add(d)),
			fmt.Sprintf("start_timeout of %v: the task is FAILED if no worker has taken it by then", d))
	}
	return all
}

// story says in words what the holder of a lease did, and how the lease ended.
func (e *Ended) story() string {
	s := fmt.Sprintf("attempt %d was offered to worker %q at %s",
		e.Attempt, e.Worker, e.GrantedAt.Time().Format(clockTime))
	add := func(at Wall, words string) {
		if at != 0 {
			s += ", " + words + " " + at.Time().Format(clockTime)
		}
	}
	if e.AckedAt == 0 && e.Cause != Reported {
		s += ", never acknowledged"
	}
	add(e.AckedAt, "acknowledged at")
	add(e.StartedAt, "started at")
	add(e.HeartbeatAt, "last heartbeat at")
	s += fmt.Sprintf("; it ended at %s, %s", e.At.Time().Format(clockTime), e.Cause)
	renewed := max(e.GrantedAt, e.StartedAt, e.HeartbeatAt)
	switch without := time.Duration(e.At - renewed).Round(time.Millisecond); e.Cause {
	case LeaseExpired: // not "silence": a report that was rejected renews nothing
		s += fmt.Sprintf(", not renewed for %v", without)
	case DispatchUnacked:
		s += fmt.Sprintf(", after %v of silence", without)
	}
	return s
}

// EndDetail returns the detail that the history has for the end of the last lease; it may be empty.
// A deadline ends the task and the lease with one event.
func (t *Task) EndDetail() string {
	for _, e := range slices.Backward(t.Events()) {
		withTask := e.Type == EventEnded && e.Reason == DeadlineExceeded &&
			t.Last.Cause == DeadlineExceeded && e.At == t.Last.At
		if e.Attempt == t.Last.Attempt && (e.Type == EventLeaseEnded || withTask) {
			return e.Detail
		}
	}
	return ""
}

// refusals returns the refused reports in the history of the task.
func refusals(t *Task) (all []Refusal) {
	ended := map[uint32]Wall{t.Last.Attempt: t.Last.At}
	for _, e := range t.Events() {
		switch e.Type {
		case EventLeaseEnded:
			ended[e.Attempt] = e.At
		case EventRefused:
			r := Refusal{Event: e}
			if end, known := ended[e.Attempt]; known && e.Reason.Verdict() == VerdictCancelled {
				r.LateBy = time.Duration(max(e.At-end, 0))
			}
			all = append(all, r)
		}
	}
	return all
}

// countOf returns a number and a noun, such as "1 byte" or "2 bytes".
func countOf(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// ReadySince returns when a READY task became READY, by its history; 0 if the history does not have
// that event any more.
func (t *Task) ReadySince() (at Wall) {
	for _, e := range slices.Backward(t.Events()) {
		if e.State != Ready {
			return at
		}
		at = e.At
	}
	if t.Dropped > 0 {
		return 0
	}
	return at
}

func ago(now Now, at Wall) time.Duration {
	return time.Duration(max(now.Wall-at, 0)).Round(time.Millisecond)
}
