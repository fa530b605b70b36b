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
	profiles = flag.String("soak.profiles", "", "directory for heap profiles: start.pb.gz, half.pb.gz, end.pb.gz; their differences tell what has grown")
)

func TestMain(m *testing.M) { harness.Main(m) }

// samples are taken at equal distances.
const samples = 120

// shortest is how long a load must last so that all that is bounded is full when the second half begins. The heads of the timers take longest: 4,096 tasks
// that have been deleted, at nearly fifty a second.
const shortest = 4 * time.Minute

// kept is how long a task is kept after its end: short, so that the store comes to a level within the first half.
const kept = 10 * time.Second

// lost is how long a lease lives that nobody renews: short, too.
const lost = 6 * time.Second

// Under a load that stays the same, nothing grows: not the heap after a collection, goroutines, open files, nor the part of the store's file that is in
// use, but for the ledgers of tasks that have gone. A line through the second half of the samples may rise by no more than the bound over that half; the first
// is for what has to come to its level.
func TestNothingGrows(t *testing.T) {
	c := harness.NewCoordinator(t, t.TempDir())
	c.Start("--http", "127.0.0.1:0", "--pprof", "--log-level", "error")
	l, stop := load(t, c)
	every := time.NewTicker(max(*soakFor, shortest) / samples)
	defer every.Stop()
	all := make([]sample, 0, samples)
	for began := time.Now(); len(all) < samples; {
		<-every.C
		s := look(t, c)
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
		t.Errorf("%.0f tasks are no load", end.tasks)
	}
	for _, m := range measures {
		rise := slope(all[samples/2:], m.of)
		level := m.of(half)
		if bound := max(m.least, level*m.share) + m.each*(end.tasks-half.tasks); rise > bound {
			t.Errorf("%s has risen by %.0f over the second half, from %.0f; the bound is %.0f", m.name, rise, level, bound)
		}
	}
}

// sample is what is seen of the coordinator at one moment.
type sample struct {
	at                                          time.Duration
	tasks                                       float64 // that went through
	heap, goroutines, files, storeUse, storeAll float64
}

// ledger is how many bytes of the store a task may take that has gone: COMMITTED is replayed for an hour, longer than most loads last (A10). It takes 150, beside
// a share of the audit.
const ledger = 256

// measures are what must not grow, by how much they may over the second half: a share of where they stood, or so much in any case, and so much for each task.
var measures = []struct {
	name               string
	of                 func(sample) float64
	share, least, each float64
}{
	{"heap", func(s sample) float64 { return s.heap }, 0.10, 512 << 10, 0},
	{"goroutines", func(s sample) float64 { return s.goroutines }, 0.05, 5, 0},
	{"open files", func(s sample) float64 { return s.files }, 0, 3, 0},
	{"store in use", func(s sample) float64 { return s.storeUse }, 0.10, 512 << 10, ledger},
	{"store", func(s sample) float64 { return s.storeAll }, 0.10, 20 << 20, ledger}, // it grows by 16 MiB at once
}

// slope is by how much a straight line through the samples rises from the first to the last: the one with the least squares.
func slope(all []sample, of func(sample) float64) float64 {
	var x, y, xx, xy float64
	n := float64(len(all))
	for i, s := range all {
		x, y, xx, xy = x+float64(i), y+of(s), xx+float64(i*i), xy+float64(i)*of(s)
	}
	return (n*xy - x*y) / (n*xx - x*x) * (n - 1)
}

// A line that rises is seen to, and noise about a level is not.
func TestSlope(t *testing.T) {
	rising, level := make([]sample, 60), make([]sample, 60)
	for i := range rising {
		noise := float64(i * 7919 % 11)
		rising[i].heap, level[i].heap = 100+float64(i)+noise, 100+noise
	}
	heap := measures[0].of
	if up, flat := slope(rising, heap), slope(level, heap); up < 55 || up > 63 || flat > 3 || flat < -3 {
		t.Errorf("a rise of 59 is taken for %.1f, and none for %.1f", up, flat)
	}
}

func report(t *testing.T, all []sample) {
	t.Helper()
	t.Logf("%8s %10s %10s %6s %12s %12s", "at", "heap KiB", "goroutines", "files", "in use KiB", "store KiB")
	for i := 0; i < len(all); i += len(all) / 20 {
		s := all[i]
		t.Logf("%8s %10.0f %10.0f %6.0f %12.0f %12.0f", s.at.Round(time.Second), s.heap/1024, s.goroutines, s.files, s.storeUse/1024, s.storeAll/1024)
	}
	for _, m := range measures {
		t.Logf("%-12s rises by %.0f over the second half, from %.0f", m.name, slope(all[len(all)/2:], m.of), m.of(all[len(all)/2]))
	}
}

// look takes a sample. What it asks for takes memory, too: the heap is read from the head of its profile, as it stood right after a collection of garbage. It is
// the second one in a row, as pools keep what is in them over one.
func look(t *testing.T, c *harness.Coordinator) sample {
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
		storeAll: metrics["lessor_store_bytes"],
	}
	s.storeUse = s.storeAll - metrics["lessor_store_free_bytes"]
	if s.heap == 0 || s.goroutines == 0 || s.storeAll == 0 {
		t.Fatalf("a sample lacks something: %+v", s)
	}
	return s
}

// profile keeps a heap profile, if one is wanted: the difference of two tells what has grown.
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

// get reads the lines of an answer that end with a number; what is before it is the name.
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

// load begins a mix of everything that is done every day, at a steady pace.
func load(t *testing.T, c *harness.Coordinator) (l *loader, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l = &loader{t: t, ctx: ctx, tasks: lessorv1.NewTaskServiceClient(c.Conn()), workers: lessorv1.NewWorkerServiceClient(c.Conn())}
	for _, do := range []struct {
		every time.Duration
		what  func(i int) error
	}{
		{20 * time.Millisecond, l.submit},
		{50 * time.Millisecond, l.workByHand},
		{500 * time.Millisecond, l.fleeting},
		{time.Second, l.look},
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
	done    atomic.Int64 // tasks that went through
}

// repeat does something at a pace until the load ends.
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
		Queue: []string{"sdk", "hand"}[i%2], Payload: make([]byte, i*37%2000), Retention: durationpb.New(kept), HeartbeatTimeout: durationpb.New(lost),
		RetryPolicy: &lessorv1.RetryPolicy{MaxAttempts: 2, InitialBackoff: durationpb.New(10 * time.Millisecond)},
	}
	if i%5 == 0 {
		spec.ConcurrencyKey, spec.ConcurrencyLimit = fmt.Sprint("k", i%3), 1
	}
	m, err := l.tasks.SubmitTask(l.ctx, &lessorv1.SubmitTaskRequest{Task: spec})
	if err == nil && i%200 == 0 { // seldom: each leaves an entry in the audit, which is kept for long
		_, err = l.tasks.CancelTask(l.ctx, &lessorv1.CancelTaskRequest{TaskId: m.GetTask().GetTaskId()})
		if status.Code(err) == codes.FailedPrecondition { // it was faster
			err = nil
		}
	}
	return err
}

// workByHand leases and reports, and now and then lets a lease run out.
func (l *loader) workByHand(i int) error {
	m, err := l.workers.Lease(l.ctx, &lessorv1.LeaseRequest{WorkerId: "hand", Queues: []string{"hand"}, MaxTasks: 4})
	for _, a := range m.GetAssignments() {
		if err != nil || i%50 == 7 {
			break
		}
		_, err = l.workers.Complete(l.ctx, &lessorv1.CompleteRequest{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), Output: a.GetTask().GetSpec().GetPayload()})
		l.done.Add(1)
	}
	return err
}

// fleeting opens a session and leaves it without a word.
func (l *loader) fleeting(i int) error {
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

func (l *loader) look(int) error {
	m, err := l.tasks.ListTasks(l.ctx, &lessorv1.ListTasksRequest{Filter: &lessorv1.TaskFilter{}, PageSize: 50})
	for _, task := range m.GetTasks() {
		_, err := l.tasks.GetTask(l.ctx, &lessorv1.GetTaskRequest{TaskId: task.GetTaskId()})
		if err != nil && status.Code(err) != codes.NotFound {
			return err
		}
	}
	return err
}

// watch follows a task for a while.
func (l *loader) watch(int) error {
	m, err := l.tasks.SubmitTask(l.ctx, &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "sdk", Retention: durationpb.New(kept)}})
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
