package lease_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

var (
	seed  = flag.Uint64("lease.seed", 0, "seed of the one random history to run; 0: many, of random seeds")
	steps = flag.Int("lease.steps", stepsPerHistory, "steps of a random history")
)

// stepsPerHistory is how many steps each of the histories has; their number is less under the race detector, which finds nothing in rules
// without a goroutine and takes six times as long.
const stepsPerHistory = 2000

// TestRandomHistories runs random commands through the rules and through the model, and wants the same answers and the same tasks after every
// step, and the invariants A1-A5 in between. A failure prints how to repeat it.
func TestRandomHistories(t *testing.T) {
	t.Attr("rules", "A1 A2 A3 A4 A5 T2 T10")
	if *seed != 0 {
		runHistory(t, *seed, *steps)
		return
	}
	first := rand.Uint64N(1<<32) + 1
	t.Logf("seeds %d to %d", first, first+histories-1)
	for i := range uint64(histories) {
		runHistory(t, first+i, *steps)
	}
}

func runHistory(t *testing.T, seed uint64, steps int) {
	s := newSimulation(seed)
	for i := range steps {
		if err := s.step(); err != nil {
			t.Fatalf("step %d: %v\nafter:\n%s\nrepeat: go test ./lease -run RandomHistories -lease.seed=%d -lease.steps=%d",
				i, err, s.journal(), seed, i+1)
		}
	}
}

// simulation is a world in which tasks are submitted, granted and reported by chance, more often rightly than wrongly.
type simulation struct {
	rng   *rand.Rand
	rules *lease.Rules
	store *memory
	model *model
	watch *watcher
	mood  mood

	tasks  []lease.TaskID // submitted lately, deleted ones too
	claims []claim        // leases handed out lately, ended ones too
	said   []lease.Say    // lately
	saved  *saved
	done   []entry // the newest commands, for the journal

	touched []lease.TaskID // that the last step was about or changed
}

// claim is what a worker knows of its lease.
type claim struct {
	tenant, task, lease string
	attempt             uint32
}

type saved struct {
	store *memory
	model *model
}

type entry struct {
	now     lease.Now
	command lease.Command
}

func newSimulation(seed uint64) *simulation {
	s := &simulation{rng: rand.New(rand.NewPCG(seed, 0)), store: newMemory(), watch: newWatcher()}
	s.mood = moods[s.rng.IntN(len(moods))]
	limits := lease.DefaultLimits()
	limits.Output = 4
	now := lease.Now{Serving: lease.Instant(time.Second), Wall: lease.WallOf(firstDay)}
	s.model = newModel(now, 1, limits.Output)
	s.rules = &lease.Rules{
		Authority: lease.NewAuthority(1, []byte("secret")), Limits: limits, AckWithin: lease.DefaultAckWithin,
		Entropy: func() uint64 { return s.model.entropy },
	}
	return s
}

// keep appends to a list of recent things and forgets the oldest.
func keep[T any](list []T, x T, size int) []T {
	if len(list) == size {
		list = append(list[:0], list[1:]...)
	}
	return append(list, x)
}

func (s *simulation) journal() string {
	var b strings.Builder
	for _, e := range s.done {
		fmt.Fprintf(&b, "  %v  %T%+v", time.Duration(e.now.Serving), e.command, e.command)
		if say, ok := e.command.(lease.Say); ok {
			fmt.Fprintf(&b, " = %+v", *say.Report)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// do runs one command through the rules, checks what must always hold, and stores the result.
func (s *simulation) do(c lease.Command) (lease.Step, error) {
	s.done = keep(s.done, entry{s.model.now, c}, 20)
	s.model.entropy = s.rng.Uint64()
	out := s.rules.Step(s.model.now, s.store, c)
	s.touched = append(s.touched, subjectOf(c))
	for i := range out.Changes {
		s.touched = append(s.touched, taskOf(&out.Changes[i]))
		if err := s.watch.check(&out.Changes[i], s.model.epoch); err != nil {
			return out, err
		}
	}
	if s.chance(5) {
		if err := s.fork(c, out); err != nil {
			return out, err
		}
	}
	s.store.apply(out.Changes)
	return out, nil
}

// fork steps the same command once more on the same versions: it must not write to what the first step made of them.
func (s *simulation) fork(c lease.Command, first lease.Step) error {
	var versions []frozen
	for _, change := range first.Changes {
		if change.New != nil {
			versions = append(versions, freeze(change.New))
		}
	}
	s.rules.Step(s.model.now, s.store, c)
	for _, v := range versions {
		if err := v.intact(); err != nil {
			return fmt.Errorf("a second step wrote to the result of the first: %w", err)
		}
	}
	return nil
}

// subjectOf is the task that a command is about; none for a Submit.
func subjectOf(c lease.Command) lease.TaskID {
	switch c := c.(type) {
	case lease.Grant:
		return c.Task
	case lease.Say:
		id, _ := lease.ParseTaskID(c.Report.TaskID)
		return id
	case lease.Requeue:
		return c.Task
	case lease.Cancel:
		return c.Task
	case lease.Retry:
		return c.Task
	case lease.Delete:
		return c.Task
	case lease.Expire:
		return c.Task
	case lease.Stall:
		return c.Task
	}
	return lease.TaskID{}
}

// compare wants the same on both sides of the tasks that the last step was about, and now and then of all.
func (s *simulation) compare() error {
	if s.chance(1) {
		s.touched = append(s.touched, s.tasks...)
	}
	for _, id := range s.touched {
		if err := s.compareTask(id); err != nil {
			return err
		}
	}
	s.touched = s.touched[:0]
	return nil
}

func (s *simulation) compareTask(id lease.TaskID) error {
	found, t := s.store.Task(id), s.model.tasks[id.String()]
	gone := t == nil || t.gone
	switch {
	case gone != (found == nil):
		return fmt.Errorf("%v: deleted in the model: %v, in the store: %v", id, gone, found == nil)
	case gone:
		return nil
	}
	if got, want := factsOf(found), s.model.factsOf(t); got != want {
		return fmt.Errorf("%v:\n  the rules say %+v\n  the model says %+v", id, got, want)
	}
	return nil
}

// facts are what rules and model have to agree on about a task.
type facts struct {
	state    lease.State
	reason   lease.Reason
	round    uint32
	attempt  uint32
	failures uint32
	losses   uint32
	releases uint32
	unacked  uint32

	readyAt, retryAt            lease.Instant
	runAt, finishedAt, deadline lease.Wall
	outcome                     uint32
	cancel                      bool

	expires, ackBy, attemptBy, cancelBy lease.Instant
	session                             string
	acked, started                      bool

	dueServing lease.Instant
	dueWall    lease.Wall
}

func factsOf(t *lease.Task) facts {
	f := facts{
		state: t.State(), reason: t.Reason, round: t.Round, attempt: t.Attempt(),
		failures: t.Failures, losses: t.Losses, releases: t.Releases, unacked: t.Unacked,
		readyAt: t.ReadyAt, retryAt: t.RetryAt, runAt: t.RunAt, finishedAt: t.FinishedAt, deadline: t.Deadline,
		cancel: t.Cancel != nil,
	}
	if t.Outcome != nil {
		f.outcome = t.Outcome.Attempt
	}
	if l := t.Lease; l != nil {
		f.expires, f.ackBy, f.attemptBy, f.cancelBy = l.ExpiresAt, l.AckBy, l.AttemptBy, l.CancelBy
		f.session, f.acked, f.started = l.Session, l.AckedAt != 0, l.StartedAt != 0
	}
	if t.State() != lease.Ready { // since when it is READY means nothing elsewhere
		f.readyAt = 0
	}
	f.dueServing, f.dueWall = t.Due()
	return f
}

func (m *model) factsOf(t *modelTask) facts {
	f := facts{
		state: t.state, reason: t.reason, round: t.round, attempt: t.attempts,
		failures: t.failures, losses: t.losses, releases: t.releases, unacked: t.unacked,
		readyAt: t.readyAt, retryAt: t.retryAt, runAt: t.runAt, finishedAt: t.finishedAt, deadline: t.deadline,
		outcome: t.outcome, cancel: t.cancelAsked,
	}
	if l := t.live; l != nil {
		f.expires, f.ackBy, f.attemptBy, f.cancelBy = l.expires, l.ackBy, l.attemptBy, l.cancelBy
		f.session, f.acked, f.started = l.session, l.acked, l.started
	}
	if t.state != lease.Ready {
		f.readyAt = 0
	}
	f.dueServing, f.dueWall = m.due(t)
	return f
}
