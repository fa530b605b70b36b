package engine

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// Submit makes tasks of one space, all or none. A refusal is a *lease.FieldError or a
// *lease.ExistsError, and the int is then the index of the refused spec; or it is ErrTaskLimit,
// ErrDiskFull or ErrStoreGone.
func (e *Engine) Submit(
	ctx context.Context, name Space, specs []*lease.Spec, digests []lease.Digest,
) ([]lease.Submitted, int, error) {
	out, err := askAs(ctx, e, name.Tenant, op{submits: len(specs)},
		func() (lease.Step, error) { return e.submit(name, specs, digests), nil })
	if err != nil {
		return nil, 0, err
	}
	return out.Submitted, out.ErrSpec, out.Err
}

func (e *Engine) submit(name Space, specs []*lease.Spec, digests []lease.Digest) lease.Step {
	s := e.spaces.obtain(name)
	out := e.submitTo(s, specs, digests)
	if out.Err != nil {
		e.spaces.forgetUnused(s)
	}
	return out
}

// submitTo makes tasks in a space. The space gets a number only if that succeeds: there is a
// limited number of them, and a refusal must not use one up.
func (e *Engine) submitTo(s *space, specs []*lease.Spec, digests []lease.Digest) lease.Step {
	e.expireByKey(s.number, specs)
	switch { // a repeat that makes no task finds the first one in any case (T1)
	case e.cfg.StoreGone() && e.set.newTasks(s.number, specs) > 0:
		return lease.Step{Err: ErrStoreGone}
	case e.cfg.DiskFull() && e.set.newTasks(s.number, specs) > 0:
		return lease.Step{Err: ErrDiskFull}
	}
	if err := e.submitQuota(s, specs); err != nil {
		return lease.Step{Err: err}
	}
	isNew := s.number == 0
	if err := e.spaces.assignNumber(s); err != nil {
		return lease.Step{Err: err}
	}
	out := e.step(lease.Submit{
		Space: s.number, Tenant: s.name.Tenant, Workspace: s.name.Workspace,
		Specs: specs, Digests: digests,
	})
	switch {
	case !isNew:
	case out.Err != nil:
		e.spaces.withdrawNumber(s)
		e.batch().leaveSpace(s) // the submit may have taken sequences before it was refused
	default:
		e.spaces.announce(s)
	}
	return out
}

// SubmitEach makes tasks that are independent of each other. It does not wait: the committer calls
// after once, either with the results, in order, or with an error, which means that it is unknown
// which tasks were made. after must not block. If SubmitEach itself returns an error, nothing was
// made and after is not called.
func (e *Engine) SubmitEach(tenant string, all []Submission, after func([]SubmitResult, error)) error {
	results := make([]SubmitResult, len(all))
	return e.inbox.put(tenant, op{
		submits: len(all),
		run: func() {
			for i := range all {
				s := &all[i]
				out := e.submit(s.Space, []*lease.Spec{s.Spec}, []lease.Digest{s.Digest})
				if results[i].Err = out.Err; out.Err == nil {
					results[i].Submitted = out.Submitted[0]
				}
			}
		},
		after: func(err error) { after(results, err) },
	})
}

// expireByKey applies the due timers of existing tasks that have an idempotency key of the submit
// (A3). A key is free again once the retention of its task has passed.
func (e *Engine) expireByKey(space uint32, specs []*lease.Spec) {
	for _, s := range specs {
		if s.IdempotencyKey == "" {
			continue
		}
		if id, _, ok := e.set.key(space, s.IdempotencyKey); ok {
			e.step(lease.Expire{Task: id})
		}
	}
}

// Judge judges reports of one tenant and returns the answers in the same order. If all are
// COMMITTED, watchers can read the news when Judge returns: what a heartbeat tells beside its
// renewal needs no call, and so no turn, of its own.
func (e *Engine) Judge(
	ctx context.Context, tenant string, reports []*lease.Report, news ...Feed,
) ([]lease.Answer, error) {
	resolved := e.ResolveFeeds(tenant, news)
	return askAs(ctx, e, tenant, op{settles: true}, func() ([]lease.Answer, error) {
		answers := e.judge(tenant, reports)
		if !slices.ContainsFunc(answers, func(a lease.Answer) bool { return a.Verdict != lease.VerdictCommitted }) {
			e.addFeeds(resolved)
		}
		return answers, nil
	})
}

// Post is Judge for a stream: it does not wait. The committer calls after, either with the answers
// or with an error. An error means that there are no verdicts. If Post itself returns an error,
// there are no verdicts either, and after is not called. News of a report is passed to watchers if
// the report is COMMITTED, after the news that came before this call, and before that of later
// calls.
func (e *Engine) Post(
	tenant string, reports []*lease.Report, after func([]lease.Answer, error), news ...ReportNews,
) error {
	var answers []lease.Answer
	resolved := e.resolveReportNews(tenant, news)
	return e.inbox.put(tenant, op{
		settles: true,
		run: func() {
			answers = e.judge(tenant, reports)
			for i := range resolved {
				if answers[resolved[i].report].Verdict == lease.VerdictCommitted {
					e.addFeed(resolved[i].ResolvedFeed)
				}
			}
		},
		after: func(err error) { after(answers, err) },
	})
}

// judge passes consecutive reports on the same task to one step, because all the reports on a short
// task often come in one frame.
func (e *Engine) judge(tenant string, reports []*lease.Report) []lease.Answer {
	answers := make([]lease.Answer, len(reports))
	for i, n := 0, 0; i < len(reports); i += n {
		n = ofOneTask(reports[i:])
		for _, r := range reports[i : i+n] {
			if e.sessions.find(r.Session) == nil {
				r.Session = "" // a displaced stream may still report, but the lease must not be bound to its session
			}
		}
		e.memory.Answers = answers[i : i+n] // the step writes its answers directly into this part of the slice
		e.step(lease.Judge{Tenant: tenant, Reports: reports[i : i+n]})
	}
	e.memory.Answers = nil
	for i, r := range reports {
		e.cfg.Events.Judged(r.Kind, &answers[i])
	}
	return answers
}

// ofOneTask returns how many of the reports, from the first on, name the same task.
func ofOneTask(reports []*lease.Report) int {
	n := 1
	for n < len(reports) && reports[n].TaskID == reports[0].TaskID {
		n++
	}
	return n
}

// Cancel asks a task to end and returns its new version. Errors: lease.ErrNotFound,
// *lease.StateError.
func (e *Engine) Cancel(ctx context.Context, c lease.Cancel) (*lease.Task, error) {
	return e.command(ctx, c.Tenant, c.Task, c)
}

// Retry opens a new round of a task and returns its new version. Errors: lease.ErrNotFound,
// *lease.StateError, *lease.FieldError, ErrTaskLimit.
func (e *Engine) Retry(ctx context.Context, c lease.Retry) (*lease.Task, error) {
	return e.command(ctx, c.Tenant, c.Task, c)
}

// Delete removes a task. Errors: lease.ErrNotFound, *lease.StateError.
func (e *Engine) Delete(ctx context.Context, c lease.Delete) error {
	_, err := e.command(ctx, c.Tenant, c.Task, c)
	return err
}

// Adopt makes a discarded result the outcome of its task (V15). Errors: lease.ErrNotFound,
// *lease.StateError.
func (e *Engine) Adopt(ctx context.Context, c lease.Adopt) (*lease.Task, error) {
	return e.command(ctx, c.Tenant, c.Task, c)
}

func (e *Engine) command(ctx context.Context, tenant string, id lease.TaskID, c lease.Command) (*lease.Task, error) {
	return alter(ctx, e, tenant, func() (t *lease.Task, changed bool, err error) {
		if e.spaces.of(id) == nil { // no such workspace, so no such task
			return nil, false, lease.ErrNotFound
		}
		if err := e.retryQuota(c); err != nil {
			return nil, false, err
		}
		out, changed := e.stepChanging(c)
		if out.Err != nil {
			return nil, false, out.Err
		}
		return e.set.task(id), changed, nil
	})
}

// Now reads both clocks.
func (e *Engine) Now() lease.Now { return e.clock.now() }

// DeriveKey derives a secret key for a purpose from the secret key of the store; see
// lease.Authority.Derive.
func (e *Engine) DeriveKey(purpose string) []byte { return e.rules.Authority.Derive(purpose) }

// LeaseID returns the id of the lease that h identifies, which need not be live any more.
func (e *Engine) LeaseID(h lease.Holding) string { return e.rules.Authority.Issue(h.Tenant, h.Ticket) }

// Invalidated is how many leases of an older epoch Open has ended.
func (e *Engine) Invalidated() int { return e.invalidated }

// Epoch of the store.
func (e *Engine) Epoch() uint32 { return e.rules.Authority.Epoch }

// SpaceNumber finds the number of a space in the store; ok is false before its first task.
func (e *Engine) SpaceNumber(s Space) (uint32, bool) { return e.dir.lookup(s) }

// TaskByKey returns the task of a tenant's space that has an idempotency key; nil if there is none.
func (e *Engine) TaskByKey(ctx context.Context, tenant string, space uint32, key string) (*lease.Task, error) {
	return ask(ctx, e, tenant, func() (*lease.Task, error) {
		if id, _, ok := e.set.key(space, key); ok {
			return e.set.task(id), nil
		}
		return nil, nil
	})
}

// Sequences returns which sequences the tasks and events of a space may have. The error is
// lease.ErrNotFound if the tenant has no such space.
func (e *Engine) Sequences(ctx context.Context, tenant string, space uint32) (Sequences, error) {
	return ask(ctx, e, tenant, func() (q Sequences, err error) {
		s := e.spaces.numbered(space)
		if s == nil || s.name.Tenant != tenant {
			return q, lease.ErrNotFound
		}
		return Sequences{last: s.nextSeq - 1, lost: s.lost}, nil
	})
}

// CommitPending returns how long the commit under way has lasted so far; 0 if there is none. It
// does not wait for the loop.
func (e *Engine) CommitPending() time.Duration { return e.pipeline.pending() }

// Counts returns how many tasks there are in all queues. Its cost does not depend on the number of
// queues and tasks, so metrics may call it often.
func (e *Engine) Counts(ctx context.Context) (Counts, error) {
	return ask(ctx, e, "", func() (Counts, error) {
		return e.spaces.counts(), nil
	})
}

// LeasesBySession counts the live leases of each session of a tenant.
func (e *Engine) LeasesBySession(ctx context.Context, tenant string) (map[string]int, error) {
	return ask(ctx, e, tenant, func() (map[string]int, error) {
		return e.sessions.leasesOf(tenant), nil
	})
}

// LeasesOf lists the tasks that one session of a tenant holds, oldest first.
func (e *Engine) LeasesOf(ctx context.Context, tenant, session string) ([]lease.TaskID, error) {
	return ask(ctx, e, tenant, func() ([]lease.TaskID, error) {
		t := e.sessions.find(session)
		if t == nil || t.wants.Space.Tenant != tenant {
			return nil, nil
		}
		return slices.SortedFunc(maps.Keys(t.leases), lease.TaskID.Compare), nil
	})
}
