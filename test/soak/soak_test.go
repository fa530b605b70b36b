//go:build long

package soak

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/harness"
	"github.com/lessor-dev/lessor/worker"
)

var (
	soakFor  = flag.Duration("soak.for", 10*time.Minute, "how long the load lasts; at least four minutes")
	profiles = flag.String("soak.profiles", "",
		"directory for heap profiles: start.pb.gz, half.pb.gz, end.pb.gz; their differences tell what has grown")
)

func TestMain(m *testing.M) { harness.Main(m) }

// samples is the number of samples, which are taken at equal intervals.
const samples = 120

// shortest is how long a load must last so that everything that is bounded has reached its bound
// when the second half begins. The heads of the timers take longest: 4,096 entries, of tasks that
// are deleted at nearly fifty a second.
const shortest = 4 * time.Minute

// retention is the retention of the tasks: short, so that the size of the store is steady within
// the first half.
const retention = 10 * time.Second

// heartbeatTimeout is the heartbeat timeout of the tasks: also short.
const heartbeatTimeout = 6 * time.Second

// Under a steady load nothing grows: neither the heap after a garbage collection, nor goroutines,
// open files, or the store's file, except for the ledgers of deleted tasks. A straight line through
// the samples of the second half may rise by no more than a bound. In the first half everything
// reaches its steady size.
func TestNothingGrows(t *testing.T) {
	c := harness.NewCoordinator(t, t.TempDir())
	c.Start("--http", "127.0.0.1:0", "--pprof", "--log-level", "error")
	l, stop := load(t, c)
	every := time.NewTicker(max(*soakFor, shortest) / samples)
	defer every.Stop()
	all := make([]sample, 0, samples)
	for began := time.Now(); len(all) < samples; {
		<-every.C
		s := takeSample(t, c)
		s.at, s.tasks = time.Since(began), float64(l.done.Load())
		all = append(all, s)
		switch len(all) {
		case 1:
			profile(t, c, "start.pb.gz")
		case samples / 2:
			profile(t, c, "half.pb.gz")
		case samples:
			profile(t, c, "end.pb.gz")
		}
	}
	stop()
	report(t, all)
	half, end := all[samples/2], all[samples-1]
	t.Logf("%.0f tasks went through", end.tasks)
	if end.tasks < samples {
		t.Errorf("%.0f tasks were completed, want at least %d: that is no load", end.tasks, samples)
	}
	for _, m := range measures {
		rise := slope(all[samples/2:], m.of)
		level := m.of(half)
		if bound := max(m.least, level*m.share) + m.each*(end.tasks-half.tasks); rise > bound {
			t.Errorf("%s has risen by %.0f over the second half, from %.0f; the bound is %.0f", m.name, rise, level, bound)
		}
	}
}

// sample is what was measured at one moment.
type sample struct {
	at                                          time.Duration
	tasks                                       float64 // tasks that were completed so far
	heap, goroutines, files, storeUse, storeAll float64
}

// ledger bounds how many bytes of the store a deleted task takes: its verdict is replayed for an
// hour (A10), which is longer than most loads last. It takes about 150 bytes, and a share of the
// audit.
const ledger = 256

// measures are what must not grow, and by how much each may rise over the second half: by share of
// its level or by least, whichever is larger, plus each for every task.
var measures = []struct {
	name               string
	of                 func(sample) float64
	share, least, each float64
}{
	{"heap", func(s sample) float64 { return s.heap }, 0.10, 512 << 10, 0},
	{"goroutines", func(s sample) float64 { return s.goroutines }, 0.05, 5, 0},
	{"open files", func(s sample) float64 { return s.files }, 0, 3, 0},
	{"store in use", func(s sample) float64 { return s.storeUse }, 0.10, 512 << 10, ledger},
	// the file grows in steps of 16 MiB
	{"store", func(s sample) float64 { return s.storeAll }, 0.10, 20 << 20, ledger},
}

// slope returns by how much the least-squares line through the samples rises from the first to the
// last.
func slope(all []sample, of func(sample) float64) float64 {
	var x, y, xx, xy float64
	n := float64(len(all))
	for i, s := range all {
		x, y, xx, xy = x+float64(i), y+of(s), xx+float64(i*i), xy+float64(i)*of(s)
	}
	return (n*xy - x*y) / (n*xx - x*x) * (n - 1)
}

// slope finds a rise, and returns nearly 0 for noise without a rise.
func TestSlope(t *testing.T) {
	rising, level := make([]sample, 60), make([]sample, 60)
	for i := range rising {
		noise := float64(i * 7919 % 11)
		rising[i].heap, level[i].heap = 100+float64(i)+noise, 100+noise
	}
	heap := measures[0].of
	if up, flat := slope(rising, heap), slope(level, heap); up < 55 || up > 63 || flat > 3 || flat < -3 {
		t.Errorf("slope of a rise by 59 = %.1f, want 55 to 63; slope without a rise = %.1f, want -3 to 3", up, flat)
	}
}

func report(t *testing.T, all []sample) {
	t.Helper()
	t.Logf("%8s %10s %10s %6s %12s %12s", "at", "heap KiB", "goroutines", "files", "in use KiB", "store KiB")
	for i := 0; i < len(all); i += len(all) / 20 {
		s := all[i]
		t.Logf("%8s %10.0f %10.0f %6.0f %12.0f %12.0f",
			s.at.Round(time.Second), s.heap/1024, s.goroutines, s.files, s.storeUse/1024, s.storeAll/1024)
	}
	for _, m := range measures {
		t.Logf("%-12s rises by %.0f over the second half, from %.0f",
			m.name, slope(all[len(all)/2:], m.of), m.of(all[len(all)/2]))
	}
}

// takeSample takes a sample. The request itself takes memory, too, so the heap is read from the
// head of a heap profile, where it is as it was right after a garbage collection. Of two such
// profiles it uses the second: pools keep their content over one collection.
func takeSample(t *testing.T, c *harness.Coordinator) sample {
	t.Helper()
	get(t, c, "/debug/pprof/heap?gc=1&debug=1")
	heap := get(t, c, "/debug/pprof/heap?gc=1&debug=1")
	metrics := get(t, c, "/metrics")
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", c.Process().Pid()))
	if err != nil {
		t.Fatal(err)
	}
	s := sample{
		files: float64(len(files)), heap: heap["# HeapAlloc ="], goroutines: metrics["go_goroutines"],
		storeUse: metrics["lessor_store_used_bytes"], storeAll: metrics["lessor_store_bytes"],
	}
	if s.heap == 0 || s.goroutines == 0 || s.storeUse == 0 || s.storeAll == 0 {
		t.Fatalf("a sample lacks something: %+v", s)
	}
	return s
}

// profile writes a heap profile to a file, if -soak.profiles is given.
func profile(t *testing.T, c *harness.Coordinator, name string) {
	t.Helper()
	if *profiles == "" {
		return
	}
	res, err := http.Get("http://" + c.HTTP() + "/debug/pprof/heap?gc=1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	bytes, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*profiles, name), bytes, 0o600); err != nil {
		t.Fatal(err)
	}
}

// get returns the numbers at the ends of an answer's lines, by the text before them.
func get(t *testing.T, c *harness.Coordinator, path string) map[string]float64 {
	t.Helper()
	res, err := http.Get("http://" + c.HTTP() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", path, res.Status)
	}
	values := map[string]float64{}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		space := max(0, strings.LastIndexByte(line, ' '))
		if n, err := strconv.ParseFloat(strings.TrimSpace(line[space:]), 64); err == nil {
			values[line[:space]] = n
		}
	}
	_, _ = io.Copy(io.Discard, res.Body)
	return values
}

// load begins a mix of all everyday calls, at a steady pace.
func load(t *testing.T, c *harness.Coordinator) (l *loader, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l = &loader{
		t: t, ctx: ctx, tasks: lessorv1.NewTaskServiceClient(c.Conn()),
		workers: lessorv1.NewWorkerServiceClient(c.Conn()),
	}
	for _, do := range []struct {
		every time.Duration
		what  func(i int) error
	}{
		{20 * time.Millisecond, l.submit},
		{50 * time.Millisecond, l.workByHand},
		{500 * time.Millisecond, l.openAndLeaveSession},
		{time.Second, l.readTasks},
		{2 * time.Second, l.watch},
	} {
		l.busy.Go(func() { l.repeat(do.every, do.what) })
	}
	w, err := worker.New(c.Conn(), []string{"sdk"}, worker.Config{Logger: slog.New(slog.DiscardHandler), Concurrency: 8})
	if err != nil {
		t.Fatal(err)
	}
	w.HandleDefault(func(_ context.Context, task *worker.Task) ([]byte, error) {
		l.done.Add(1)
		if len(task.Payload)%7 == 3 {
			return nil, fmt.Errorf("fails now and then")
		}
		return task.Payload, nil
	})
	l.busy.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Errorf("the worker ended: %v", err)
		}
	})
	return l, func() {
		cancel()
		l.busy.Wait()
	}
}

type loader struct {
	t       *testing.T
	ctx     context.Context //nolint:containedctx // the load ends with it
	tasks   lessorv1.TaskServiceClient
	workers lessorv1.WorkerServiceClient
	busy    sync.WaitGroup
	done    atomic.Int64 // how many tasks were completed
}

// repeat calls do at a steady pace until the load ends.
func (l *loader) repeat(every time.Duration, do func(i int) error) {
	pace := time.NewTicker(every)
	defer pace.Stop()
	for i := 0; ; i++ {
		select {
		case <-l.ctx.Done():
			return
		case <-pace.C:
		}
		if err := do(i); err != nil && status.Code(err) != codes.Canceled && l.ctx.Err() == nil {
			l.t.Error(err)
		}
	}
}

func (l *loader) submit(i int) error {
	spec := &lessorv1.TaskSpec{
		Queue: []string{"sdk", "hand"}[i%2], Payload: make([]byte, i*37%2000), Retention: durationpb.New(retention),
		HeartbeatTimeout: durationpb.New(heartbeatTimeout),
		RetryPolicy:      &lessorv1.RetryPolicy{MaxAttempts: 2, InitialBackoff: durationpb.New(10 * time.Millisecond)},
	}
	if i%5 == 0 {
		spec.ConcurrencyKey, spec.ConcurrencyLimit = fmt.Sprint("k", i%3), 1
	}
	m, err := l.tasks.SubmitTask(l.ctx, &lessorv1.SubmitTaskRequest{Task: spec})
	if err == nil && i%200 == 0 { // seldom, because each leaves an entry in the audit, which is kept for long
		_, err = l.tasks.CancelTask(l.ctx, &lessorv1.CancelTaskRequest{TaskId: m.GetTask().GetTaskId()})
		if status.Code(err) == codes.FailedPrecondition { // the task ended first
			err = nil
		}
	}
	return err
}

// workByHand leases and completes tasks by unary calls, and now and then lets leases expire.
func (l *loader) workByHand(i int) error {
	m, err := l.workers.Lease(l.ctx, &lessorv1.LeaseRequest{WorkerId: "hand", Queues: []string{"hand"}, MaxTasks: 4})
	for _, a := range m.GetAssignments() {
		if err != nil || i%50 == 7 {
			break
		}
		_, err = l.workers.Complete(l.ctx,
			&lessorv1.CompleteRequest{
				TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(),
				Output: a.GetTask().GetSpec().GetPayload(),
			})
		l.done.Add(1)
	}
	return err
}

// openAndLeaveSession opens a session and leaves it without a goodbye.
func (l *loader) openAndLeaveSession(i int) error {
	ctx, leave := context.WithCancel(l.ctx)
	defer leave()
	stream, err := l.workers.Session(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&lessorv1.SessionRequest{
		Id: "1", Tenant: "default", Sender: &lessorv1.Sender{Role: "worker", Id: "fleeting"},
		Payload: &lessorv1.SessionRequest_Handshake{Handshake: &lessorv1.Handshake{
			Protocol: 1, Worker: &lessorv1.WorkerInfo{Name: "fleeting", InstanceId: fmt.Sprint("i", i)},
		}},
	}); err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}

func (l *loader) readTasks(int) error {
	m, err := l.tasks.ListTasks(l.ctx, &lessorv1.ListTasksRequest{Filter: &lessorv1.TaskFilter{}, PageSize: 50})
	for _, task := range m.GetTasks() {
		_, err := l.tasks.GetTask(l.ctx, &lessorv1.GetTaskRequest{TaskId: task.GetTaskId()})
		if err != nil && status.Code(err) != codes.NotFound {
			return err
		}
	}
	return err
}

// watch follows a task for up to a second.
func (l *loader) watch(int) error {
	m, err := l.tasks.SubmitTask(l.ctx, &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "sdk", Retention: durationpb.New(retention)}})
	if err != nil {
		return err
	}
	ctx, leave := context.WithTimeout(l.ctx, time.Second)
	defer leave()
	stream, err := l.tasks.WatchTask(ctx, &lessorv1.WatchTaskRequest{TaskId: m.GetTask().GetTaskId()})
	for err == nil {
		_, err = stream.Recv()
	}
	if errors.Is(err, io.EOF) || status.Code(err) == codes.DeadlineExceeded {
		return nil
	}
	return err
}
