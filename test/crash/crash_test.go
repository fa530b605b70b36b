//go:build faults

package crash

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/harness"
)

var (
	kills = flag.Int("kills", 40, "kills that hit calls under way")
	seed  = flag.Uint64("seed", 0, "what is drawn; 0: another one in each test")
)

func TestMain(m *testing.M) { harness.Main(m) }

// Who works during a round, besides the stream workers.
const (
	producers     = 3
	holders       = 8
	streamWorkers = 2
)

// TestKill: nothing that was acknowledged is lost or changed by kill -9, and holders of leases go
// on (A1-A6, A9, A10, V4, V5).
func TestKill(t *testing.T) {
	t.Parallel()
	r := newRounds(t, t.TempDir())
	r.end = r.c.Kill
	r.run(*kills)
}

// rounds holds the state of one test: in each round clients work until the coordinator is killed.
type rounds struct {
	t     *testing.T
	b     *book
	rand  *rand.Rand
	c     *harness.Coordinator
	check *comparer
	// end ends the coordinator in the middle of its work.
	end func()

	kills, hits int   // kills that cut off a call
	cut         int64 // calls that a kill cut off
	takenBack   int   // commits that a start took back
}

func newRounds(t *testing.T, dir string) *rounds {
	t.Helper()
	drawn := cmp.Or(*seed, rand.Uint64())
	t.Logf("seed %d", drawn)
	r := &rounds{t: t, b: newBook(t), rand: rand.New(rand.NewPCG(drawn, 0)), c: harness.NewCoordinator(t, dir)}
	r.check = &comparer{b: r.b, rand: r.rand}
	return r
}

// run goes on until that many kills have cut off calls.
func (r *rounds) run(hits int) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*harness.Patience+time.Duration(hits)*5*time.Second)
	defer cancel()
	r.c.Start()
	streams := startStreams(r.t, r.b, r.c.Follow(), streamWorkers)
	defer streams.drain() // in case the test ends early
	for r.hits < hits && !r.t.Failed() {
		r.work(ctx)
		if r.kills%5 == 0 {
			r.c.Verify() // the store as the kill left it
		}
		r.c.Start()
		if r.c.TookBack() {
			if r.takenBack++; !r.c.PowerCuts {
				r.t.Error("the start took back a commit after a kill without a power cut, want none: the kernel has all that was written")
			}
		}
		streams.restarted()
		r.look(ctx)
	}
	r.finish(ctx, streams)
	r.t.Log(r)
}

// work lets all clients work until enough calls were answered, and then kills the coordinator.
func (r *rounds) work(ctx context.Context) {
	m := newMeter(r.c.Conn(), 1+r.rand.Int64N(300))
	from := r.openAttempts()
	var busy sync.WaitGroup
	for i := range producers {
		p := &producer{b: r.b, tasks: lessorv1.NewTaskServiceClient(m), rand: r.fork()}
		busy.Go(func() { r.repeatUntilKilled(ctx, fmt.Sprintf("producer %d", i), p.step) })
	}
	for i := range holders {
		h := &holder{
			b: r.b, name: fmt.Sprintf("holder-%d", i), workers: lessorv1.NewWorkerServiceClient(m),
			rand: r.fork(), from: from,
		}
		busy.Go(func() { r.repeatUntilKilled(ctx, h.name, h.step) })
	}
	select {
	case <-m.enough:
	case <-ctx.Done():
		r.t.Fatalf("after %d kills: %v", r.kills, ctx.Err())
	}
	// Wait a random moment: the calls of one commit are answered together, and right after that the
	// next calls have hardly begun.
	sleep(ctx, time.Duration(r.rand.IntN(3000))*time.Microsecond)
	m.killIsNext()
	r.end()
	busy.Wait()
	r.count(m)
}

func (r *rounds) fork() *rand.Rand { return rand.New(rand.NewPCG(r.rand.Uint64(), 0)) }

// openAttempts returns the attempts that earlier rounds left open.
func (r *rounds) openAttempts() chan *attempt {
	open := r.b.held()
	from := make(chan *attempt, len(open))
	for _, a := range open {
		from <- a
	}
	return from
}

// repeatUntilKilled repeats a step until the coordinator is gone.
func (r *rounds) repeatUntilKilled(ctx context.Context, who string, step func(context.Context) error) {
	for {
		err := step(ctx)
		if noAnswer(err) {
			return
		}
		if err != nil {
			r.t.Errorf("%s: %v", who, err)
			return
		}
	}
}

func (r *rounds) count(m *meter) {
	r.kills++
	if cut := m.cut.Load(); cut > 0 {
		r.hits++
		r.cut += cut
	}
	if early := m.early.Load(); early > 0 {
		r.t.Errorf("%d calls got no answer before the kill, want none", early)
	}
}

// look compares the coordinator after a kill with the book.
func (r *rounds) look(ctx context.Context) {
	const sample, keyed = 50, 10 // how many other tasks to compare, and how many submits to repeat
	r.check.connect(r.c.Conn())
	r.check.settle(ctx)
	r.check.resubmit(ctx, keyed)
	r.check.compare(ctx, r.b.due(sample, r.rand))
}

// finish lets the streams end their work, and then compares everything.
func (r *rounds) finish(ctx context.Context, s *streams) {
	if r.t.Failed() {
		return
	}
	s.releaseHandlers()
	r.awaitStreams(ctx)
	s.drain()
	r.check.compare(ctx, r.b.all())
	r.check.stillAbsent(ctx)
	r.c.Stop()
	r.c.Verify()
}

// awaitStreams waits until every task on streamQueue is final or deleted.
func (r *rounds) awaitStreams(ctx context.Context) {
	for _, t := range r.b.all() {
		if t.queue != streamQueue {
			continue
		}
		stream, err := r.check.tasks.WatchTask(ctx, &lessorv1.WatchTaskRequest{TaskId: t.id})
		for err == nil {
			_, err = stream.Recv()
		}
		if ctx.Err() != nil {
			r.t.Errorf("task %s did not end: %v", t.id, err)
			return
		}
	}
}

func (r *rounds) String() string {
	n := r.b.counts
	return fmt.Sprintf(`%d kills, %d of them with calls under way; they cut %d calls off, and left %d commits to be taken back
acknowledged: %d submits of %d tasks, %d leases, %d starts and heartbeats, %d cancels, %d deletes
verdicts: %d COMMITTED, %d CANCELLED on unary reports; %d on streams, %d of them COMMITTED for attempts that outlived a kill
checked: %d times a task; %d verdicts replayed, %d other reports refused, %d submits repeated, %d held leases went on
without an answer: %d had happened, %d had not`,
		r.kills, r.hits, r.cut, r.takenBack, n.submits, n.tasks, n.leases, n.heartbeats, n.cancels, n.deletes,
		n.verdicts[committed], n.verdicts[cancelled], n.streamed, n.outlivedKill,
		n.compared, n.replays, n.duplicates, n.resubmits, n.held, n.unsureYes, n.unsureNo)
}
