package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/verify"
)

var home = Space{Tenant: "acme", Workspace: "default"}

// rig is an engine in a synctest bubble, with short helpers for the tests.
type rig struct {
	*testing.T
	*Engine
	st           store.Store
	stop         context.CancelFunc
	done         chan error
	liveByEvents int // live leases, counted by the events as an observer does; only the loop may use it
}

// run runs test in a bubble of fake time with a new engine over an empty store.
func run(t *testing.T, test func(r *rig)) {
	t.Helper()
	runWith(t, Config{}, test)
}

func runWith(t *testing.T, cfg Config, test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, st: memstore.New()}
		r.start(cfg)
		test(r)
		r.shutDown()
	})
}

func (r *rig) start(cfg Config) {
	r.Helper()
	r.open(cfg)
	r.serve()
}

func (r *rig) open(cfg Config) {
	r.Helper()
	r.observe(&cfg.Events)
	e, err := Open(r.st, cfg)
	if err != nil {
		r.Fatal(err)
	}
	r.Engine, r.liveByEvents = e, e.set.live
}

// observe counts the live leases by the events.
func (r *rig) observe(events *Events) {
	granted, ended := events.Granted, events.LeaseEnded
	events.Granted = func(t *lease.Task, waited time.Duration) {
		if r.liveByEvents++; granted != nil {
			granted(t, waited)
		}
	}
	events.LeaseEnded = func(t *lease.Task, cause lease.Reason) {
		if r.liveByEvents--; ended != nil {
			ended(t, cause)
		}
	}
}

func (r *rig) serve() {
	ctx, cancel := context.WithCancel(r.Context())
	e, done := r.Engine, make(chan error, 1)
	r.stop, r.done = cancel, done
	go func() { done <- e.Run(ctx) }()
}

// onLoop calls read on the engine's loop, which alone may read the engine's memory, and returns the
// result. It works also while the engine is overloaded.
func onLoop[T any](r *rig, read func() T) (found T) {
	r.Helper()
	if err := r.inbox.await(home.Tenant, op{settles: true, must: true, run: func() { found = read() }}); err != nil {
		r.Fatal(err)
	}
	return found
}

// version returns the newest version of a task; nil if there is none.
func (r *rig) version(id lease.TaskID) *lease.Task {
	r.Helper()
	return onLoop(r, func() *lease.Task { return r.set.task(id) })
}

// lateResult returns the result of an attempt that came too late and is kept; nil if there is none.
func (r *rig) lateResult(id lease.TaskID, attempt uint32) *lease.Result {
	r.Helper()
	return onLoop(r, func() *lease.Result { return r.set.discarded(id, attempt) })
}

// shutDown stops the engine in an orderly way, and checks what it has left.
func (r *rig) shutDown() {
	r.Helper()
	r.consistent()
	r.checkRestart()
	r.stop()
	if err := <-r.done; err != nil {
		r.Fatal(err)
	}
	r.verify()
}

// verify checks all records of the store and their relations, as `lessor verify` does.
func (r *rig) verify() {
	r.Helper()
	err := r.st.View(func(rd store.Reader) error {
		_, err := verify.Store(rd, func(f verify.Finding) { r.Errorf("%v %x: %s", f.Keyspace, f.Key, f.Problem) })
		return err
	})
	if err != nil {
		r.Error(err)
	}
}

// restart stops the engine in an orderly way and starts it again.
func (r *rig) restart(cfg Config) {
	r.Helper()
	r.shutDown()
	r.start(cfg)
}

// kill takes the store away from the engine, as a crash does, and starts a new engine on what the
// store holds.
func (r *rig) kill() {
	r.Helper()
	r.crash()
	r.start(Config{})
}

// crash is a stop after which nothing more reaches the store.
func (r *rig) crash() {
	r.Helper()
	left := r.st.(*memstore.Store).Reopen()
	r.stop()
	if err := <-r.done; err != nil && !errors.Is(err, store.ErrClosed) {
		r.Log("the killed engine:", err)
	}
	r.st = left
}

// beforeCommits calls do on the committer before each commit is applied.
func (r *rig) beforeCommits(do func()) {
	r.st.(*memstore.Store).SetHook(func(_ context.Context, _ *store.Batch, apply func()) error {
		do()
		apply()
		return nil
	})
}

// holdCommit holds the next commit, and so all later ones, until release is called.
func (r *rig) holdCommit() (release func()) {
	held := make(chan struct{})
	var once sync.Once
	r.beforeCommits(func() { once.Do(func() { <-held }) })
	return func() { close(held) }
}

func (r *rig) submit(specs ...*lease.Spec) []*lease.Task {
	r.Helper()
	digests := make([]lease.Digest, len(specs))
	for _, s := range specs {
		if err := s.Fill(lease.DefaultLimits()); err != nil {
			r.Fatal(err)
		}
	}
	out, _, err := r.Submit(r.Context(), home, specs, digests)
	if err != nil {
		r.Fatal(err)
	}
	tasks := make([]*lease.Task, len(out))
	for i := range out {
		tasks[i] = out[i].Task
	}
	return tasks
}

// submitOne submits one task. Unlike rig.submit it may run in another goroutine than the test's,
// because it does not call FailNow.
func submitOne(r *rig) {
	spec := work()
	err := spec.Fill(lease.DefaultLimits())
	if err == nil {
		_, _, err = r.Submit(r.Context(), home, []*lease.Spec{spec}, make([]lease.Digest, 1))
	}
	if err != nil {
		r.Error(err)
	}
}

func (r *rig) lease(n int, wait time.Duration) []Granted {
	r.Helper()
	g, err := r.Lease(r.Context(), LeaseRequest{
		Wants: Wants{Space: home, Worker: "w", Queues: []string{"q"}}, Max: n,
		Wait: wait,
	})
	if err != nil {
		r.Fatal(err)
	}
	return g
}

func (r *rig) say(kind lease.Kind, g Granted) lease.Answer {
	r.Helper()
	rep := &lease.Report{Kind: kind, TaskID: g.Task.ID.String(), LeaseID: g.LeaseID}
	switch kind {
	case lease.KindComplete:
		rep.Result = &lease.Result{Output: []byte("done")}
	case lease.KindFail:
		rep.Failure = &lease.Failure{Message: "broken"}
	}
	a, err := r.Judge(r.Context(), home.Tenant, []*lease.Report{rep})
	if err != nil {
		r.Fatal(err)
	}
	return a[0]
}

func (r *rig) want(a lease.Answer, v lease.Verdict, reason lease.Reason) {
	r.Helper()
	if a.Verdict != v || a.Reason != reason {
		r.Errorf("the answer is %v / %v (%s), want %v / %v", a.Verdict, a.Reason, a.Detail, v, reason)
	}
}

// testSession is a session that records the grants and notices that it gets.
type testSession struct {
	mu        sync.Mutex
	granted   []Granted
	notices   []Notice
	displaced bool
	why       string // why it was displaced
	*Member
}

func (r *rig) join(instance string, slots int) (*testSession, string) {
	r.Helper()
	c := &testSession{}
	m := c.newMember(instance, Wants{Space: home, Worker: "w", Queues: []string{"q"}}, slots)
	r.Join(m)
	synctest.Wait()
	return c, m.Session
}

// joinFor is join with the given wants; the worker's name is also that of its instance.
func (r *rig) joinFor(w Wants, slots int) *testSession {
	r.Helper()
	c := &testSession{}
	r.Join(c.newMember(w.Worker, w, slots))
	synctest.Wait()
	return c
}

func (c *testSession) newMember(instance string, w Wants, slots int) *Member {
	c.Member = &Member{
		Session: NewSessionID(w.Space.Tenant, w.Worker, instance), Wants: w, Slots: slots,
		Deliver: func(g []Granted) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.granted = append(c.granted, g...)
		},
		Notify: func(n []Notice) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.notices = append(c.notices, n...)
		},
		Displaced: func(why string) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.displaced, c.why = true, why
		},
	}
	return c.Member
}

func (c *testSession) grants() []Granted {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.granted
}

// newGrants are the grants without those that were delivered again because the instance had never
// acknowledged them.
func (c *testSession) newGrants() (all []Granted) {
	for _, g := range c.grants() {
		if !g.Again {
			all = append(all, g)
		}
	}
	return all
}

func work() *lease.Spec { return &lease.Spec{Queue: "q", Payload: []byte("x")} }

func many(n int) []*lease.Spec {
	specs := make([]*lease.Spec, n)
	for i := range specs {
		specs[i] = work()
	}
	return specs
}
