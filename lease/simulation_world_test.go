package lease_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// world is everything in one history: a coordinator, workers, the network between them, producers
// and operators, and faults. Its random source decides all that happens. It takes one turn after
// another in one goroutine.
type world struct {
	rng        *rand.Rand
	coverage   *coverage
	weights    eventWeights
	faultsOver bool // the faults are over
	steps      int64

	host       *host
	model      *model // its clocks are those of the coordinator
	watch      *watcher
	book       *book
	net        network
	workers    []*worker
	lastBackup *simBackup
	latest     lease.Wall // the latest time that the wall clock has shown

	tasks    []lease.TaskID // the newest ones, deleted ones included
	claims   []*claim       // the newest leases of which workers were told, ended ones included
	received []lease.Judge  // the newest reports that the coordinator received

	touched        []lease.TaskID // tasks that the last step concerned or changed
	recentCommands []timedCommand // the newest commands, for the journal
}

type timedCommand struct {
	now     lease.Now
	command lease.Command
}

// eventWeights says how often each thing happens in a history, relative to the others.
type eventWeights struct{ submit, grant, work, passTime int }

var eventWeightSets = []eventWeights{
	{submit: 2, grant: 12, work: 45, passTime: 8},
	{submit: 1, grant: 15, work: 60, passTime: 1}, // little time passes: many attempts, full histories
	{submit: 2, grant: 20, work: 8, passTime: 15}, // workers are slow
	{submit: 7, grant: 15, work: 30, passTime: 4}, // many tasks
}

func newWorld(seed uint64, seen *coverage) *world { return newWorldOf(rand.NewPCG(seed, 0), seen) }

// newWorldOf returns a world that draws from the given source.
func newWorldOf(chance rand.Source, seen *coverage) *world {
	now := lease.Now{Serving: lease.Instant(time.Hour), Wall: lease.WallOf(firstDay)}
	w := &world{
		rng: rand.New(chance), coverage: seen, model: newModel(now, 1), watch: newWatcher(), book: newBook(), latest: now.Wall,
	}
	w.host = newHost(now, func() uint64 { return w.model.entropy })
	w.weights = eventWeightSets[w.rng.IntN(len(eventWeightSets))]
	for i := range 5 {
		w.workers = append(w.workers, w.newWorker(i))
	}
	return w
}

func pick[T any](w *world, from ...T) T { return from[w.rng.IntN(len(from))] }

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

// faultChance is chance while there are faults, and false afterwards.
func (w *world) faultChance(percent int) bool { return !w.faultsOver && w.chance(percent) }

// turn lets one thing happen.
func (w *world) turn() error {
	m := w.weights
	const up, down, commit, operate, trouble = 40, 20, 10, 8, 1
	n := w.rng.IntN(m.submit + m.grant + m.work + m.passTime + up + down + commit + operate + trouble)
	for _, c := range []struct {
		share int
		do    func() error
	}{
		{up, w.deliverUp},
		{m.work, w.work},
		{down, w.deliverDown},
		{m.grant, w.grant},
		{m.passTime, w.passTime},
		{commit, w.commit},
		{operate, w.operate},
		{m.submit, w.submit},
		{trouble, w.injectFault},
	} {
		if n -= c.share; n < 0 {
			return c.do()
		}
	}
	return nil
}

// do gives one command to the rules, checks with the watcher and the book what must always be true,
// and stores the changes. The caller gives the same command to the model and compares the results.
func (w *world) do(c lease.Command) (lease.Step, error) {
	w.steps++
	w.recentCommands = appendBounded(w.recentCommands, timedCommand{w.model.now, c}, 20)
	subject := subjectOf(c)
	w.model.entropy = w.rng.Uint64()
	if subject != (lease.TaskID{}) {
		w.model.touch(subject.String())
		w.touched = append(w.touched, subject)
	}
	out := w.host.rules.Step(w.model.now, w.host, c)
	for i := range out.Changes {
		change := &out.Changes[i]
		if change.Old == nil {
			w.touched = append(w.touched, change.New.ID)
		}
		if err := w.watch.check(change, w.rng.IntN(16) == 0); err != nil {
			return out, err
		}
		if err := w.book.expired(change); err != nil {
			return out, err
		}
	}
	if w.rng.IntN(64) == 0 {
		if err := w.stepTwice(c, out); err != nil {
			return out, err
		}
	}
	w.host.addChanges(out.Changes)
	return out, nil
}

// stepTwice decides the same command a second time on the same versions. This must not modify the
// versions that the first step made: two versions may share slices.
func (w *world) stepTwice(c lease.Command, first lease.Step) error {
	var versions []frozen
	for _, change := range first.Changes {
		if change.New != nil {
			versions = append(versions, freeze(change.New))
		}
	}
	w.host.rules.Step(w.model.now, w.host, c)
	for _, v := range versions {
		if err := v.intact(); err != nil {
			return fmt.Errorf("a second step modified the result of the first: %w", err)
		}
	}
	return nil
}

// countOutcome counts the outcome of a command if a lease is live, and compares rules and model.
func (w *world) countOutcome(command, name string) error {
	if w.host.liveLeases > 0 {
		w.coverage.seen[outcome{command, name}]++
	}
	return w.compare()
}

// subjectOf returns the task that a command concerns; the zero id for a Submit.
func subjectOf(c lease.Command) lease.TaskID {
	switch c := c.(type) {
	case lease.Grant:
		return c.Task
	case lease.Unpark:
		return c.Task
	case lease.LoseResource:
		return c.Task
	case lease.Judge:
		id, _ := lease.ParseTaskID(c.Reports[0].TaskID)
		return id
	case lease.Requeue:
		return c.Task
	case lease.Cancel:
		return c.Task
	case lease.Retry:
		return c.Task
	case lease.Delete:
		return c.Task
	case lease.Adopt:
		return c.Task
	case lease.Expire:
		return c.Task
	case lease.Stall:
		return c.Task
	}
	return lease.TaskID{}
}

// journal lists the newest commands, for the message of a failure.
func (w *world) journal() string {
	var b strings.Builder
	for _, e := range w.recentCommands {
		fmt.Fprintf(&b, "  %v  %T%+v", time.Duration(e.now.Serving), e.command, e.command)
		if say, ok := e.command.(lease.Judge); ok {
			for _, r := range say.Reports {
				fmt.Fprintf(&b, " = %+v", *r)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// anyTask returns a random task, mostly one of the newest, sometimes the id of no task.
func (w *world) anyTask() lease.TaskID {
	if len(w.tasks) == 0 || w.chance(1) {
		return lease.TaskID{Space: 1, Seq: lease.MaxSeq}
	}
	near := min(len(w.tasks), pick(w, 2, 2, 20))
	return w.tasks[len(w.tasks)-1-w.rng.IntN(near)]
}

// dueTask tries a few tasks, to find one with a due timer.
func (w *world) dueTask() (id lease.TaskID) {
	for range 8 {
		id = w.anyTask()
		if t := w.host.Task(id); t != nil && w.due(t) {
			break
		}
	}
	return id
}

func (w *world) due(t *lease.Task) bool {
	serving, wall := t.Due()
	return serving != 0 && serving <= w.model.now.Serving || wall != 0 && wall <= w.model.now.Wall
}

// tenantOf returns the tenant of the task, and sometimes another one.
func (w *world) tenantOf(id lease.TaskID) string {
	if t := w.model.tasks[id.String()]; t != nil && !w.chance(3) {
		return t.tenant
	}
	return pick(w, "acme", "other")
}
