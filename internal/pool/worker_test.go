package pool

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// fakes starts processes that do what the test says.
type fakes struct {
	mu   sync.Mutex
	pids int
	last *fake
	// stubborn processes ignore SIGTERM.
	stubborn bool
}

// fake is a process.
type fake struct {
	pid    int
	stub   bool
	ends   chan ending // the test ends the process
	gone   chan struct{}
	signal []string
	mu     sync.Mutex
}

func (f *fakes) launch(_ command, started func(int), supervise func(running)) ending {
	f.mu.Lock()
	f.pids++
	p := &fake{pid: f.pids, stub: f.stubborn, ends: make(chan ending, 1), gone: make(chan struct{})}
	f.last = p
	f.mu.Unlock()
	started(p.pid)
	var watching sync.WaitGroup
	watching.Go(func() { supervise(p) })
	end := <-p.ends
	close(p.gone)
	watching.Wait()
	return end
}

// obey says whether the processes that are started from now on end when they get SIGTERM.
func (f *fakes) obey(obey bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stubborn = !obey
}

func (f *fakes) process() *fake {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

func (p *fake) say(signal string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signal = append(p.signal, signal)
}

func (p *fake) signals() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.signal, " ")
}

func (p *fake) terminate() {
	p.say("TERM")
	if !p.stub {
		p.end(ending{ok: true, text: "exit code 0"})
	}
}

func (p *fake) kill()                   { p.say("KILL"); p.end(ending{text: "signal: killed"}) }
func (p *fake) exited() <-chan struct{} { return p.gone }

func (p *fake) end(e ending) {
	select {
	case p.ends <- e:
	default: // it has ended already
	}
}

var (
	success = ending{ok: true, text: "exit code 0"}
	crash   = ending{text: "exit code 3"}
)

// world is a supervisor of one pool with fake processes, on a fake clock.
type world struct {
	*testing.T
	*Supervisor
	fakes *fakes
	stop  context.CancelFunc
	kill  context.CancelFunc
	ended chan struct{}
}

// newWorld needs a synctest bubble.
func newWorld(t *testing.T, text string) *world {
	t.Helper()
	config, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s := New(config, Options{Token: "secret", URL: "http://127.0.0.1:1", Output: io.Discard, Log: slog.New(slog.DiscardHandler)})
	w := &world{T: t, Supervisor: s, fakes: &fakes{}, ended: make(chan struct{})}
	for _, p := range s.pools {
		for _, worker := range p.workers {
			worker.launch = w.fakes.launch
		}
	}
	return w
}

// start runs the first worker.
func (w *world) start() {
	ctx, stop := context.WithCancel(context.Background())
	hard, kill := context.WithCancel(context.Background())
	w.stop, w.kill = stop, kill
	go func() {
		defer close(w.ended)
		w.worker().run(ctx, hard)
	}()
	synctest.Wait()
}

// close ends what start began.
func (w *world) close() {
	w.stop()
	w.kill()
	<-w.ended
}

func (w *world) worker() *worker { return w.pools[0].workers[0] }

// after lets time pass.
func (w *world) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// want checks the state of the first worker, and how many processes it had.
func (w *world) want(state lessorv1.PoolWorkerState, starts uint32) {
	w.Helper()
	synctest.Wait()
	if v := w.worker().show(); v.GetState() != state || v.GetStarts() != starts {
		w.Errorf("the worker is %v after %d starts, want %v after %d; %v", v.GetState(), v.GetStarts(), state, starts, v)
	}
}

// says makes the process say that it is ready, or drains.
func (w *world) says(code codes.Code, vram uint64, said lessorv1.WorkerStatus) {
	w.Helper()
	_, err := service{Supervisor: w.Supervisor}.NotifyReady(context.Background(), &lessorv1.NotifyReadyRequest{
		WorkerId: w.worker().id, PoolId: w.pools[0].id, Status: said, VramUsedBytes: vram,
	})
	if status.Code(err) != code {
		w.Errorf("the answer to %v with %d bytes is %v, want %v", said, vram, err, code)
	}
	synctest.Wait()
}

func (w *world) saysReady(code codes.Code, vram uint64) {
	w.Helper()
	w.says(code, vram, lessorv1.WorkerStatus_WORKER_STATUS_READY)
}

func (w *world) saysFailed(code codes.Code) {
	w.Helper()
	_, err := service{Supervisor: w.Supervisor}.NotifyFailed(context.Background(), &lessorv1.NotifyFailedRequest{
		WorkerId: w.worker().id, PoolId: w.pools[0].id, Message: "no memory",
	})
	if status.Code(err) != code {
		w.Errorf("the answer to failed is %v, want %v", err, code)
	}
	synctest.Wait()
}

const (
	onePool   = "pools: [{id: p, command: [sh]}]"
	slowStart = "pools: [{id: p, command: [sh], ready_timeout: 1m, drain_timeout: 10s}]"
)

// Without ready_timeout, a process is ready once it runs.
func TestProcessIsReadyWhenItRuns(t *testing.T) {
	t.Attr("rules", "P1")
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, onePool)
		w.start()
		w.want(ready, 1)
		if pid := w.worker().show().GetPid(); pid != 1 {
			t.Errorf("pid %d, want 1", pid)
		}
		w.close()
	})
}

// With ready_timeout, it is ready as soon as it says so, and a list shows that at once.
func TestProcessIsReadyWhenItSaysSo(t *testing.T) {
	t.Attr("rules", "P1 P4")
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, slowStart)
		w.start()
		w.want(starting, 1)
		w.after(59 * time.Second)
		w.saysReady(codes.OK, 5)
		w.want(ready, 1)
		list, err := service{Supervisor: w.Supervisor}.ListPools(t.Context(), &lessorv1.ListPoolsRequest{})
		if err != nil || list.GetPools()[0].GetWorkersReady() != 1 || list.GetPools()[0].GetWorkers()[0].GetVramUsedBytes() != 5 {
			t.Errorf("the list is %v (%v), want one ready worker with 5 bytes", list, err)
		}
		w.worker().late()  // the timeout at the same moment
		w.after(time.Hour) // the timeout is over
		w.want(ready, 1)
		w.close()
	})
}

// A process that does not say in time that it is ready is stopped, and the next one follows after
// the backoff.
func TestProcessThatIsNotReadyInTime(t *testing.T) {
	t.Attr("rules", "P1")
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, slowStart)
		w.start()
		first := w.fakes.process()
		w.after(time.Minute)
		w.want(waiting, 1)
		if first.signals() != "TERM" {
			t.Errorf("the process got %q, want TERM", first.signals())
		}
		v := w.worker().show()
		if wait := time.Until(v.GetNextStartAt().AsTime()); wait != time.Second || !strings.Contains(v.GetLastFailure(), "1m0s") || v.GetPid() != 0 {
			t.Errorf("the worker waits %v: %v; want 1s, the timeout as the failure, and no pid", wait, v)
		}
		w.after(time.Second)
		w.want(starting, 2)
		w.close()
	})
}

// A process that fails is started again after a wait that doubles up to the greatest one; it begins
// anew once a process was ready for longer.
func TestRestartsBackOff(t *testing.T) {
	t.Attr("rules", "P1")
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "pools: [{id: p, command: [sh], restart_backoff: 1s, restart_backoff_max: 5s}]")
		w.start()
		starts := uint32(1)
		for _, wait := range []time.Duration{1, 2, 4, 5, 5} {
			w.fakes.process().end(crash)
			w.want(waiting, starts)
			w.after(wait*time.Second - 1)
			w.want(waiting, starts)
			starts++
			w.after(1)
			w.want(ready, starts)
		}
		w.after(5*time.Second + 1)
		w.fakes.process().end(crash)
		w.after(time.Second)
		w.want(ready, starts+1)
		w.close()
	})
}

// How long the process before was ready says nothing about one that never was.
func TestBackoffOfProcessesThatAreNotReady(t *testing.T) {
	t.Attr("rules", "P1")
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, slowStart)
		w.start()
		w.saysReady(codes.OK, 5)
		w.after(time.Hour)
		w.fakes.process().end(crash)
		w.after(time.Second)
		w.want(starting, 2)
		w.fakes.process().end(crash)
		w.after(2*time.Second - 1)
		w.want(waiting, 2)
		w.after(1)
		w.want(starting, 3)
		w.close()
	})
}

// A failure that the process before has left behind, because it ended at that moment, does not end
// the next one.
func TestFailureOfTheProcessBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, slowStart)
		w.worker().failure <- struct{}{}
		w.start()
		w.want(starting, 1)
		w.close()
	})
}

// A process may notify before the supervisor knows that it runs.
func TestProcessThatNotifiesAtOnce(t *testing.T) {
	w := newWorld(t, onePool)
	w.worker().noteStarting()
	if err := w.worker().notifyFailed("no memory"); err != nil {
		t.Error(err)
	}
	w.worker().noteStarted(7)
	if v := w.worker().show(); v.GetState() != failed || v.GetPid() != 7 {
		t.Errorf("got %v, want the process 7, which has failed", v)
	}
}

// The workers of a pool are listed by their numbers, whatever their order in the file.
func TestWorkersAreListedByNumber(t *testing.T) {
	w := newWorld(t, "pools: [{id: p, command: [sh], gpus: [10, 2]}]")
	if v := w.pools[0].show().GetWorkers(); v[0].GetWorkerId() != "p-2" || v[1].GetWorkerId() != "p-10" {
		t.Errorf("got %v, want p-2 before p-10", v)
	}
}

// A process that ends with exit code 0 has done so on purpose, unless the file says otherwise.
func TestSuccessIsNotRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, onePool)
		w.start()
		w.fakes.process().end(success)
		w.want(stopped, 1)
		<-w.ended
		w.close()
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "pools: [{id: p, command: [sh], restart: always}]")
		w.start()
		w.fakes.process().end(success)
		w.want(waiting, 1)
		w.after(time.Second)
		w.want(ready, 2)
		w.close()
	})
}

// A stop drains: SIGTERM, and SIGKILL after drain_timeout, or at once with the second signal.
func TestStopDrains(t *testing.T) {
	t.Attr("rules", "P1")
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, slowStart)
		w.fakes.obey(false)
		w.start()
		w.saysReady(codes.OK, 1)
		w.stop()
		w.want(draining, 1)
		w.after(10*time.Second - 1)
		w.want(draining, 1)
		w.after(1)
		w.want(stopped, 1)
		if got := w.fakes.process().signals(); got != "TERM KILL" {
			t.Errorf("the process got %q, want TERM KILL", got)
		}
		w.close()
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, slowStart)
		w.fakes.obey(false)
		w.start()
		w.stop()
		w.want(draining, 1)
		w.saysReady(codes.FailedPrecondition, 1) // it is too late
		w.kill()
		w.want(stopped, 1)
		w.close()
	})
}

// A stop ends the wait for the next process.
func TestStopWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, onePool)
		w.start()
		w.fakes.process().end(crash)
		w.want(waiting, 1)
		w.stop()
		w.want(stopped, 1)
		if v := w.worker().show(); v.GetLastFailure() != "exit code 3" || v.GetNextStartAt() != nil {
			t.Errorf("got %v, want the last failure and no next start", v)
		}
		w.close()
	})
}

// The same notification again is harmless; another one for a live process comes from somebody else.
func TestNotificationsOfALiveProcess(t *testing.T) {
	t.Attr("rules", "P3")
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, slowStart)
		w.start()
		w.saysReady(codes.OK, 5)
		w.saysReady(codes.OK, 5)
		w.saysReady(codes.AlreadyExists, 6)
		if n := w.worker().show().GetVramUsedBytes(); n != 5 {
			t.Errorf("%d bytes, want 5: those of the first notification", n)
		}
		w.says(codes.OK, 0, lessorv1.WorkerStatus_WORKER_STATUS_DRAINING)
		w.want(draining, 1)
		w.says(codes.OK, 0, lessorv1.WorkerStatus_WORKER_STATUS_DRAINING)
		w.saysReady(codes.OK, 5) // a repeat of a notification whose answer was lost
		w.want(draining, 1)
		w.fakes.process().end(success)
		w.want(stopped, 1)
		w.close()
	})
}

// Nothing that a dead process says is about the next one, which may say something else.
func TestNotificationsOfADeadProcess(t *testing.T) {
	t.Attr("rules", "P3")
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, slowStart)
		w.start()
		w.saysReady(codes.OK, 5)
		w.fakes.process().end(crash)
		w.want(waiting, 1)
		w.saysReady(codes.FailedPrecondition, 5)
		w.saysFailed(codes.FailedPrecondition)
		if n := w.worker().show().GetVramUsedBytes(); n != 0 {
			t.Errorf("%d bytes, want 0: the process has ended", n)
		}
		w.after(time.Second)
		w.want(starting, 2)
		w.saysReady(codes.OK, 6)
		w.want(ready, 2)
		w.close()
	})
}

// A process that says that it failed is stopped, killed if it does not end, and followed by the
// next one, even if its exit code is 0.
func TestProcessThatSaysThatItFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, slowStart)
		w.fakes.obey(false)
		w.start()
		w.saysFailed(codes.OK)
		w.want(failed, 1)
		w.saysFailed(codes.OK)
		w.saysReady(codes.FailedPrecondition, 5)
		w.says(codes.OK, 0, lessorv1.WorkerStatus_WORKER_STATUS_DRAINING) // as a process may that gets SIGTERM
		w.want(failed, 1)
		w.after(answerWait + 10*time.Second)
		w.want(waiting, 1)
		if v := w.worker().show(); v.GetLastFailure() != "no memory" {
			t.Errorf("the last failure is %q, want what the process said", v.GetLastFailure())
		}
		w.fakes.obey(true)
		w.after(time.Second)
		w.saysFailed(codes.OK)
		w.after(answerWait)
		w.want(waiting, 2)
		w.close()
	})
}

// A process that says that it failed gets SIGTERM a moment after the answer, and none if it has
// ended by then. A stop of the pool does not wait.
func TestSignalAfterAFailure(t *testing.T) {
	for name, test := range map[string]struct {
		then func(w *world)
		want string
	}{
		"stays":         {func(w *world) { w.after(answerWait) }, "TERM"},
		"a moment less": {func(w *world) { w.after(answerWait - 1) }, ""},
		"ends":          {func(w *world) { w.fakes.process().end(crash); w.after(answerWait) }, ""},
		"pool stops":    {func(w *world) { w.stop(); synctest.Wait() }, "TERM"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, slowStart)
				w.fakes.obey(false)
				w.start()
				process := w.fakes.process()
				w.saysFailed(codes.OK)
				test.then(w)
				if got := process.signals(); got != test.want {
					t.Errorf("the process got %q, want %q", got, test.want)
				}
				w.close()
			})
		})
	}
}
