package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/test/draw"
)

var histories = draw.NewHistories("./coordinator/engine", quickHistories)

// historyCalls is the number of calls of a history before its faults end.
const historyCalls = 150

// TestRandomHistories makes random calls on an engine, as the producers, workers and operators of
// up to three tenants do, with restarts, crashes and restores in between. After each call,
// rig.consistent compares what the engine keeps in memory with the tasks, and checks that no task
// waits although a worker could have it. The book (random_book_test.go) checks what the engine
// tells each tenant. When the faults have ended, all tasks must end. When all tasks are deleted,
// nothing of them may be left in memory.
//
// The simulation of package lease tests the rules. This test is about what the engine adds to them:
// indexes, turns, alarms, and whom it wakes when. The seed decides the calls, but the engine's own
// ids and waits are random. So a seed may need several runs until it fails again.
func TestRandomHistories(t *testing.T) {
	t.Attr("rules", "A2 A11 T1 T2 T11 T12 T13 W5 W8 W9 W12 X2 X5")
	small(t)
	histories.Play(t, playHistory)
}

// small sets the bounds of what memory holds and of what a round does to 4, so that a few tasks
// exceed them.
func small(t *testing.T) {
	bound(t, 4, &lineHead, &parkedHead, &timerHead, &maxIdle, &lossesPerRound, &grantsPerTurn, &triesPerTurn,
		&unparksPerTurn, &movesAtOnce)
	bound(t, 2, &linesInTurn, &takersPerBatch)
}

// bound sets bounds for one test.
func bound(tb testing.TB, to int, bounds ...*int) {
	for _, b := range bounds {
		before := *b
		tb.Cleanup(func() { *b = before })
		*b = to
	}
}

// playHistory plays the history of one seed.
func playHistory(t *testing.T, seed uint64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// the clock of a bubble begins in 2000, and the epochs of restores count from 2024
		time.Sleep(25 * 366 * 24 * time.Hour)
		w := newWorld(&rig{T: t, st: memstore.New()}, rand.New(rand.NewPCG(seed, 0)))
		defer func() {
			if t.Failed() {
				t.Logf("the last calls:\n%s", strings.Join(w.journal[max(0, len(w.journal)-40):], "\n"))
			}
		}()
		w.start(w.cfg)
		if w.slow = w.one(2); w.slow {
			w.slowDown()
		}
		for n := 0; n < historyCalls && !t.Failed(); n++ {
			w.call()
			if !w.slow || w.one(10) {
				w.answered.Wait()
				w.consistent()
				if w.one(10) {
					w.checkRestart()
				}
			}
		}
		w.answered.Wait()
		if !t.Failed() {
			w.heal()
		}
		if !t.Failed() {
			w.forgets()
		}
		if !t.Failed() {
			w.shutDown()
		}
		if t.Failed() {
			w.stop()
			w.answered.Wait()
			if err := <-w.done; err != nil {
				t.Log(err)
			}
		}
	})
}

// world is an engine and its callers.
type world struct {
	*rig
	*book
	rng     *rand.Rand
	cfg     Config
	begun   time.Time
	spaces  []Space // the first one is home
	clients []*client
	watches []*watch
	ends    *Ends                 // nil: nobody listens
	listens map[lease.TaskID]bool // see checkEnds
	backup  []byte                // a backup of the store; nil: none was made
	// slow: commits take time, and calls do not wait for the answers of earlier ones, so that
	// several batches are under way.
	slow     bool
	answered sync.WaitGroup

	mu      sync.Mutex // guards what follows
	tasks   []lease.TaskID
	unary   []Granted // leases that were not granted to one of the clients, and are not reported yet
	journal []string
}

func newWorld(r *rig, rng *rand.Rand) *world {
	w := &world{rig: r, rng: rng, begun: time.Now()}
	w.book = newBook(w)
	second, third := Space{home.Tenant, "other"}, Space{"umbra", home.Workspace}
	w.spaces = pick(w, []Space{home}, []Space{home, third},
		[]Space{home, second, third, {third.Tenant, second.Workspace}}, []Space{home, second, third, {"hooli", home.Workspace}})
	most := map[string]int{}
	for _, tenant := range w.tenants() {
		if most[tenant] = math.MaxInt; w.one(3) {
			most[tenant] = 3 + w.rng.IntN(20)
		}
	}
	w.cfg.MaxTasks = func(tenant string) int { return most[tenant] }
	w.cfg.KeySegment, w.cfg.TimersSwept = 2, 3
	w.cfg.Events.Granted = w.granting
	return w
}

// tenants returns the tenants of the history, that of home first.
func (w *world) tenants() (all []string) {
	for _, s := range w.spaces {
		if !slices.Contains(all, s.Tenant) {
			all = append(all, s.Tenant)
		}
	}
	return all
}

// anySpace returns home half of the time, so that enough happens in one space.
func (w *world) anySpace() Space {
	if w.one(2) {
		return home
	}
	return pick(w, w.spaces...)
}

// slowDown makes the commits of the current store slow.
func (w *world) slowDown() {
	rng := rand.New(rand.NewPCG(w.rng.Uint64(), 0))
	w.st.(*memstore.Store).SetHook(func(_ context.Context, _ *store.Batch, apply func()) error {
		d := time.Duration(rng.Int64N(int64(300 * time.Millisecond)))
		if rng.IntN(50) == 0 {
			d += 2 * SlowCommit
		}
		time.Sleep(d)
		apply()
		return nil
	})
}

// do makes a call to the current engine, which may be killed meanwhile. It waits for the answer,
// unless commits are slow.
func (w *world) do(call func(e *Engine)) {
	e := w.Engine
	if !w.slow {
		call(e)
		return
	}
	w.answered.Go(func() { call(e) })
}

// client is a session with the leases that it has not reported yet.
type client struct {
	*testSession
	held   []Granted
	spaces []Space // those from which it has ever wanted tasks; guarded by world.mu
	ended  bool    // it may be displaced: it was replaced, or another session of the instance has joined
}

// take adds what was delivered since the last call to the leases that the client holds.
func (h *client) take() {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = append(h.held, h.granted...)
	h.granted = nil
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.journal = append(w.journal, fmt.Sprintf("%8.3fs ", time.Since(w.begun).Seconds())+fmt.Sprintf(format, args...))
}

// one reports true once in n times.
func (w *world) one(n int) bool { return w.rng.IntN(n) == 0 }

func pick[T any](w *world, of ...T) T { return of[w.rng.IntN(len(of))] }

// upTo returns a time between 0 and d.
func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(d) + 1)) }

var workerNames = []string{"w0", "w1", "w2"}

// call makes one random call.
func (w *world) call() {
	type call struct {
		weight int
		do     func()
	}
	draw.One(w.rng, []call{
		{14, w.submits},
		{12, w.joins},
		{4, w.leaves},
		{3, w.replaced},
		{3, w.updates},
		{2, w.refuses},
		{30, w.says},
		{6, w.acknowledges},
		{8, w.leases},
		{6, w.commands},
		{1, w.sweeps},
		{6, w.governs},
		{14, w.sleeps},
		{1, w.restarts},
		{1, w.restores},
		{2, w.opensWatch},
		{2, w.listensToEnd},
		{3, w.feeds},
		{6, w.intrudes},
		{3, w.looks},
		{2, w.rushes},
	}, func(c call) int { return c.weight }).do()
}

func (w *world) spec() *lease.Spec {
	now := time.Now()
	s := &lease.Spec{
		Queue: pick(w, "a", "b"), Type: pick(w, "", "x", "y"), Priority: pick[int32](w, -1, 0, 0, 1),
		Payload:          make([]byte, w.rng.IntN(64)),
		HeartbeatTimeout: 10 * time.Second, CancelGrace: 5 * time.Second,
		Retry: lease.RetryPolicy{InitialBackoff: time.Second, MaxBackoff: 10 * time.Second},
	}
	if w.one(2) {
		s.ConcurrencyKey, s.ConcurrencyLimit = pick(w, "k", "l"), pick[uint32](w, 1, 1, 2)
	}
	if w.one(3) {
		s.FairnessKey = pick(w, "f", "g")
	}
	if w.one(4) {
		s.Requirements = &lease.Requirements{Features: []string{"gpu"}}
	}
	switch w.rng.IntN(6) {
	case 0:
		s.ResourceRefs = []lease.ResourceRef{{ResourceID: "r", Worker: pick(w, workerNames...)}}
	case 1, 2:
		s.Affinity = &lease.Affinity{
			Key: pick(w, "m", "n"), Mode: pick(w, lease.Sticky, lease.Preferred),
			TTL: time.Second + w.upTo(30*time.Second),
		}
	}
	if w.one(6) {
		s.RunAt = lease.WallOf(now.Add(w.upTo(20 * time.Second)))
	}
	if w.one(8) {
		s.Deadline = lease.WallOf(now.Add(30*time.Second + w.upTo(time.Minute)))
	}
	if w.one(8) {
		s.AttemptTimeout = time.Second + w.upTo(20*time.Second)
	}
	if w.one(8) {
		s.StartTimeout = time.Second + w.upTo(20*time.Second)
	}
	if w.one(8) {
		s.Retention = time.Second + w.upTo(10*time.Second)
	}
	if w.one(3) {
		s.RunID = "u"
	}
	if w.one(4) {
		s.IdempotencyKey = pick(w, "i", "j", "k")
	}
	return s
}

// submits submits one to three tasks, or rarely a line of tasks that is longer than what memory
// holds of it, and than what a round gives up at once.
func (w *world) submits() {
	space := w.anySpace()
	specs := make([]*lease.Spec, pick(w, 1, 1, 2, 3))
	for i := range specs {
		specs[i] = w.spec()
	}
	if w.one(30) {
		like := w.spec()
		like.IdempotencyKey = ""
		specs = slices.Repeat([]*lease.Spec{like}, lossesPerRound+w.rng.IntN(2*lossesPerRound))
		for i := range specs {
			copied := *like
			copied.Payload = make([]byte, w.rng.IntN(64))
			specs[i] = &copied
		}
	}
	digests := make([]lease.Digest, len(specs))
	for i, s := range specs {
		if err := s.Fill(lease.DefaultLimits()); err != nil {
			w.Fatal(err)
		}
		digests[i][0] = pick[byte](w, 0, 0, 0, 1)
	}
	due := w.expected(space, specs, digests)
	w.do(func(e *Engine) {
		made, _, err := e.Submit(w.Context(), space, specs, digests)
		w.note("submit to %v: %d made (%v), of %d like %+v", space, len(made), err, len(specs), *specs[0])
		w.submitted(e, due, made, err)
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, m := range made {
			w.tasks = append(w.tasks, m.Task.ID)
		}
	})
}

func (w *world) wants(space Space, worker string) Wants {
	wants := Wants{
		Space: space, Worker: worker,
		Queues: pick(w, []string{"a"}, []string{"b"}, []string{"a", "b"}, []string{"b", "a"}),
	}
	if w.one(3) {
		wants.Types = []string{pick(w, "x", "y")}
	}
	if w.one(2) {
		wants.Capabilities.Features = []string{"gpu"}
	}
	if w.one(4) {
		wants.TypeLimits = map[string]uint32{"": 1, "x": 1}
	}
	if w.one(6) {
		wants.MaxBytes = 64
	}
	wants.SingleFlight = w.one(6)
	return wants
}

func (w *world) joins() {
	if len(w.clients) > 5 {
		w.leaves()
	}
	w.joinAs(pick(w, "1", "2"), w.wants(w.anySpace(), pick(w, workerNames...)), w.rng.IntN(4))
}

// joinAs makes a session of an instance join.
func (w *world) joinAs(instance string, wants Wants, slots int) *client {
	h := &client{testSession: &testSession{}, spaces: []Space{wants.Space}}
	m := h.newMember(instance, wants, slots)
	m.Redeliver = w.one(2)
	w.checkDeliveries(h)
	w.endInstance(m.Session)
	w.Join(m)
	w.clients = append(w.clients, h)
	w.note("join %s: %+v, %d slots", m.Session, m.Wants, m.Slots)
	return h
}

// endInstance notes that the sessions of the instance of a session may be displaced.
func (w *world) endInstance(session string) {
	for _, h := range w.clients {
		h.ended = h.ended || lease.InstanceOf(h.Session) == lease.InstanceOf(session)
	}
}

// anyClient returns one of the sessions, or nil if there is none. The session may have been
// displaced.
func (w *world) anyClient() *client {
	if len(w.clients) == 0 {
		return nil
	}
	return pick(w, w.clients...)
}

func (w *world) leaves() {
	if h := w.anyClient(); h != nil {
		goodbye := w.one(2)
		w.Leave(h.Member, goodbye)
		w.clients = slices.DeleteFunc(w.clients, func(o *client) bool { return o == h })
		w.note("leave %s, goodbye %v", h.Session, goodbye)
	}
}

func (w *world) replaced() {
	h := w.anyClient()
	if h == nil {
		return
	}
	tenant := h.Wants.Space.Tenant
	w.endInstance(h.Session)
	switch w.rng.IntN(3) {
	case 0:
		w.Replace(tenant, lease.InstanceOf(h.Session))
		w.note("replace %s", h.Session)
	case 1:
		w.Dismiss(tenant, h.Session)
		w.note("dismiss %s", h.Session)
	case 2:
		w.do(func(e *Engine) {
			_, _, err := e.Revoke(w.Context(), tenant, []string{lease.InstanceOf(h.Session)}, false, "by chance")
			w.check(err)
		})
		w.note("revoke %s", h.Session)
	}
}

func (w *world) updates() {
	h := w.anyClient()
	if h == nil {
		return
	}
	switch w.rng.IntN(3) {
	case 0:
		wants, slots := w.wants(w.otherSpace(h.Wants.Space), h.Wants.Worker), w.rng.IntN(4)
		w.moves(h, wants.Space)
		w.do(func(e *Engine) { e.Update(h.Member, wants, slots) })
		w.note("update %s: %+v, %d slots", h.Session, wants, slots)
	case 1:
		slots := w.rng.IntN(4)
		w.do(func(e *Engine) { e.Resize(h.Member, slots) })
		w.note("resize %s: %d slots", h.Session, slots)
	case 2:
		w.do(func(e *Engine) { e.Heard(h.Wants.Space.Tenant, h.Session) })
		w.note("heard %s", h.Session)
	}
}

// otherSpace returns one of the spaces of the tenant, mostly the given one.
func (w *world) otherSpace(space Space) Space {
	if other := pick(w, w.spaces...); other.Tenant == space.Tenant && w.one(3) {
		return other
	}
	return space
}

func (w *world) refuses() {
	if h, g, ok := w.anyLease(false); ok && h != nil {
		_ = w.Refuse(g.Task.Tenant, h.Session, g.Task.ID.String(), g.LeaseID)
		w.note("refuse %v by %s", g.Task.ID, h.Session)
	}
}

// anyLease returns a lease that somebody holds or held. If last is set, nobody reports about it
// again. h is nil if a unary request got the lease.
func (w *world) anyLease(last bool) (h *client, g Granted, ok bool) {
	from := &w.unary
	if h = w.anyClient(); h != nil && !w.one(4) {
		h.take()
		from = &h.held
	} else {
		h = nil
		w.mu.Lock()
		defer w.mu.Unlock()
	}
	if len(*from) == 0 {
		return nil, Granted{}, false
	}
	n := w.rng.IntN(len(*from))
	if g = (*from)[n]; last {
		*from = slices.Delete(*from, n, n+1)
	}
	return h, g, true
}

// says reports about a lease, which may have ended.
func (w *world) says() {
	kind := pick(w, lease.KindStart, lease.KindHeartbeat, lease.KindAck, lease.KindComplete, lease.KindComplete,
		lease.KindFail, lease.KindRelease)
	h, g, ok := w.anyLease(kind.Closes() && !w.one(4))
	if !ok {
		return
	}
	report := &lease.Report{Kind: kind, TaskID: g.Task.ID.String(), LeaseID: g.LeaseID}
	if w.one(6) {
		h = w.anyClient() // another session of the tenant may speak for a lease
	}
	if h != nil && h.Wants.Space.Tenant == g.Task.Tenant {
		report.Session = h.Session
	}
	switch kind {
	case lease.KindFail:
		report.Failure = &lease.Failure{Category: lease.Category(w.rng.IntN(7)), RetryAfter: pick(w, 0, 0, time.Second)}
	case lease.KindRelease:
		report.Delay = pick(w, 0, 0, 2*time.Second)
	case lease.KindHeartbeat:
		report.Checkpoint = make([]byte, pick(w, 0, 0, 8))
	case lease.KindComplete:
		report.Result = &lease.Result{Output: []byte("done")}
	}
	w.reports(g.Task.Tenant, report)
}

func (w *world) reports(tenant string, all ...*lease.Report) {
	known := w.verdicts(all)
	w.do(func(e *Engine) {
		answers, err := e.Judge(w.Context(), tenant, all)
		w.check(err)
		for i, a := range answers {
			w.note("say %v of %s by %q: %v %v", all[i].Kind, all[i].TaskID, all[i].Session, a.Verdict, a.Reason)
			w.judged(e, tenant, all[i], known[i], a)
		}
	})
}

// acknowledges makes a session start all tasks that it got.
func (w *world) acknowledges() {
	if h := w.anyClient(); h != nil {
		h.take()
		for _, g := range h.held {
			w.reports(g.Task.Tenant, &lease.Report{
				Kind: lease.KindStart, TaskID: g.Task.ID.String(),
				LeaseID: g.LeaseID, Session: h.Session,
			})
		}
	}
}

// leases asks for work by a unary call. The call may wait, and its caller may give up before it is
// answered.
func (w *world) leases() {
	worker := pick(w, workerNames...)
	req := LeaseRequest{
		Wants: w.wants(w.anySpace(), worker), Max: 1 + w.rng.IntN(3),
		Wait: pick(w, 0, 0, w.upTo(10*time.Second)), Request: pick(w, "", "", "r1", "r2"),
	}
	ctx, cancel := w.Context(), context.CancelFunc(func() {})
	if w.one(4) {
		ctx, cancel = context.WithTimeout(ctx, w.upTo(5*time.Second))
	}
	w.note("lease by %s: %+v", worker, req)
	ask := func(e *Engine) {
		defer cancel()
		got, err := e.Lease(ctx, req)
		if err != nil {
			if len(got) > 0 { // their commit may have failed
				w.Errorf("a call for work failed with %v, and got %d leases", err, len(got))
			}
			return
		}
		w.leased(req, got)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.unary = append(w.unary, got...)
	}
	if req.Wait == 0 {
		w.do(ask)
	} else {
		go ask(w.Engine)
	}
}

// commands cancels, retries, deletes or adopts a task. The command may be refused because of the
// task's state.
func (w *world) commands() {
	id, ok := w.anyTask()
	if !ok {
		return
	}
	tenant, how, force := w.owner(id).Tenant, w.rng.IntN(5), w.one(2)
	full := w.mayRetry(tenant, id)
	w.do(func(e *Engine) {
		what, err := w.command(e, tenant, id, how, force)
		w.note("%s %v: %v", what, id, err)
		if what == "retry" {
			full(err)
		}
	})
}

// command makes a caller of a tenant cancel, retry, delete or adopt a task.
func (w *world) command(e *Engine, tenant string, id lease.TaskID, how int, force bool) (what string, err error) {
	switch how {
	case 1:
		what = "retry"
		_, err = e.Retry(w.Context(), lease.Retry{Tenant: tenant, Task: id})
	case 2:
		what = "delete"
		err = e.Delete(w.Context(), lease.Delete{Tenant: tenant, Task: id, Force: force})
	case 3:
		what = "adopt"
		_, err = e.Adopt(w.Context(), lease.Adopt{Tenant: tenant, Task: id})
	default:
		what = "cancel"
		_, err = e.Cancel(w.Context(), lease.Cancel{Tenant: tenant, Task: id})
	}
	return what, err
}

// anyTask returns one of the tasks that were submitted.
func (w *world) anyTask() (id lease.TaskID, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.tasks) == 0 {
		return id, false
	}
	return pick(w, w.tasks...), true
}

// sweeps cancels, retries or deletes all tasks of a queue.
func (w *world) sweeps() {
	space, queue, how := w.anySpace(), pick(w, "a", "b"), w.rng.IntN(3)
	sweep := Sweep{Space: space, Choose: func(t *lease.Task) (lease.Command, bool) {
		if got := (Space{t.Tenant, t.Workspace}); got != space {
			w.Errorf("a sweep of %v looks at task %v of %v", space, t.ID, got)
		}
		if t.Spec.Queue != queue {
			return nil, false
		}
		return [...]lease.Command{
			lease.Cancel{Tenant: t.Tenant, Task: t.ID},
			lease.Retry{Tenant: t.Tenant, Task: t.ID},
			lease.Delete{Tenant: t.Tenant, Task: t.ID, Force: true},
		}[how], false
	}}
	w.do(func(e *Engine) {
		_, err := e.Sweep(w.Context(), sweep)
		if !errors.Is(err, ErrTaskLimit) || w.cfg.MaxTasks(space.Tenant) == math.MaxInt {
			w.check(err)
		}
		w.note("sweep %s of %v: %d: %v", queue, space, how, err)
	})
}

// governs sets random settings of a queue.
func (w *world) governs() {
	space, queue, to := w.anySpace(), pick(w, "a", "b"), lease.Settings{Paused: w.one(5)}
	if w.one(3) {
		to.MaxInflight = 1 + w.rng.Uint32N(3)
	}
	if w.one(3) {
		to.Rate = lease.Rate{PerSecond: pick(w, 0.2, 1, 10), Burst: w.rng.Uint32N(3)}
	}
	if w.one(3) {
		to.Weights = map[string]float64{"f": pick(w, 0.1, 3, 10)}
	}
	w.do(func(e *Engine) {
		_, err := e.UpdateQueue(w.Context(), space, queue, func(s *lease.Settings) { *s = to })
		w.check(err)
		w.note("queue %s of %v: %+v", queue, space, to)
	})
}

func (w *world) sleeps() {
	d := pick(w, time.Millisecond, 100*time.Millisecond, time.Second, time.Second, 6*time.Second, 11*time.Second, 70*time.Second)
	time.Sleep(d)
	w.note("sleep %v", d)
}

// restarts stops the coordinator gracefully, or kills it. All streams are lost.
func (w *world) restarts() {
	cfg := w.cfg
	if w.one(4) {
		cfg.Recovery = InvalidateLeases
	}
	w.stops()
	w.start(cfg)
}

// restores makes a backup, or starts the coordinator from the backup. The same backup may be
// restored several times.
func (w *world) restores() {
	if w.backup == nil || w.one(3) {
		w.backup = w.rig.backup()
		w.backedUp()
		w.note("backup")
		return
	}
	w.stops()
	time.Sleep(2 * time.Second) // a restore in the same second would begin the same epoch
	st, err := memstore.Restore(bytes.NewReader(w.backup))
	if err != nil {
		w.Fatal(err)
	}
	w.st = st
	if w.slow {
		w.slowDown()
	}
	w.restored()
	cfg := w.cfg
	cfg.Recovery = RestoredStore
	w.note("restore")
	w.start(cfg)
}

// stops stops the coordinator gracefully, or kills it. The workers lose their streams, and may
// still report about their leases.
func (w *world) stops() {
	killed := w.one(2)
	w.note("stop, killed: %v", killed)
	if killed {
		w.crash()
		w.verify()
		if w.slow {
			w.slowDown()
		}
	} else {
		w.answered.Wait()
		w.shutDown()
	}
	w.answered.Wait()
	for _, h := range w.clients {
		h.take()
		w.unary = append(w.unary, h.held...)
	}
	w.clients, w.watches, w.ends = nil, nil, nil
}

// heal ends all faults: it removes the limits of the queues, and workers with all capabilities
// complete everything. Then all tasks must end in time.
func (w *world) heal() {
	w.note("heal")
	w.slow = false
	w.st.(*memstore.Store).SetHook(nil)
	for _, space := range w.spaces {
		for _, queue := range []string{"a", "b"} {
			_, err := w.UpdateQueue(w.Context(), space, queue, func(s *lease.Settings) { *s = lease.Settings{} })
			w.check(err)
		}
	}
	for _, h := range w.clients {
		w.Leave(h.Member, true)
	}
	w.clients = nil
	for _, space := range w.spaces {
		for _, name := range workerNames {
			w.joinAs("healed "+space.Workspace,
				Wants{
					Space: space, Worker: name, Queues: []string{"a", "b", "rush"},
					Capabilities: lease.Capabilities{Features: []string{"gpu"}},
				}, 20)
		}
	}
	const patience = 10 * time.Minute // longer than any lease, backoff, grace or binding
	for begun := time.Now(); ; time.Sleep(time.Second) {
		w.consistent()
		left := onLoop(w.rig, func() tally { return w.Engine.spaces.total })
		clear(left.counts[countCompleted:])
		if left == (tally{}) || w.Failed() {
			return
		}
		if time.Since(begun) > patience {
			w.Errorf("%v after all faults are over, these tasks have not ended: %+v", patience, left)
			return
		}
		for _, h := range w.clients {
			// by a heartbeat: a session that has lost a lease gets no work until then
			w.Heard(h.Wants.Space.Tenant, h.Session)
			h.take()
			for _, g := range h.held {
				about := lease.Report{TaskID: g.Task.ID.String(), LeaseID: g.LeaseID, Session: h.Session}
				start, complete := about, about
				start.Kind = lease.KindStart
				complete.Kind, complete.Result = lease.KindComplete, &lease.Result{Output: []byte("done")}
				w.reports(g.Task.Tenant, &start, &complete)
			}
			h.held = nil
		}
	}
}

// forgets deletes all tasks, and checks that nothing of them is left in memory when their ledgers
// have expired.
func (w *world) forgets() {
	w.note("forget")
	for _, h := range w.clients {
		w.Leave(h.Member, true)
	}
	for _, space := range w.spaces {
		_, err := w.Sweep(w.Context(), Sweep{Space: space, Choose: func(t *lease.Task) (lease.Command, bool) {
			return lease.Delete{Tenant: space.Tenant, Task: t.ID}, false
		}})
		w.check(err)
	}
	time.Sleep(lease.LedgerAfterDelete + time.Minute)
	w.consistent()
	for _, watch := range w.watches {
		watch.Close()
	}
	if w.ends != nil {
		w.ends.Close()
	}
	left := onLoop(w.rig, func() map[string]int {
		n := map[string]int{
			"tasks": len(w.set.tasks), "ledger": len(w.set.ledger), "idempotency keys": len(w.set.keys), "late results": len(w.set.discards),
			"orphans": len(w.sessions.orphans), "requests": len(w.requests.byKey), "alarms": w.alarms.set.Len(),
			"timers":  w.timers.serving.leased.Len() + w.timers.serving.rest.entries.Len() + w.timers.wall.leased.Len() + w.timers.wall.rest.entries.Len() + w.timers.recent.Len(),
			"workers": len(w.workers.byKey), "sessions": len(w.sessions.byID) + len(w.sessions.current), "throttled queues": w.agenda.throttled.Len(), "readings": len(w.lines.readings),
			"watches": len(w.hub.tasks) + len(w.hub.runs), "who waits for ends": len(w.hub.ends), "words of attempts": len(w.hub.recent) + w.hub.output,
		}
		for _, s := range w.Engine.spaces.byNumber {
			n["concurrency keys"] += len(s.keys) + s.blockers.Len()
			n["affinity keys"] += len(s.bindings) + len(s.affinityLines)
			for _, q := range s.queues {
				n["takers"] += q.attending + q.available.Len()
				n["lines"] += q.waiting.Len()
			}
		}
		return n
	})
	for what, n := range left {
		if n != 0 {
			w.Errorf("%d %s are left of tasks and workers that are gone", n, what)
		}
	}
}

// check reports an error of a call, unless the engine was stopped meanwhile.
func (w *world) check(err error) {
	w.Helper()
	if err != nil && !errors.Is(err, ErrStopped) && !errors.Is(err, ErrStore) && !errors.Is(err, store.ErrClosed) {
		w.Error(err)
	}
}
