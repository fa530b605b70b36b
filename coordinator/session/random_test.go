package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/tasktoken"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
	"github.com/lessor-dev/lessor/store/verify"
	"github.com/lessor-dev/lessor/test/draw"
)

var histories = draw.NewHistories("./coordinator/session", quickHistories)

// historySteps is the number of steps of a history before its faults end.
const historySteps = 120

// Times of the sessions and tasks of a history.
const (
	heartbeats = 4 * time.Second
	idle       = 6 * heartbeats
	sendWithin = 5 * time.Second
	leaseTTL   = 10 * time.Second
)

var home = engine.Space{Tenant: "acme", Workspace: "default"}

// TestRandomHistories lets workers talk to the coordinator over lines that lose, double, swap and
// delay frames, stand still and break: peers, whose frames the test makes itself, and workers of
// the SDK. Producers and operators act meanwhile, commits may be slow, and the coordinator stops
// and crashes. The book compares all that is said on the lines with the contract, and after each
// step the memory of the sessions is compared with what must be in it. When the faults have ended
// all tasks must end, every session must get work, and when the workers have left nothing of them
// may stay in memory.
//
// The seed decides the steps and the faults. Ids, jitter and the order of goroutines are random, so
// a seed may need several runs until it fails again.
func TestRandomHistories(t *testing.T) {
	t.Attr("rules", "W4 W5 W6 W7 W8 W9 W10 W13")
	defer func(most int) { maxOperations = most }(maxOperations)
	maxOperations = 1 // so that operations are forgotten while workers carry them out
	histories.Play(t, playHistory)
}

// playHistory plays the history of one seed.
func playHistory(t *testing.T, seed uint64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed)
		defer func() {
			if t.Failed() {
				t.Logf("the last steps:\n%s", strings.Join(w.journal[max(0, len(w.journal)-60):], "\n"))
			}
		}()
		for n := 0; n < historySteps && !t.Failed(); n++ {
			w.step()
			w.settle()
		}
		if !t.Failed() {
			w.heal()
		}
		w.end()
	})
}

// world is a coordinator with its workers, producers and operators.
type world struct {
	*testing.T
	rng      *rand.Rand
	slow     bool          // commits take time
	misses   int           // heartbeats after which a session is lost
	slack    time.Duration // for how long the reader of a line may be at a frame that nothing comes of
	book     *book
	peers    []*peer
	sdks     []*sdk
	tasks    []lease.TaskID    // that may not have ended
	seen     map[string]string // the leases that were counted, and the instance that had each
	busy     sync.WaitGroup    // calls under way
	given    []PackageOrder    // to workers
	ordering chan bool         // one order is given at a time

	eng        *engine.Engine
	quotas     *quota.Book
	open       *Registry
	stop       context.CancelFunc // ends the streams
	stopEngine context.CancelFunc
	ran        chan error
	restarted  atomic.Int32
	over       context.Context // ends all lines
	hangUp     context.CancelFunc
	st         atomic.Pointer[memstore.Store]

	mu      sync.Mutex // guards the rest
	streams *Server    // nil: the coordinator does not run
	lines   map[*line]*Server
	dialed  int
	seeds   *rand.Rand
	calm    bool      // there are no faults any more
	healed  time.Time // since when; zero: there are some
	fates   map[fate]int
	journal []string
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{
		T: t, rng: rand.New(rand.NewPCG(seed, 0)), seeds: rand.New(rand.NewPCG(seed, 1)), seen: map[string]string{},
		lines: map[*line]*Server{},
		fates: map[fate]int{}, ordering: make(chan bool, 1),
	}
	w.book = newBook(w)
	w.over, w.hangUp = context.WithCancel(context.Background())
	w.st.Store(memstore.New())
	w.misses = 3
	if w.slow = w.one(3); w.slow {
		w.misses, w.slack = 1000, sendWithin+time.Second // see await
	}
	w.book.slow = w.slow
	w.start()
	if w.slow {
		w.slowDown()
	}
	for n, name := range []string{"ann", "bob", "cid"} {
		w.peers = append(w.peers, &peer{
			w: w, name: name, instance: name + "1", numbered: n < 2 || w.one(2), ended: map[string]bool{},
			done: map[string]bool{}, drained: map[string]bool{},
			missed: map[string]bool{}, installs: !w.one(4), packages: map[string]lessorv1.PackageStatus{"p@1": installed},
		})
	}
	for n := range w.rng.IntN(3) {
		w.sdks = append(w.sdks, newSDK(w, fmt.Sprintf("sdk%d", n)))
	}
	return w
}

// start starts a coordinator on the store.
func (w *world) start() {
	st := w.st.Load()
	eng, err := engine.Open(st, engine.Config{})
	if err != nil {
		w.Errorf("start: %v", err)
		return
	}
	running, stopEngine := context.WithCancel(context.Background())
	stopping, stop := context.WithCancel(context.Background())
	w.eng, w.stop, w.stopEngine, w.ran, w.open = eng, stop, stopEngine, make(chan error, 1), NewRegistry()
	w.quotas = quota.New(quota.Config{}, func(quota.Caller, *quota.Error, bool) {})
	ran, starts := w.ran, w.restarted.Load()
	go func() { ran <- eng.Run(running) }()
	cfg := Config{HeartbeatInterval: heartbeats, IdleTimeout: idle, SendTimeout: sendWithin}
	cfg.Health.Missed = w.misses
	cfg.Fill()
	tokens := convert.Tokens{Signer: tasktoken.New(eng.DeriveKey(tasktoken.Purpose), time.Hour)}
	assigner := &convert.Assigner{Tokens: tokens}
	streams := New(Deps{
		Config: cfg, Limits: lease.DefaultLimits(), Version: "test", Logger: slog.New(slog.DiscardHandler), Engine: eng,
		Quotas: w.quotas, Tokens: tokens,
		Registry: w.open, View: st.View, Stopping: stopping,
		AuditPackage: func(_ context.Context, worker string, end *lessorv1.PkgEvent, code string, asked bool) {
			if w.restarted.Load() == starts {
				w.book.audit(worker, end, code, asked)
			}
		},
		Assign: func(credential string, granted []engine.Granted) (all []*lessorv1.Assignment, err error) {
			err = st.View(func(r store.Reader) error {
				all, err = assigner.Assignments(r, eng.Now(), credential, granted)
				return err
			})
			return all, err
		},
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.streams = streams
}

// shutDown stops the coordinator in order, or kills it: then nothing more reaches the store, and
// all lines break.
func (w *world) shutDown(kill bool) {
	w.mu.Lock()
	w.streams = nil
	var lines []*line
	for l := range w.lines {
		lines = append(lines, l)
	}
	w.mu.Unlock()
	w.restarted.Add(1)
	if kill {
		left := w.st.Load().Reopen()
		for _, l := range lines {
			l.cut()
		}
		w.stopEngine()
		w.st.Store(left)
	}
	w.stop()
	for _, l := range lines {
		select {
		case <-l.ended:
		case <-time.After(time.Minute):
			w.Errorf("%s: the coordinator does not end it", l.name)
		}
	}
	w.stopEngine()
	if err := <-w.ran; err != nil && !kill {
		w.Errorf("the engine ended with %v", err)
	}
	w.busy.Wait()
	w.book.restarted()
}

// slowDown makes the commits of the current store slow.
func (w *world) slowDown() {
	rng := rand.New(rand.NewPCG(w.rng.Uint64(), 0))
	w.st.Load().SetHook(func(_ context.Context, _ *store.Batch, apply func()) error {
		time.Sleep(time.Duration(rng.Int64N(int64(200 * time.Millisecond))))
		apply()
		return nil
	})
}

// one reports true once in n times.
func (w *world) one(n int) bool { return w.rng.IntN(n) == 0 }

func pick[T any](w *world, of ...T) T { return of[w.rng.IntN(len(of))] }

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.journal = append(w.journal, fmt.Sprintf("%8.3fs ", time.Since(epoch).Seconds())+fmt.Sprintf(format, args...))
}

// epoch is the time at which the clock of a bubble begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// do makes a call to the engine. It waits for the answer, unless commits are slow.
func (w *world) do(call func(e *engine.Engine) error) {
	e := w.eng
	checked := func() {
		if err := call(e); err != nil && !errors.Is(err, engine.ErrStopped) && !errors.Is(err, engine.ErrStore) && !isState(err) {
			w.Error(err)
		}
	}
	if !w.slow {
		checked()
		return
	}
	w.busy.Go(checked)
}

// isState reports whether a command was refused because of the task's state, or because the task is
// gone.
func isState(err error) bool {
	var state *lease.StateError
	return errors.As(err, &state) || errors.Is(err, lease.ErrNotFound)
}

// task reads a task; nil: there is none.
func (w *world) task(id string) (t *lease.Task) {
	parsed, _ := lease.ParseTaskID(id)
	return w.taskOf(parsed)
}

func (w *world) taskOf(id lease.TaskID) (t *lease.Task) {
	_ = w.st.Load().View(func(r store.Reader) (err error) { // fails when the coordinator is being killed
		t, err = records.Task(r, id)
		return err
	})
	return t
}

// step does one random thing.
func (w *world) step() {
	type step struct {
		weight int
		do     func()
	}
	draw.One(w.rng, []step{
		{12, w.submits},
		{16, w.connects},
		{4, w.breaks},
		{4, w.blocks},
		{30, w.reports},
		{8, w.beats},
		{5, w.acknowledges},
		{5, w.resizes},
		{5, w.repeats},
		{3, w.errs},
		{2, w.leaves},
		{6, w.commands},
		{4, w.operates},
		{6, w.orders},
		{10, w.packs},
		{16, w.sleeps},
		{1, w.restarts},
	}, func(s step) int { return s.weight }).do()
}

func (w *world) submits() {
	specs := make([]*lease.Spec, 1+w.rng.IntN(4))
	for n := range specs {
		specs[n] = w.spec(pick(w, "a", "b"))
	}
	w.note("submit %d", len(specs))
	w.submit(specs...)
}

func (w *world) spec(queue string) *lease.Spec {
	s := &lease.Spec{
		Queue: queue, Type: "t", Payload: []byte("x"), HeartbeatTimeout: leaseTTL, HeartbeatInterval: leaseTTL / 4,
		CancelGrace: 3 * time.Second,
		Retry:       lease.RetryPolicy{MaxAttempts: 100, MaxLosses: 100, InitialBackoff: time.Second, MaxBackoff: 5 * time.Second},
	}
	if w.one(6) {
		s.ConcurrencyKey = "k"
	}
	if w.one(4) {
		s.Requirements = &lease.Requirements{Package: pick(w, "p", "p@1", "q", "q@2")}
	}
	return s
}

func (w *world) submit(specs ...*lease.Spec) {
	for _, s := range specs {
		if err := s.Fill(lease.DefaultLimits()); err != nil {
			w.Error(err)
		}
	}
	w.do(func(e *engine.Engine) error {
		made, _, err := e.Submit(context.Background(), home, specs, make([]lease.Digest, len(specs)))
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, m := range made {
			w.tasks = append(w.tasks, m.Task.ID)
		}
		return err
	})
}

func (w *world) anyPeer() *peer { return pick(w, w.peers...) }

// talking returns a peer whose session is open; nil: there is none.
func (w *world) talking() *peer {
	var open []*peer
	for _, p := range w.peers {
		p.mu.Lock()
		if p.line != nil && p.accepted {
			open = append(open, p)
		}
		p.mu.Unlock()
	}
	if len(open) == 0 {
		return nil
	}
	return pick(w, open...)
}

// connects lets a peer open a line. If it has one already, that one is left behind.
func (w *world) connects() {
	p := w.anyPeer()
	p.mu.Lock()
	has, tokens := p.line != nil, slices.Clone(p.tokens)
	p.lazy = w.one(6)
	p.mu.Unlock()
	if has && !w.one(4) {
		return
	}
	resume := p.resume()
	how, replaces := "with what it knows", ""
	switch w.rng.IntN(15) {
	case 0:
		resume, how = nil, "anew"
	case 1:
		if len(tokens) > 0 {
			resume, how = pick(w, tokens...), "with an old token"
		}
	case 2:
		if resume != nil {
			resume.SessionToken, how = resume.GetSessionToken()[1:], "with a forged token"
		}
	case 3:
		if resume != nil && resume.GetLastSeenSeq() > 0 {
			has := resume.GetLastSeenSeq()
			resume.LastSeenSeq, how = w.rng.Uint64N(has+3), "with another seq"
			p.mu.Lock()
			p.missed[resume.GetSessionId()] = p.missed[resume.GetSessionId()] || resume.GetLastSeenSeq() > has
			p.mu.Unlock()
		}
	case 4:
		if o := w.anyPeer(); o != p && o.resume() != nil {
			resume, how = o.resume(), "with the token of "+o.name
		}
	case 5:
		if resume != nil && len(tokens) > 0 {
			resume.SessionId, how = pick(w, tokens...).GetSessionId(), "with the id of an earlier session"
		}
	case 6:
		p.mu.Lock()
		replaces, resume = p.instance, nil
		p.instance, p.id, p.token = fmt.Sprintf("%s%d", p.name, w.rng.IntN(1000)+10), "", ""
		p.mu.Unlock()
		how = "in place of " + replaces
	}
	w.note("%s connects %s: %d", p.name, how, resume.GetLastSeenSeq())
	p.connect(resume, replaces)
}

// breaks breaks a line.
func (w *world) breaks() {
	if l := w.anyLine(); l != nil {
		w.note("%s breaks", l.name)
		l.cut()
	}
}

// anyLine returns one of the lines, left ones included; nil: there is none.
func (w *world) anyLine() *line {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*line
	for l := range w.lines {
		all = append(all, l)
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b *line) int { return strings.Compare(a.name, b.name) })
	return pick(w, all...)
}

// blocks lets a line stand still in one direction or both, or lets it go on.
func (w *world) blocks() {
	l := w.anyLine()
	if l == nil {
		return
	}
	up, down := w.one(3), w.one(2)
	w.note("%s blocks up: %v, down: %v", l.name, up, down)
	l.up.set(func() { l.up.blocked = up })
	l.down.set(func() { l.down.blocked = down })
}

// reports lets a peer report about one of the leases that it got, perhaps one that has ended, or of
// which the outcome was reported.
func (w *world) reports() {
	p := w.talking()
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.held) == 0 {
		return
	}
	a := pick(w, p.held...)
	if w.one(2) {
		a = p.held[len(p.held)-1]
	}
	var all []*lessorv1.Report
	switch w.rng.IntN(8) {
	case 0, 1:
		all = append(all, p.begin(a))
	case 2:
		all = append(all, p.fail(a, pick(w, "broken", "torn")))
	case 3:
		all = append(all, p.release(a))
	case 4:
		all = append(all, p.begin(a), p.complete(a, "done"))
	default:
		all = append(all, p.complete(a, pick(w, "done", "done", "made")))
	}
	if w.one(5) {
		all = append(all, all...)
	}
	w.note("%s reports %d on %s", p.name, len(all), a.GetTask().GetTaskId())
	p.report(all...)
}

// beats lets a peer send a heartbeat, or several, or say that it is not well.
func (w *world) beats() {
	p := w.talking()
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	healthy := !w.one(8)
	var metrics map[string]float64
	if w.one(4) {
		metrics = map[string]float64{memPct: pick(w, 10.0, 84, 88, 92)}
	}
	w.note("%s beats, healthy %v, %v", p.name, healthy, metrics)
	for range pick(w, 1, 1, 3) {
		p.beat(healthy, metrics)
	}
}

// acknowledges lets a peer acknowledge what it has taken, perhaps late.
func (w *world) acknowledges() {
	if p := w.talking(); p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.newest == "" {
			return
		}
		w.note("%s acknowledges %s", p.name, p.newest)
		f := p.named(nil)
		f.Ack = &lessorv1.Ack{For: p.newest, Request: w.one(3)}
		p.line.sendUp(f)
	}
}

// resizes lets a peer ask for other slots, or for none any more.
func (w *world) resizes() {
	p := w.talking()
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch n := uint32(w.rng.IntN(5)); {
	case w.one(8):
		w.note("%s drains", p.name)
		p.drained[p.id] = true
		p.say(&lessorv1.Drain{Reason: "by chance"})
	case w.one(4):
		w.note("%s registers again, %d slots", p.name, n)
		p.say(p.registration(n))
	default:
		w.note("%s has %d slots", p.name, n)
		p.say(&lessorv1.Capacity{MaxParallel: n})
	}
}

// repeats lets a peer send a frame once more, or leave one out.
func (w *world) repeats() {
	p := w.talking()
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case w.one(3) && p.numbered:
		w.note("%s leaves a frame out", p.name)
		f := p.named(&lessorv1.Capacity{MaxParallel: 1 + uint32(w.rng.IntN(3))})
		f.Seq, f.Ack = p.next, &lessorv1.Ack{Request: true}
		p.next++
		p.kept = append(p.kept, f) // it is sent when it is asked for
		p.beat(true, nil)
		p.say(&lessorv1.Feedback{})
	case len(p.unjudged) > 0 && w.one(2):
		w.note("%s repeats reports", p.name)
		p.report(pick(w, p.unjudged...).reports...)
	case len(p.sent) > 0:
		f := pick(w, p.sent...)
		w.note("%s sends %d again", p.name, f.GetSeq())
		p.send(f)
	}
}

// errs lets a peer send what is of no use: frames that are wrong, or old, or not for the state of
// its session.
func (w *world) errs() {
	p := w.talking()
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w.note("%s errs", p.name)
	switch w.rng.IntN(4) {
	case 0:
		p.say(&lessorv1.Handshake{Protocol: Protocol, Worker: &lessorv1.WorkerInfo{Name: p.name}})
	case 1:
		p.say(p.registration(0))
	case 2:
		if len(p.held) > 0 {
			a := pick(w, p.held...)
			p.say(&lessorv1.Error{Code: "E.CMD.CONCURRENCY_VIOLATION", TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId()})
		}
	case 3:
		p.say(&lessorv1.Error{Code: "E.RESULT.SEQ_GAP", ExpectedSeq: max(p.taken, 2) + 1 - w.rng.Uint64N(2)})
	}
}

// leaves lets a peer say goodbye.
func (w *world) leaves() {
	if p := w.talking(); p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		w.note("%s says goodbye", p.name)
		p.say(&lessorv1.Goodbye{})
	}
}

// commands cancels or deletes a task, or pauses a queue.
func (w *world) commands() {
	queue, paused, how := pick(w, "a", "b"), w.one(2), w.rng.IntN(4)
	w.mu.Lock()
	if how == 0 || len(w.tasks) == 0 {
		w.mu.Unlock()
		w.note("queue %s paused: %v", queue, paused)
		w.pause(queue, paused)
		return
	}
	id := pick(w, w.tasks...)
	w.mu.Unlock()
	w.note("cancel or delete %v: %d", id, how)
	w.do(func(e *engine.Engine) (err error) {
		if how == 1 {
			return e.Delete(context.Background(), lease.Delete{Tenant: home.Tenant, Task: id, Force: true})
		}
		_, err = e.Cancel(context.Background(), lease.Cancel{Tenant: home.Tenant, Task: id})
		return err
	})
}

func (w *world) pause(queue string, paused bool) {
	w.do(func(e *engine.Engine) error {
		_, err := e.UpdateQueue(context.Background(), home, queue, func(s *lease.Settings) { s.Paused = paused })
		return err
	})
}

// operates drains a worker, takes that back, or kicks it.
func (w *world) operates() {
	name := w.anyPeer().name
	if len(w.sdks) > 0 && w.one(4) {
		name = pick(w, w.sdks...).name
	}
	some := w.open.Named(home.Tenant, name, "")
	if len(some) == 0 {
		return
	}
	instance := lease.InstanceOf(some[0].ID())
	switch n := w.rng.IntN(5); {
	case n == 0 && !w.slow && !strings.HasPrefix(name, "sdk"):
		w.note("an operator drains %s", name)
		w.book.drained(instance, true)
		w.open.Drain(some[:1], &lessorv1.Drain{Reason: "by chance"}, "ann")
	case n == 1 && !w.slow:
		w.note("an operator kicks %s and takes its leases", name)
		var removed []*engine.Member
		w.do(func(e *engine.Engine) (err error) {
			removed, _, err = e.Revoke(context.Background(), home.Tenant, []string{instance}, false, "by chance")
			return err
		})
		some[0].Kick("by chance", 0, true, "ann")
		for _, other := range w.open.OfMembers(removed) {
			other.Kick("by chance", 0, true, "ann")
		}
	case n == 2:
		w.note("an operator kicks %s", name)
		some[0].Kick("by chance", 0, false, "ann")
	case !w.slow:
		w.note("an operator lets %s go on", name)
		w.open.Drain(some[:1], nil, "ann")
		w.book.drained(instance, false)
	}
}

func (w *world) sleeps() {
	d := pick(w, time.Millisecond, 100*time.Millisecond, 500*time.Millisecond, time.Second, time.Second, 3*time.Second,
		6*time.Second, 13*time.Second, 30*time.Second)
	time.Sleep(d)
	w.note("sleep %v", d)
}

// restarts stops or kills the coordinator, and starts it again.
func (w *world) restarts() {
	// No process starts in the nanosecond in which the one before it has issued a session token:
	// the time orders tokens over restarts.
	kill, away := w.one(2), pick(w, time.Microsecond, time.Microsecond, time.Second)
	w.note("restart, killed: %v, away %v", kill, away)
	w.shutDown(kill)
	time.Sleep(away)
	if !kill {
		w.st.Store(w.st.Load().Reopen())
	}
	w.start()
	if w.slow {
		w.slowDown()
	}
}

// settle lets everything happen that needs no time, and checks that nothing contradicts the
// contract.
func (w *world) settle() {
	synctest.Wait()
	if !w.Failed() {
		w.book.settled(!w.slow)
		w.count()
		w.inspect()
		if !w.slow {
			w.inspectPackages()
		}
	}
}

// count looks at the live leases: each was handed out, and no instance was granted more than it has
// slots (W4). A lease that an instance has taken over from another one since the last count, by
// naming it in a frame, may have come on top of what it was granted.
func (w *world) count() {
	now := time.Now()
	w.mu.Lock()
	tasks := slices.Clone(w.tasks)
	w.mu.Unlock()
	live, fresh := map[string]int{}, map[string]time.Time{}
	var left []lease.TaskID
	for _, id := range tasks {
		t := w.taskOf(id)
		if t == nil {
			continue
		}
		left = append(left, id)
		if t.Lease == nil {
			continue
		}
		instance := lease.InstanceOf(t.Lease.Session)
		leaseID := w.eng.LeaseID(t.Holding())
		w.book.granted(w, instance, leaseID, t)
		before := w.seen[leaseID]
		w.seen[leaseID] = instance
		if before == "" {
			if before = grantedTo(t); before == instance {
				w.book.checkStock(instance, t)
			}
			if at := t.Lease.GrantedAt.Time(); before == instance && (fresh[instance].IsZero() || at.Before(fresh[instance])) {
				fresh[instance] = at
			}
		}
		if before == instance {
			live[instance]++
		}
	}
	w.mu.Lock()
	w.tasks = append(left, w.tasks[len(tasks):]...)
	w.mu.Unlock()
	for instance, at := range fresh {
		if w.slow {
			at = at.Add(-4 * time.Second) // so long the coordinator may take to hear of fewer slots
		}
		if most := w.book.mostRoom(instance, at); live[instance] > most {
			w.Errorf("instance %s has %d leases, and at most %d slots since %v; now it is %v",
				instance, live[instance], most, at, now)
		}
	}
}

// grantedTo returns the instance to which the live lease of a task was granted.
func grantedTo(t *lease.Task) (instance string) {
	for _, e := range t.Events() {
		if e.Type == lease.EventGranted && e.Attempt == t.Lease.Attempt {
			instance = lease.InstanceOf(e.Detail)
		}
	}
	return instance
}

// heal ends all faults. Then all tasks must end in time, and all sessions must get work.
func (w *world) heal() {
	w.note("heal")
	w.mu.Lock()
	w.calm = true
	lines := w.lines
	w.mu.Unlock()
	w.busy.Wait()
	w.st.Load().SetHook(nil)
	time.Sleep(mostLate)
	w.slow = false
	w.book.quickens()
	for _, queue := range []string{"a", "b"} {
		w.pause(queue, false)
	}
	for _, name := range w.names() {
		if some := w.open.Named(home.Tenant, name, ""); len(some) > 0 {
			w.open.Drain(some, nil, "ann")
		}
	}
	for _, instance := range w.book.drainedOnes() {
		w.open.rememberDrain(home.Tenant, instance, nil)
		w.book.drained(instance, false)
	}
	w.mu.Lock()
	for l := range lines {
		l.up.heal()
		l.down.heal()
	}
	w.mu.Unlock()
	synctest.Wait()
	for _, p := range w.peers {
		p.heal()
	}
	w.mu.Lock()
	w.healed = time.Now()
	w.mu.Unlock()
	w.finish("all tasks")
	time.Sleep(2 * time.Minute) // for operations of which only a worker knows
	for _, p := range w.peers {
		w.submit(w.spec(p.name))
	}
	for _, s := range w.sdks {
		spec := w.spec(s.name)
		spec.Requirements = s.requirements()
		w.submit(spec)
	}
	w.finish("a task for each worker")
	for _, s := range w.sdks {
		s.checkPackages()
	}
}

// names returns the names of all workers.
func (w *world) names() (all []string) {
	for _, p := range w.peers {
		all = append(all, p.name)
	}
	for _, s := range w.sdks {
		all = append(all, s.name)
	}
	return all
}

// heal lets the peer do all that a worker has to do. It goes on with the session that it has,
// unless that one is of no more use.
func (p *peer) heal() {
	p.mu.Lock()
	p.diligent, p.lazy, p.packages = true, false, allPackages(installed)
	again := p.line == nil || !p.accepted || p.useless() || p.w.book.isOver(p.line)
	if again && p.line != nil {
		p.line.cut()
		p.line = nil
	}
	if !again {
		p.say(p.registration(6))
		p.carryOutAll()
		p.beat(true, nil)
		p.finish()
		p.mu.Unlock()
		return
	}
	p.finish()
	p.mu.Unlock()
	p.connect(p.resume(), "")
}

// finish waits until all tasks have ended, and all reports have their verdicts.
func (w *world) finish(what string) {
	const patience = 5 * time.Minute // longer than any lease, backoff or grace
	for begun := time.Now(); !w.Failed(); time.Sleep(500 * time.Millisecond) {
		w.settle()
		left := w.unfinished()
		if len(left) == 0 {
			return
		}
		if time.Since(begun) > patience {
			w.Errorf("%s: %v after all faults are over, this is left: %s", what, patience, strings.Join(left, "\n"))
		}
	}
}

// unfinished tells what has not ended.
func (w *world) unfinished() (left []string) {
	for _, id := range w.tasks {
		if t := w.taskOf(id); t != nil && !t.State().Final() {
			left = append(left, fmt.Sprintf("task %v of queue %s is %v: %+v", id, t.Spec.Queue, t.State(), t.Lease))
		}
	}
	for _, p := range w.peers {
		p.mu.Lock()
		if len(p.unjudged)+len(p.kept) > 0 {
			left = append(left, fmt.Sprintf("%s has %d frames of reports without verdicts, and %d frames that are not acknowledged", p.name, len(p.unjudged), len(p.kept)))
		}
		if p.line == nil {
			left = append(left, p.name+" has no line")
		} else if last := w.book.lastSaid(p.line); p.taken != last {
			left = append(left, fmt.Sprintf("%s has taken %d of %d frames", p.name, p.taken, last))
		}
		p.mu.Unlock()
	}
	return append(left, w.book.openOrders()...)
}

// end lets all workers leave, and checks that nothing of them stays in memory.
func (w *world) end() {
	good := !w.Failed()
	for _, p := range w.peers {
		if good {
			p.mu.Lock()
			if p.line != nil {
				p.say(&lessorv1.Goodbye{})
			}
			p.mu.Unlock()
		}
	}
	for _, s := range w.sdks {
		s.stop(good)
	}
	synctest.Wait()
	for _, p := range w.peers {
		p.stop()
	}
	w.hangUp()
	time.Sleep(2*keepFor + drainMemory)
	synctest.Wait()
	if good {
		w.book.concludes()
		w.inspect()
		w.empty()
	}
	if w.slow {
		w.st.Load().SetHook(nil)
	}
	w.shutDown(false)
	if good {
		w.verify()
	}
}

// verify checks all records of the store and their relations, as `lessor verify` does.
func (w *world) verify() {
	err := w.st.Load().View(func(r store.Reader) error {
		_, err := verify.Store(r, func(f verify.Finding) { w.Errorf("%v %x: %s", f.Keyspace, f.Key, f.Problem) })
		return err
	})
	if err != nil {
		w.Error(err)
	}
}
