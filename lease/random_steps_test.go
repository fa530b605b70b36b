package lease_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// mood is how often what happens in a history, in shares of their sum. The rest, of which there is little, is the same for all.
type mood struct{ submit, grant, say, passTime int }

var moods = []mood{
	{submit: 4, grant: 20, say: 40, passTime: 20},
	{submit: 4, grant: 30, say: 60, passTime: 2},  // little time passes: many attempts, full histories
	{submit: 4, grant: 30, say: 2, passTime: 30},  // workers are silent
	{submit: 20, grant: 20, say: 20, passTime: 5}, // many tasks
}

// step does one random thing and compares.
func (s *simulation) step() error {
	var err error
	m := s.mood
	switch n := s.rng.IntN(m.submit + m.grant + m.say + m.passTime + 14); {
	case n < m.submit:
		err = s.submit()
	case n < m.submit+m.grant:
		err = s.grant()
	case n < m.submit+m.grant+m.say:
		err = s.say()
	case n < m.submit+m.grant+m.say+m.passTime:
		s.passTime()
	default:
		err = s.rareStep()
	}
	if err != nil {
		return err
	}
	return s.compare()
}

func (s *simulation) rareStep() error {
	switch n := s.rng.IntN(100); {
	case n < 30:
		return s.expire()
	case n < 45:
		return s.cancel()
	case n < 70:
		return s.retry()
	case n < 75:
		return s.delete()
	case n < 85:
		return s.requeue()
	case n < 95:
		return s.stall()
	case n < 98:
		s.jump()
		return nil
	default:
		return s.backupOrRestore()
	}
}

func (s *simulation) submit() error {
	space := uint32(1 + s.rng.IntN(2))
	c := lease.Submit{Space: space, Tenant: [...]string{"", "acme", "other"}[space]}
	for range pick(s, 1, 1, 1, 3) {
		c.Specs = append(c.Specs, s.spec())
		c.Digests = append(c.Digests, lease.Digest{byte(s.rng.IntN(2))})
	}
	out, err := s.do(c)
	if err != nil {
		return err
	}
	refusal, first := s.model.refusalOf(c)
	if got := refusalIn(out.Err); got != refusal || refusal != "" && out.ErrSpec != first {
		return fmt.Errorf("submit is refused: %q for spec %d; the model says %q for %d", got, out.ErrSpec, refusal, first)
	}
	if refusal != "" {
		return nil
	}
	for i, result := range out.Submitted {
		if err := s.submitted(c, i, result); err != nil {
			return err
		}
	}
	return nil
}

// submitted compares the fate of one spec and tells the model the id.
func (s *simulation) submitted(c lease.Submit, i int, result lease.Submitted) error {
	key := specKey{c.Space, c.Specs[i].IdempotencyKey}
	existing := s.model.existing(key)
	if result.Created != (existing == nil) {
		return fmt.Errorf("T1: spec %d was created: %v", i, result.Created)
	}
	if existing != nil {
		if existing.id != result.Task.ID.String() {
			return fmt.Errorf("T1: spec %d is %v, not %s", i, result.Task.ID, existing.id)
		}
		return nil
	}
	s.tasks = keep(s.tasks, result.Task.ID, 40)
	s.model.create(result.Task.ID, c.Tenant, c.Specs[i])
	if key.key != "" {
		s.model.keys[key] = modelKey{result.Task.ID.String(), c.Digests[i]}
	}
	return nil
}

func (m *model) existing(key specKey) *modelTask {
	k, known := m.keys[key]
	if t := m.tasks[k.task]; known && key.key != "" && t != nil && !t.gone {
		return t
	}
	return nil
}

// refusalOf tells which spec of a batch is refused first, and why (T1, T6).
func (m *model) refusalOf(c lease.Submit) (refusal string, spec int) {
	batch := map[string]lease.Digest{}
	for i, spec := range c.Specs {
		key := specKey{c.Space, spec.IdempotencyKey}
		digest, inBatch := batch[key.key]
		existing := m.existing(key)
		switch {
		case inBatch && digest != c.Digests[i]:
			return refusedExists, i
		case inBatch:
			continue
		case existing != nil && m.keys[key].digest != c.Digests[i]:
			return refusedExists, i
		case existing != nil:
			continue
		case spec.Deadline != 0 && spec.Deadline <= m.now.Wall:
			return refusedField, i
		}
		if key.key != "" {
			batch[key.key] = c.Digests[i]
		}
	}
	return "", 0
}

func (s *simulation) grant() error {
	id := s.anyTask()
	c := lease.Grant{Task: id, Worker: "w", Session: pick(s, "", "s1", "s2", "s3", "s4")}
	out, err := s.do(c)
	if err != nil {
		return err
	}
	l := s.model.grant(id.String(), c.Session)
	t := s.store.Task(id)
	if granted := len(out.Changes) > 0 && t != nil && t.Lease != nil && t.Lease.Attempt != out.Changes[0].Old.Attempt(); granted != (l != nil) {
		return fmt.Errorf("granted: %v; the model says %v", granted, l != nil)
	}
	if l == nil {
		return nil
	}
	epoch := s.model.epoch
	l.id = s.rules.Authority.Issue(t.Tenant, lease.Ticket{Epoch: epoch, Task: id, Attempt: l.attempt, Nonce: t.Lease.Nonce})
	s.model.issued[l.id] = ticket{t.Tenant, id.String(), l.attempt, epoch}
	s.claims = keep(s.claims, claim{t.Tenant, id.String(), l.id, l.attempt}, 40)
	return nil
}

func (s *simulation) say() error {
	c, ok := s.somethingToSay()
	if !ok {
		return nil
	}
	s.said = keep(s.said, c, 40)
	out, err := s.do(c)
	if err != nil {
		return err
	}
	if err := s.watch.checkAnswer(c.Report, out.Answer); err != nil {
		return err
	}
	got, want := out.Answer, s.model.say(c)
	got.Detail = ""
	if got != want {
		return fmt.Errorf("the rules answer %+v\nthe model answers %+v", got, want)
	}
	return checkStored(c.Report, out)
}

// checkStored wants what a report carries to be stored if it was committed, and only then.
func checkStored(r *lease.Report, out lease.Step) error {
	committed := out.Answer.Verdict == lease.VerdictCommitted && !out.Answer.Replayed
	var change lease.Change
	if len(out.Changes) > 0 {
		change = out.Changes[0]
	}
	switch {
	case (change.Result != nil) != (committed && r.Result != nil):
		return fmt.Errorf("V12: committed: %v, result stored: %v", committed, change.Result != nil)
	case committed && r.Failure != nil && change.Failure != r.Failure:
		return fmt.Errorf("V12: a committed failure is not stored")
	case (change.Checkpoint != nil) != (committed && r.Checkpoint != nil):
		return fmt.Errorf("T10: committed: %v, checkpoint stored: %v", committed, change.Checkpoint != nil)
	}
	return nil
}

// passTime moves both clocks, often just to, or just before, or just past the next timer of some task.
func (s *simulation) passTime() {
	d := pick(s, time.Millisecond, 100*time.Millisecond, time.Second, 10*time.Second)
	if t := s.model.tasks[s.anyTask().String()]; t != nil && !t.gone && s.chance(60) {
		serving, wall := s.model.due(t)
		d = serving.Sub(s.model.now.Serving)
		if serving == 0 || wall != 0 && s.chance(50) {
			d = time.Duration(wall - s.model.now.Wall)
		}
		d += time.Duration(s.rng.IntN(3) - 1)
	}
	if s.chance(1) {
		d = pick(s, time.Hour, 30*time.Second)
	}
	d = max(d, 0)
	s.model.now = lease.Now{Serving: s.model.now.Serving.Add(d), Wall: s.model.now.Wall.Add(d)}
	s.store.expireLedgers(s.model.now.Serving)
	s.model.forget()
}

// jump moves the wall clock alone.
func (s *simulation) jump() {
	s.model.now.Wall = s.model.now.Wall.Add(pick(s, -time.Minute, -time.Second, time.Second, time.Minute))
}

func (s *simulation) expire() error {
	id := s.anyTask()
	_, err := s.do(lease.Expire{Task: id})
	if t := s.model.tasks[id.String()]; t != nil && !t.gone {
		s.model.settle(t)
	}
	return err
}

func (s *simulation) requeue() error {
	id := s.anyTask()
	c := lease.Requeue{Task: id, Cause: pick(s, lease.Revoked, lease.CoordinatorRecovered)}
	if t := s.store.Task(id); t != nil {
		c.Attempt = t.Attempt() - uint32(s.rng.IntN(5)/4)
	}
	_, err := s.do(c)
	s.model.requeue(id.String(), c.Attempt, c.Cause)
	return err
}

func (s *simulation) stall() error {
	id := s.anyTask()
	c := lease.Stall{Task: id, By: pick(s, 0, 100*time.Millisecond, time.Second, 10*time.Second)}
	_, err := s.do(c)
	s.model.stall(id.String(), c.By)
	return err
}

func (s *simulation) cancel() error {
	id := s.anyTask()
	c := lease.Cancel{Tenant: s.tenantOf(id), Task: id, Reason: pick(s, "", "mind changed")}
	return s.ask(c, func() string { return s.model.cancel(c.Tenant, id.String(), c.Reason) })
}

func (s *simulation) retry() error {
	id := s.anyTask()
	c := lease.Retry{Tenant: s.tenantOf(id), Task: id, Deadline: pick(s, 0, 0, s.model.now.Wall, s.model.now.Wall+1, s.model.now.Wall.Add(time.Minute))}
	return s.ask(c, func() string { return s.model.retry(c.Tenant, id.String(), c.Deadline) })
}

func (s *simulation) delete() error {
	id := s.anyTask()
	c := lease.Delete{Tenant: s.tenantOf(id), Task: id, Force: s.chance(50)}
	return s.ask(c, func() string { return s.model.delete(c.Tenant, id.String(), c.Force) })
}

// ask compares the refusals of what a producer asks.
func (s *simulation) ask(c lease.Command, inModel func() string) error {
	out, err := s.do(c)
	if err != nil {
		return err
	}
	if got, want := refusalIn(out.Err), inModel(); got != want {
		return fmt.Errorf("refused: %q; the model says %q", got, want)
	}
	return nil
}

func refusalIn(err error) string {
	var state *lease.StateError
	var field *lease.FieldError
	var exists *lease.ExistsError
	switch {
	case err == nil:
		return ""
	case errors.Is(err, lease.ErrNotFound):
		return refusedNotFound
	case errors.As(err, &state):
		return refusedState
	case errors.As(err, &field):
		return refusedField
	case errors.As(err, &exists):
		return refusedExists
	}
	return err.Error()
}

// backupOrRestore keeps a copy of the world, or goes back to the last one in a new epoch and ends its leases (A11).
func (s *simulation) backupOrRestore() error {
	if s.saved == nil || s.chance(80) {
		s.saved = &saved{s.store.backup(), s.model.backup()}
		return nil
	}
	now, epoch := s.model.now, s.model.epoch+1
	s.store, s.model = s.saved.store.backup(), s.saved.model.backup()
	s.model.now, s.model.epoch = now, epoch
	s.rules.Authority = lease.NewAuthority(epoch, []byte("secret"))
	s.watch.restore(s.store.tasks)
	s.store.expireLedgers(now.Serving)
	s.model.forget()
	for _, id := range s.tasks {
		if t := s.store.Task(id); t != nil && t.Lease != nil {
			c := lease.Requeue{Task: id, Attempt: t.Lease.Attempt, Cause: lease.CoordinatorRecovered}
			if _, err := s.do(c); err != nil {
				return err
			}
			s.model.requeue(id.String(), c.Attempt, c.Cause)
		}
	}
	return nil
}
