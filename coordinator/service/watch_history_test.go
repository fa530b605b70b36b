package service

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// pastWorld is a store with tasks of a run and of others, which have histories, and a watch of the
// run. Each View of the store calls before.
type pastWorld struct {
	testing.TB
	*rand.Rand
	store.Store
	before func()
	tasks  map[lease.TaskID]*lease.Task
	ids    []lease.TaskID // of tasks, in order
	seq    uint64         // the newest
	news   []*engine.News // of the run
	batch  store.Batch
	reads  int // tasks read in the newest View
	all    int // tasks read in all of them
	most   int // tasks read in the longest of them
}

func newPastWorld(t testing.TB, seed uint64) *pastWorld {
	return &pastWorld{
		TB: t, Rand: rand.New(rand.NewPCG(seed, 0)), Store: memstore.New(), before: func() {},
		tasks: map[lease.TaskID]*lease.Task{},
	}
}

// setWatchStep sets watchStep for one test.
func setWatchStep(t *testing.T, to int) {
	before := watchStep
	t.Cleanup(func() { watchStep = before })
	watchStep = to
}

// View implements store.Store.
func (w *pastWorld) View(fn func(store.Reader) error) error {
	w.before()
	w.reads = 0
	defer func() { w.all, w.most = w.all+w.reads, max(w.most, w.reads) }()
	return w.Store.View(func(r store.Reader) error { return fn(countedReader{r, &w.reads}) })
}

// countedReader counts the tasks that it reads.
type countedReader struct {
	store.Reader
	n *int
}

func (r countedReader) Get(ks store.Keyspace, key []byte) []byte {
	if ks == store.Spec {
		*r.n++
	}
	return r.Reader.Get(ks, key)
}

// watch returns a watch of the run, and what sends to it.
func (w *pastWorld) watch(send func(*lessorv1.WatchTaskResponse)) *runWatcher {
	e := newShared(Deps{Store: w, Logger: slog.New(slog.DiscardHandler)})
	return &runWatcher{
		shared: e, ctx: w.Context(), space: engine.Space{
			Tenant:    gate.DefaultTenant,
			Workspace: convert.DefaultWorkspace,
		}, run: "run",
		toldOf:      map[lease.TaskID]uint64{},
		eventSender: &eventSender{send: func(m *lessorv1.WatchTaskResponse) error { send(m); return nil }},
	}
}

// submit makes a task.
func (w *pastWorld) submit(run string) {
	w.seq++
	t := &lease.Task{ID: lease.TaskID{Space: 1, Seq: w.seq}, Spec: &lease.Spec{Queue: "q", RunID: run}, Rest: lease.Cancelled}
	records.Put(&w.batch, &lease.Change{New: t})
	w.tasks[t.ID], w.ids = t, append(w.ids, t.ID)
	w.tell(t, &engine.News{ID: t.ID, Task: t})
}

// happen adds an event to a task, and makes it forget all but some of its events; a negative
// number: none.
func (w *pastWorld) happen(id lease.TaskID, kept int) {
	old := w.tasks[id]
	t := *old
	w.seq++
	t.History = append(slices.Clip(t.History), lease.Event{Seq: w.seq, Type: lease.EventRetried})
	if over := len(t.History) - kept; kept >= 0 && over > 0 {
		t.History, t.Dropped = t.History[over:], t.Dropped+uint32(over)
	}
	records.Put(&w.batch, &lease.Change{Old: old, New: &t, Row: true})
	w.tasks[id] = &t
	w.tell(&t, &engine.News{ID: id, Task: &t})
}

func (w *pastWorld) remove(id lease.TaskID) {
	records.Put(&w.batch, &lease.Change{Old: w.tasks[id]})
	w.tell(w.tasks[id], &engine.News{ID: id})
	delete(w.tasks, id)
	w.ids = slices.DeleteFunc(w.ids, func(other lease.TaskID) bool { return other == id })
}

func (w *pastWorld) tell(t *lease.Task, n *engine.News) {
	if t.Spec.RunID == "run" {
		w.news = append(w.news, n)
	}
}

func (w *pastWorld) commit() {
	w.Helper()
	records.PutSpace(&w.batch, records.Space{
		Tenant: gate.DefaultTenant, Workspace: convert.DefaultWorkspace, Number: 1,
		NextSeq: w.seq + 1,
	})
	if err := w.Commit(w.Context(), &w.batch); err != nil {
		w.Fatal(err)
	}
	w.batch.Reset()
}

// live lets something happen.
func (w *pastWorld) live() {
	switch n := w.IntN(20); {
	case n < 5 || len(w.ids) == 0:
		w.submit([]string{"run", "run", "run", "other", ""}[w.IntN(5)])
	case n == 5:
		w.remove(w.ids[w.IntN(len(w.ids))])
	case n == 6:
		w.happen(w.ids[w.IntN(len(w.ids))], 1+w.IntN(4))
	default:
		w.happen(w.ids[max(w.IntN(len(w.ids)), w.IntN(len(w.ids)))], -1)
	}
}

// S5: a watch of a run that catches up, in however many steps, sends each event that it has not
// sent, once and in order, while tasks change, forget events, and are deleted. With the news of
// that it has sent all events. A client may resume after any of them.
func TestCatchUpSendsEveryEventOnceAndInOrder(t *testing.T) {
	t.Attr("rules", "S5 T10")
	for seed := range uint64(300) {
		w := newPastWorld(t, seed)
		for range 1 + w.IntN(300) {
			w.live()
		}
		if w.IntN(3) == 0 && len(w.ids) > 0 {
			w.batch.Put(store.Run, store.AppendGroupKey(nil, store.OlderTasks, w.ids[w.IntN(len(w.ids))]), nil)
		}
		w.commit()
		var sent []*lessorv1.WatchTaskResponse
		watch := w.watch(func(m *lessorv1.WatchTaskResponse) { sent = append(sent, m) })
		watch.told = []uint64{0, w.Uint64N(w.seq)}[w.IntN(2)]
		want := map[string]bool{} // events to send
		for id, task := range w.tasks {
			after, events := watch.told, task.Events()
			if w.IntN(5) == 0 { // news of it came before
				after = max(after, events[w.IntN(len(events))].Seq)
				watch.toldOf[id] = after
			}
			for _, e := range events {
				if e.Seq > after && task.Spec.RunID == "run" {
					want[eventName(id, e.Seq)] = true
				}
			}
		}
		end := w.seq
		w.news, w.before = nil, func() { // catchUp sends what there is when it begins
			w.before = func() {
				for range w.IntN(4) {
					w.live()
				}
				w.commit()
			}
		}
		setWatchStep(t, 1+w.IntN(12))
		if err := watch.catchUp(); err != nil {
			t.Fatal(err)
		}
		if watch.told != end || len(watch.toldOf) != 0 {
			t.Fatalf("seed %d: caught up to %d, and with %d tasks, want %d and none", seed, watch.told, len(watch.toldOf), end)
		}
		w.checkOrder(seed, sent)
		for _, n := range w.news {
			if n.Task != nil {
				want[eventName(n.ID, n.Task.LastSeq())] = true
			}
			if err := watch.tell(n); err != nil {
				t.Fatal(err)
			}
		}
		w.checkWhole(seed, sent, end, want)
	}
}

func eventName(id lease.TaskID, seq uint64) string { return fmt.Sprintf("%v %d", id, seq) }

// checkOrder checks that the events come in order, and that a client may resume after each of them.
func (w *pastWorld) checkOrder(seed uint64, sent []*lessorv1.WatchTaskResponse) {
	w.Helper()
	var last, resume uint64
	for _, m := range sent {
		if m.GetSequence() < resume {
			w.Errorf("seed %d: the sequence falls from %d to %d", seed, resume, m.GetSequence())
		}
		if e := m.GetHistory(); e != nil {
			if e.GetSequence() <= max(last, resume) {
				w.Errorf("seed %d: event %d comes after %d, and after a client could resume at %d",
					seed, e.GetSequence(), last, resume)
			}
			last = e.GetSequence()
		}
		resume = m.GetSequence()
	}
}

// checkWhole checks that each event that is wanted was sent once, and no other. One up to end may
// have come too late: its task was deleted, or a note says that it has no longer been kept.
func (w *pastWorld) checkWhole(seed uint64, sent []*lessorv1.WatchTaskResponse, end uint64, want map[string]bool) {
	w.Helper()
	noted := map[string]bool{}
	for _, m := range sent {
		switch {
		case m.GetMissed() != nil:
			noted[m.GetTaskId()] = true
		case m.GetHistory() != nil:
			id, _ := lease.ParseTaskID(m.GetTaskId())
			name := eventName(id, m.GetHistory().GetSequence())
			if !want[name] {
				w.Errorf("seed %d: event %s was sent twice, or should not be sent", seed, name)
			}
			delete(want, name)
		}
	}
	for id, task := range w.tasks {
		for _, e := range task.Events() {
			if name := eventName(id, e.Seq); want[name] {
				w.Errorf("seed %d: event %s was not sent", seed, name)
			}
		}
	}
	for name := range want {
		text, number, _ := strings.Cut(name, " ")
		id, _ := lease.ParseTaskID(text)
		if seq, _ := strconv.ParseUint(number, 10, 64); seq > end || w.tasks[id] != nil && !noted[text] {
			w.Errorf("seed %d: event %s was not sent", seed, name)
		}
	}
}

// orders returns orders in which the tasks of a run may run.
func orders(tasks int) map[string][]int {
	oldest := make([]int, tasks)
	for i := range oldest {
		oldest[i] = i
	}
	newest := slices.Clone(oldest)
	slices.Reverse(newest)
	return map[string][]int{
		"oldest first": oldest, "newest first": newest, "newest half first": append(slices.Clone(oldest[tasks/2:]), oldest[:tasks/2]...),
		"in no order": rand.New(rand.NewPCG(1, 1)).Perm(tasks),
	}
}

// run submits tasks of the run, which then have three events each, in an order.
func (w *pastWorld) run(order []int) {
	for range order {
		w.submit("run")
	}
	for _, i := range order {
		for range 3 {
			w.happen(w.ids[i], -1)
		}
	}
	w.commit()
}

// A watch of a run that catches up reads each task about as often as it has events to send, in
// whatever order the tasks ran, and in short transactions. If it read all tasks for each step, a
// run of a million tasks would take half an hour.
func TestCatchUpReadsATaskOnlyForItsEvents(t *testing.T) {
	const tasks, step = 2000, 50
	setWatchStep(t, step)
	for name, order := range orders(tasks) {
		w, events := newPastWorld(t, 1), 0
		w.run(order)
		if err := w.watch(func(*lessorv1.WatchTaskResponse) { events++ }).catchUp(); err != nil || events != 4*tasks {
			t.Errorf("%s: %d events (%v), want %d", name, events, err, 4*tasks)
		}
		most := events * 6 / 5
		if name == "in no order" {
			most = 4 * events
		}
		if w.all > most || w.most > step+1 {
			t.Errorf("%s: %d reads of tasks, up to %d in one transaction; want %d for %d events, and %d",
				name, w.all, w.most, most, events, step+1)
		}
	}
}

// viewsAtOnce is a store whose transactions take a second. It counts those that there are.
type viewsAtOnce struct {
	store.Store
	now atomic.Int32
}

func (s *viewsAtOnce) View(fn func(store.Reader) error) error {
	s.now.Add(1)
	defer s.now.Add(-1)
	time.Sleep(time.Second)
	return s.Store.View(fn)
}

// W11: watches of a run that have fallen behind read the store one after the other, but do not wait
// for a client that takes nothing. Watches that begin do not wait for them.
func TestWatchesThatFellBehindReadInTurn(t *testing.T) {
	t.Attr("rules", "W11")
	synctest.Test(t, func(t *testing.T) {
		const watches = 5
		w := newPastWorld(t, 1)
		w.submit("run")
		w.commit()
		w.happen(w.ids[0], -1)
		w.commit()
		ctx, cancel := context.WithCancel(t.Context())
		st, stuck := &viewsAtOnce{Store: w.Store}, atomic.Int32{}
		of := w.watch(func(m *lessorv1.WatchTaskResponse) {
			if m.GetHistory() != nil {
				stuck.Add(1)
				<-ctx.Done()
			}
		})
		of.Store, of.ctx = st, ctx
		copyOf := func() *runWatcher {
			watch := *of
			watch.toldOf, watch.eventSender = map[lease.TaskID]uint64{}, &eventSender{send: of.send}
			return &watch
		}
		var all sync.WaitGroup
		for range watches {
			all.Go(func() { _ = copyOf().skipped(1, 0) })
		}
		time.Sleep(1500 * time.Millisecond) // each has seen how far the history goes, and the first one reads it
		if n := st.now.Load(); n != 1 {
			t.Errorf("%d watches that fell behind read at once, want 1", n)
		}
		all.Go(func() { _ = copyOf().catchUp() })
		all.Go(func() { _ = copyOf().catchUp() })
		time.Sleep(1200 * time.Millisecond)
		if n := st.now.Load(); n != 3 {
			t.Errorf("%d watches read, want one that fell behind and two that begin", n)
		}
		time.Sleep(time.Minute)
		if n := stuck.Load(); n != watches+2 {
			t.Errorf("%d watches wait for their clients, want %d", n, watches+2)
		}
		cancel()
		all.Wait()
	})
}

// BenchmarkCatchUp is a watch of a run of 50,000 tasks with four events each, from its beginning,
// without the sending.
func BenchmarkCatchUp(b *testing.B) {
	const tasks = 50_000
	for name, order := range orders(tasks) {
		b.Run(name, func(b *testing.B) {
			w, events := newPastWorld(b, 1), 0
			w.run(order)
			for b.Loop() {
				if err := w.watch(func(*lessorv1.WatchTaskResponse) { events++ }).catchUp(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(events), "ns/event")
			b.ReportMetric(float64(w.all)/float64(events), "reads/event")
		})
	}
}

// A watch of a run that resumes after all tasks were submitted keeps few parts, however many tasks
// there are.
func TestCatchUpKeepsFewParts(t *testing.T) {
	setWatchStep(t, 40)
	w := newPastWorld(t, 1)
	for range 4000 {
		w.submit("run")
	}
	submitted := w.seq
	for _, id := range w.ids {
		w.happen(id, -1)
	}
	w.commit()
	h := runHistory{runWatcher: w.watch(nil)}
	h.told = submitted
	if err := w.View(h.begin); err != nil {
		t.Fatal(err)
	}
	if err := h.read(); err != nil {
		t.Fatal(err)
	}
	// 80 of 8 tasks, 80 of 16, and the rest of 32; of 8 each, it were 500 and more
	if n, most := len(h.parts), 300; n > most {
		t.Errorf("%d parts, want at most %d", n, most)
	}
}
