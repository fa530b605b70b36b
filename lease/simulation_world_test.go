package lease_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// world is all that one seed decides: a coordinator, workers, a network between them, operators, and what befalls them. It takes one
// turn after another; nothing in it runs by itself.
type world struct {
	rng   *rand.Rand
	seen  *coverage
	mood  mood
	calm  bool // the faults are over
	steps int64

	host    *host
	model   *model // its clocks are those of the coordinator
	watch   *watcher
	book    *book
	net     network
	workers []*worker
	saved   *saved
	latest  lease.Wall // that the wall clock ever showed

	tasks  []lease.TaskID // submitted lately, deleted ones too
	claims []*claim       // told lately, ended ones too
	said   []lease.Say    // lately

	touched []lease.TaskID // that the last step was about or changed
	done    []entry        // the newest commands, for the journal
}

type entry struct {
	now     lease.Now
	command lease.Command
}

// mood is how often what happens in a history, in shares of their sum.
type mood struct{ submit, grant, work, passTime int }

var moods = []mood{
	{submit: 2, grant: 12, work: 45, passTime: 8},
	{submit: 1, grant: 15, work: 60, passTime: 1}, // little time passes: many attempts, full histories
	{submit: 2, grant: 20, work: 8, passTime: 15}, // workers are slow
	{submit: 7, grant: 15, work: 30, passTime: 4}, // many tasks
}

func newWorld(seed uint64, seen *coverage) *world { return newWorldOf(rand.NewPCG(seed, 0), seen) }

// newWorldOf is a world of any chance.
func newWorldOf(chance rand.Source, seen *coverage) *world {
	now := lease.Now{Serving: lease.Instant(time.Hour), Wall: lease.WallOf(firstDay)}
	w := &world{
		rng: rand.New(chance), seen: seen, model: newModel(now, 1), watch: newWatcher(), book: newBook(), latest: now.Wall,
	}
	w.host = newHost(now, func() uint64 { return w.model.entropy })
	w.mood = moods[w.rng.IntN(len(moods))]
	for i := range 5 {
		w.workers = append(w.workers, w.newWorker(i))
	}
	return w
}

func pick[T any](w *world, from ...T) T { return from[w.rng.IntN(len(from))] }

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

// lossy is chance until the faults are over.
func (w *world) lossy(percent int) bool { return !w.calm && w.chance(percent) }

// turn lets one thing happen.
func (w *world) turn() error {
	m := w.mood
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
		{trouble, w.trouble},
	} {
		if n -= c.share; n < 0 {
			return c.do()
		}
	}
	return nil
}

// do steps one command, checks what must always hold, and keeps the result. The model's side is the caller's.
func (w *world) do(c lease.Command) (lease.Step, error) {
	w.steps++
	w.done = keep(w.done, entry{w.model.now, c}, 20)
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
		if err := w.fork(c, out); err != nil {
			return out, err
		}
	}
	w.host.take(out.Changes)
	return out, nil
}

// fork steps the same command once more on the same versions: it must not write to what the first step made of them.
func (w *world) fork(c lease.Command, first lease.Step) error {
	var versions []frozen
	for _, change := range first.Changes {
		if change.New != nil {
			versions = append(versions, freeze(change.New))
		}
	}
	w.host.rules.Step(w.model.now, w.host, c)
	for _, v := range versions {
		if err := v.intact(); err != nil {
			return fmt.Errorf("a second step wrote to the result of the first: %w", err)
		}
	}
	return nil
}

// came counts the outcome of a command, unless the system is empty, and compares.
func (w *world) came(command, is string) error {
	if w.host.live > 0 {
		w.seen.seen[outcome{command, is}]++
	}
	return w.compare()
}

// subjectOf is the task that a command is about; none for a Submit.
func subjectOf(c lease.Command) lease.TaskID {
	switch c := c.(type) {
	case lease.Grant:
		return c.Task
	case lease.Unpark:
		return c.Task
	case lease.LoseResource:
		return c.Task
	case lease.Say:
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

func (w *world) journal() string {
	var b strings.Builder
	for _, e := range w.done {
		fmt.Fprintf(&b, "  %v  %T%+v", time.Duration(e.now.Serving), e.command, e.command)
		if say, ok := e.command.(lease.Say); ok {
			for _, r := range say.Reports {
				fmt.Fprintf(&b, " = %+v", *r)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// anyTask is mostly a recent one; the newest are likeliest.
func (w *world) anyTask() lease.TaskID {
	if len(w.tasks) == 0 || w.chance(1) {
		return lease.TaskID{Space: 1, Seq: lease.MaxSeq}
	}
	near := min(len(w.tasks), pick(w, 2, 2, 20))
	return w.tasks[len(w.tasks)-1-w.rng.IntN(near)]
}

// dueTask is one of which a timer is due, if there is one at hand.
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

// tenantOf is mostly the task's own.
func (w *world) tenantOf(id lease.TaskID) string {
	if t := w.model.tasks[id.String()]; t != nil && !w.chance(3) {
		return t.tenant
	}
	return pick(w, "acme", "other")
}
