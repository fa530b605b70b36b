package lease_test

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// What the coordinator does: it receives reports, grants, expires, commits, and sends answers and
// grants.

// deliverUp delivers a request to the coordinator, half of the time together with others about the
// same task.
func (w *world) deliverUp() error {
	r, ok := receive(w, &w.net.up)
	if !ok {
		return nil
	}
	w.received = appendBounded(w.received, r.judge, 40)
	if w.faultsOver || w.chance(50) {
		return w.judge([]request{r})
	}
	return w.judge(w.takeSameTask(r))
}

// takeSameTask takes some of the other requests about the same task out of the network, so that one
// step decides them together with r.
func (w *world) takeSameTask(r request) []request {
	all := []request{r}
	w.net.up = slices.DeleteFunc(w.net.up, func(other request) bool {
		joins := other.judge.Tenant == r.judge.Tenant && other.judge.Reports[0].TaskID == r.judge.Reports[0].TaskID &&
			w.chance(50)
		if joins {
			all = append(all, other)
		}
		return joins
	})
	return all
}

func (w *world) deliverDown() error {
	t, ok := receive(w, &w.net.down)
	if ok && t.to != nil {
		w.deliverNotice(t.to, t)
	}
	return nil
}

// judge gives the reports about one task to the rules in one step and to the model one after the
// other, and compares the answers.
func (w *world) judge(all []request) error {
	c := lease.Judge{Tenant: all[0].judge.Tenant}
	for _, r := range all {
		c.Reports = append(c.Reports, r.judge.Reports...)
	}
	out, err := w.do(c)
	if err != nil {
		return err
	}
	for i, r := range c.Reports {
		got, want := &out.Answers[i], w.model.judge(c.Tenant, r)
		got.Detail = ""
		if live := got.Holding != (lease.Holding{}); live != (got.ExpiresAt != 0) ||
			live && w.host.rules.Authority.Issue(got.Holding.Tenant, got.Holding.Ticket) != r.LeaseID {
			return fmt.Errorf("the rules answer %+v; its Holding must describe lease %s if ExpiresAt is set, and be zero if not", *got, r.LeaseID)
		}
		got.Holding = lease.Holding{}
		if *got != want {
			return fmt.Errorf("the rules answer %+v\nthe model answers %+v", *got, want)
		}
		w.addNotice(notice{to: all[i].from, report: r, answer: want}, want.ExpiresAt)
	}
	if err := checkStored(c.Reports, out); err != nil {
		return err
	}
	for i, r := range c.Reports {
		if err := w.countOutcome(r.Kind.String(), answerName(out.Answers[i])); err != nil {
			return err
		}
	}
	return nil
}

// checkStored checks that a step stores what the committed reports carry, and nothing else: the
// newest result, failure and checkpoint. A result may be kept (V15) only if its report came too
// late.
func checkStored(reports []*lease.Report, out lease.Step) error {
	var change, want lease.Change
	if len(out.Changes) > 0 {
		change = out.Changes[0]
	}
	late := map[*lease.Result]bool{}
	for i, r := range reports {
		a := &out.Answers[i]
		late[r.Result] = a.Verdict == lease.VerdictCancelled
		if a.Verdict != lease.VerdictCommitted || a.Replayed {
			continue
		}
		want.Result = cmp.Or(r.Result, want.Result)
		want.Failure = cmp.Or(r.Failure, want.Failure)
		if r.Checkpoint != nil {
			want.Checkpoint = r.Checkpoint
		}
	}
	switch {
	case (change.Result != nil) != (want.Result != nil):
		return fmt.Errorf("V12: a result was committed: %v; a result is stored: %v; want the same",
			want.Result != nil, change.Result != nil)
	case want.Failure != nil && change.Failure != want.Failure:
		return fmt.Errorf("V12: a failure was committed, but it is not the one that is stored")
	case !bytes.Equal(change.Checkpoint, want.Checkpoint):
		return fmt.Errorf("T10: checkpoint %q is stored, want %q", change.Checkpoint, want.Checkpoint)
	}
	for _, k := range change.Kept {
		if !late[k.Result] {
			return fmt.Errorf("V15: a result is kept that no report brought too late")
		}
	}
	return nil
}

// grant grants a random task, mostly one that is READY, to a random worker.
func (w *world) grant() error {
	if err := w.unparkNext(); err != nil {
		return err
	}
	k := w.workers[w.rng.IntN(len(w.workers))]
	id := w.anyTask()
	for range 4 {
		if t := w.host.Task(id); w.chance(90) && (t == nil || t.State() != lease.Ready || t.Parked) {
			id = w.anyTask()
		}
	}
	return w.grantTo(k, id)
}

func (w *world) grantTo(k *worker, id lease.TaskID) error {
	out, err := w.do(lease.Grant{Task: id, Worker: k.name, Session: k.session})
	if err != nil {
		return err
	}
	l, outcome := w.model.grant(id.String(), k.session, out.Blocked)
	t := w.host.Task(id)
	if granted := len(out.Changes) > 0 && t != nil && t.Lease != nil && t.Lease.Attempt != out.Changes[0].Old.Attempt(); granted != (l != nil) {
		return fmt.Errorf("the rules granted the task: %v (block %d); the model says %q", granted, out.Blocked, outcome)
	}
	if l == nil {
		return w.countOutcome("grant", outcome)
	}
	if err := w.checkLimits(t); err != nil {
		return err
	}
	w.host.countGrant(t, w.model.now.Serving)
	c := &claim{
		tenant: t.Tenant, task: id.String(), attempt: l.attempt, id: id, epoch: w.model.epoch, nonce: t.Lease.Nonce,
		ttl: t.Spec.HeartbeatTimeout,
	}
	c.lease = w.host.rules.Authority.Issue(t.Tenant, lease.Ticket{Epoch: c.epoch, Task: id, Attempt: c.attempt, Nonce: c.nonce})
	l.id = c.lease
	w.model.issued[l.id] = ticket{t.Tenant, c.task, c.attempt, c.epoch}
	w.addNotice(notice{to: k, claim: c}, t.ExpiresAt(w.model.now))
	return w.countOutcome("grant", outcome)
}

// checkLimits checks, right after a grant, that the live leases are within the limits of the
// concurrency key (T11) and of the queue (T13).
func (w *world) checkLimits(t *lease.Task) error {
	if t.Spec.ConcurrencyKey != "" {
		if h := w.host.Holders(t.ID.Space, t.Spec.ConcurrencyKey); h.Count > h.Limit {
			return fmt.Errorf("T11: %d live leases share a concurrency key whose limit is %d", h.Count, h.Limit)
		}
	}
	q := w.host.Queue(t.ID.Space, t.Spec.Queue)
	if s := q.Settings; s != nil && (s.Paused || s.MaxInflight != 0 && q.Leased > uint64(s.MaxInflight)) {
		return fmt.Errorf("T13: after a grant the queue has %d live leases, which its settings do not allow: %+v", q.Leased, *s)
	}
	return nil
}

// unparkNext unparks the first parked task of each line of every marked key.
func (w *world) unparkNext() error {
	for len(w.host.keysToCheck) > 0 {
		var key specKey
		// finds the least key, because the order of a map would not depend on the seed alone
		for k := range w.host.keysToCheck {
			if key == (specKey{}) || k.space < key.space || k.space == key.space && k.key < key.key {
				key = k
			}
		}
		delete(w.host.keysToCheck, key)
		for _, id := range w.host.firstParked(key) {
			if err := w.unpark(id); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *world) unpark(id lease.TaskID) error {
	return w.runCommand("unpark", lease.Unpark{Task: id}, func() string { return w.model.unpark(id.String()) })
}

// loseResource tries a few tasks, to find one that is READY and pinned.
func (w *world) loseResource() error {
	id := w.anyTask()
	for range 5 {
		if t := w.host.Task(id); t == nil || t.State() != lease.Ready || t.Spec.Pinned() == "" {
			id = w.anyTask()
		}
	}
	c := lease.LoseResource{Task: id, Worker: pick(w, "w0", "w1"), After: lease.DefaultResourceWait}
	return w.runCommand("loseresource", c, func() string { return w.model.loseResource(id.String(), c.Worker) })
}

func (w *world) requeue(id lease.TaskID, attempt uint32, cause lease.Reason) error {
	c := lease.Requeue{Task: id, Attempt: attempt, Cause: cause}
	return w.runCommand("requeue", c, func() string { return w.model.requeue(id.String(), attempt, cause) })
}

func (w *world) stall(id lease.TaskID, by time.Duration) error {
	c := lease.Stall{Task: id, By: by}
	return w.runCommand("stall", c, func() string { return w.model.stall(id.String(), lease.Instant(by)) })
}

func (w *world) expire(id lease.TaskID) error {
	out, err := w.do(lease.Expire{Task: id})
	if err != nil {
		return err
	}
	if t := w.model.tasks[id.String()]; t != nil && !t.gone {
		w.model.applyDueTimers(t)
	}
	return w.countOutcome("expire", expired(out.Changes))
}

// expired returns the outcome of an Expire in the words of the table outcomes.
func expired(changes []lease.Change) string {
	if len(changes) == 0 {
		return noEffect
	}
	switch c := &changes[0]; {
	case c.New == nil:
		return "removed"
	case c.Lost != nil:
		return c.LostCause.String()
	case c.New.Rest.Final():
		return c.New.Reason.String()
	default:
		return c.New.State().String()
	}
}

// addNotice adds a message that is sent to a worker when the batch is durable. expires is the end
// of the lease that the message names; 0 if it names none.
func (w *world) addNotice(t notice, expires lease.Instant) {
	t.at, t.starts = w.book.uptime, w.book.starts
	if expires != 0 {
		t.until = t.at + expires - w.model.now.Serving
	}
	w.host.unsent = append(w.host.unsent, t)
}

// commit makes the batch durable, and then sends the workers what it decided.
func (w *world) commit() error {
	for _, t := range w.durable() {
		if err := w.enterInBook(&t); err != nil {
			return err
		}
		if t.claim != nil {
			w.claims = appendBounded(w.claims, t.claim, 40)
		}
		send(w, &w.net.down, t)
	}
	return nil
}

// durable makes the batch durable and returns what workers may be told. A crash may come before
// they are told.
func (w *world) durable() []notice {
	w.model.committed()
	w.watch.committed()
	return w.host.commit(w.model.now.Serving)
}

// enterInBook enters a message in the book: it is durable now, and the worker is about to be told.
func (w *world) enterInBook(t *notice) error {
	if t.claim != nil {
		return w.book.grantTold(t)
	}
	if err := w.book.reportDurable(t); err != nil {
		return err
	}
	return w.book.answerTold(t)
}
