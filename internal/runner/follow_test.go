package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/internal/words"
	"github.com/lessor-dev/lessor/lease"
)

// fakeCoordinator keeps tasks. It has no workers: a test decides when and how the task of a line
// ends.
type fakeCoordinator struct {
	lessorv1.TaskServiceClient // for the calls that a run does not make

	mu       sync.Mutex
	tasks    []*lessorv1.Task              // nil if deleted
	keys     map[string]int                // the index in tasks, by idempotency key
	sequence uint64                        // of the last event
	history  []*lessorv1.WatchTaskResponse // all events
	watches  []*fakeWatch
	after    []uint64 // the sequence after which each watch of the run was asked for
	// failingCalls is how many of the next calls fail with UNAVAILABLE.
	failingCalls int
	// failingWatches and refusedWatches are how many of the next watches fail with UNAVAILABLE
	// before there is a stream, and on their stream with refusal.
	failingWatches, refusedWatches int
	refusal                        error
	// refused is a kind of call that fails with PERMISSION_DENIED; empty: none.
	refused string
	// listed, if not nil, is called after each list of tasks.
	listed func()
	// held, if not nil, holds up the calls for the epoch until it is closed.
	held chan struct{}
	// batchLimit is how many tasks a batch may have; 0: any number, negative: none.
	batchLimit int
	// quota is how many tasks that have not ended there may be; 0: any number.
	quota int
	// badLine is a line that is refused; empty: none.
	badLine string
	// epoch rises with each restore.
	epoch uint32
	// calls counts the calls of each kind.
	calls map[string]int
}

func newFakeCoordinator() *fakeCoordinator {
	return &fakeCoordinator{keys: make(map[string]int), calls: make(map[string]int), epoch: 1}
}

func (f *fakeCoordinator) count(call string) error {
	f.calls[call]++
	if call == f.refused {
		return status.Error(codes.PermissionDenied, "not yours")
	}
	if f.failingCalls > 0 {
		f.failingCalls--
		return status.Error(codes.Unavailable, "gone for a moment")
	}
	return nil
}

func (f *fakeCoordinator) BatchSubmitTasks(
	_ context.Context, req *lessorv1.BatchSubmitTasksRequest, _ ...grpc.CallOption,
) (*lessorv1.BatchSubmitTasksResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.count("submit"); err != nil {
		return nil, err
	}
	if len(req.GetTasks()) == 0 || f.batchLimit != 0 && len(req.GetTasks()) > f.batchLimit {
		return nil, f.refuse("tasks")
	}
	if f.quota > 0 && f.open()+len(req.GetTasks()) > f.quota {
		return nil, errNoRoom()
	}
	for i, spec := range req.GetTasks() {
		if string(spec.GetPayload()) == f.badLine {
			return nil, f.refuse(fmt.Sprintf("tasks[%d].payload", i))
		}
	}
	for _, spec := range req.GetTasks() {
		if _, there := f.keys[spec.GetIdempotencyKey()]; there {
			continue
		}
		f.keys[spec.GetIdempotencyKey()] = len(f.tasks)
		f.tasks = append(f.tasks, &lessorv1.Task{
			TaskId: fmt.Sprintf("t%d", len(f.tasks)+1), Spec: proto.CloneOf(spec), State: lessorv1.TaskState_TASK_STATE_READY,
		})
	}
	return &lessorv1.BatchSubmitTasksResponse{}, nil
}

// open returns how many tasks have not ended.
func (f *fakeCoordinator) open() (n int) {
	for _, task := range f.tasks {
		if task.GetState() == lessorv1.TaskState_TASK_STATE_READY {
			n++
		}
	}
	return n
}

// errNoRoom is what a coordinator answers if the quota of tasks is used up.
func errNoRoom() error {
	st, err := status.New(codes.ResourceExhausted, "too many tasks").WithDetails(
		&errdetails.ErrorInfo{Reason: "QUOTA_TASKS", Domain: "lessor"},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)})
	if err != nil {
		return err
	}
	return st.Err()
}

func (f *fakeCoordinator) refuse(field string) error {
	st, err := status.New(codes.InvalidArgument, field+": is refused").WithDetails(&errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: field}},
	})
	if err != nil {
		return err
	}
	return st.Err()
}

// find returns the index of a task, or NOT_FOUND.
func (f *fakeCoordinator) find(id string) (int, error) {
	n, _ := strconv.Atoi(strings.TrimPrefix(id, "t"))
	if n < 1 || n > len(f.tasks) || f.tasks[n-1] == nil {
		return 0, status.Error(codes.NotFound, "no such task")
	}
	return n - 1, nil
}

func (f *fakeCoordinator) GetTask(
	_ context.Context, req *lessorv1.GetTaskRequest, _ ...grpc.CallOption,
) (*lessorv1.GetTaskResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.count("get"); err != nil {
		return nil, err
	}
	i, err := f.find(req.GetTaskId())
	if err != nil {
		return nil, err
	}
	return &lessorv1.GetTaskResponse{Task: proto.CloneOf(f.tasks[i])}, nil
}

// ListTasks returns pages of two tasks.
func (f *fakeCoordinator) ListTasks(
	_ context.Context, req *lessorv1.ListTasksRequest, _ ...grpc.CallOption,
) (*lessorv1.ListTasksResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.count("list"); err != nil {
		return nil, err
	}
	from, _ := strconv.Atoi(req.GetPageToken())
	from = min(from, len(f.tasks)) // a restore may have lost tasks
	to := min(from+2, len(f.tasks))
	page := &lessorv1.ListTasksResponse{}
	for _, task := range f.tasks[from:to] {
		states, key := req.GetFilter().GetStates(), req.GetFilter().GetIdempotencyKey()
		if task != nil && (len(states) == 0 || slices.Contains(states, task.GetState())) && (key == "" || key == task.GetSpec().GetIdempotencyKey()) {
			page.Tasks = append(page.Tasks, proto.CloneOf(task))
		}
	}
	if to < len(f.tasks) {
		page.NextPageToken = strconv.Itoa(to)
	}
	if f.listed != nil {
		f.listed()
	}
	return page, nil
}

// fakeWatch is a stream of the events of a task, or, if task is empty, of all tasks.
type fakeWatch struct {
	grpc.ClientStream
	ctx    context.Context
	task   string
	begun  bool // as a watch that is not refused
	events chan *lessorv1.WatchTaskResponse
	err    error // set before events is closed; the stream then ends with it
}

// Header returns at once. There are headers if the watch has begun.
func (w *fakeWatch) Header() (metadata.MD, error) {
	if !w.begun {
		return nil, nil
	}
	return metadata.MD{}, nil
}

func (w *fakeWatch) Recv() (*lessorv1.WatchTaskResponse, error) {
	select {
	case e, ok := <-w.events:
		switch {
		case !ok && w.err != nil:
			return nil, w.err
		case !ok:
			return nil, io.EOF
		}
		return e, nil
	case <-w.ctx.Done():
		return nil, status.FromContextError(w.ctx.Err()).Err()
	}
}

// testWorkspace has the runs of startRun.
const testWorkspace = "w"

// WatchTask sends the events of the run after a sequence, or the events of a task from now on. It
// refuses a sequence that no event has had.
func (f *fakeCoordinator) WatchTask(
	ctx context.Context, req *lessorv1.WatchTaskRequest, _ ...grpc.CallOption,
) (grpc.ServerStreamingClient[lessorv1.WatchTaskResponse], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.count("watch"); err != nil {
		return nil, err
	}
	if f.failingWatches > 0 {
		f.failingWatches--
		return nil, status.Error(codes.Unavailable, "gone for a moment")
	}
	if f.refusedWatches > 0 {
		f.refusedWatches--
		return refusedWatch(ctx, f.refusal), nil
	}
	if req.GetTaskId() == "" {
		f.after = append(f.after, req.GetAfterSequence())
		if req.GetWorkspaceId() != testWorkspace {
			return nil, status.Error(codes.NotFound, "the run is in another workspace")
		}
	}
	if req.GetAfterSequence() > f.sequence {
		return nil, status.Error(codes.InvalidArgument, "no event of the workspace has had this sequence")
	}
	w := &fakeWatch{ctx: ctx, task: req.GetTaskId(), begun: true, events: make(chan *lessorv1.WatchTaskResponse, 100)}
	if w.task != "" {
		if i, err := f.find(w.task); err != nil || words.Final(f.tasks[i].GetState()) {
			w.err, w.begun = err, err == nil
			close(w.events)
			return w, nil
		}
	} else {
		for _, e := range f.history {
			if e.GetSequence() > req.GetAfterSequence() {
				w.events <- e
			}
		}
	}
	f.watches = append(f.watches, w)
	return w, nil
}

// refusedWatch returns a stream that ends with an error before it has begun.
func refusedWatch(ctx context.Context, err error) *fakeWatch {
	w := &fakeWatch{ctx: ctx, events: make(chan *lessorv1.WatchTaskResponse), err: err}
	close(w.events)
	return w
}

// sendEvent sends the last event of a task to the watches of the task and of the run. The watches
// of the task end with it.
func (f *fakeCoordinator) sendEvent(e *lessorv1.WatchTaskResponse) {
	if e.GetDeleted() == nil { // a coordinator does not store that a task was deleted
		f.sequence++
		f.history = append(f.history, e)
	}
	e.Sequence = f.sequence
	f.watches = slices.DeleteFunc(f.watches, func(w *fakeWatch) bool {
		if w.task == "" || w.task == e.GetTaskId() {
			w.events <- e
		}
		ended := w.task == e.GetTaskId()
		if ended {
			close(w.events)
		}
		return ended
	})
}

// end plays the worker that completes or fails the task of a line for good.
func (f *fakeCoordinator) end(line int, state lessorv1.TaskState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	task := f.tasks[line-1]
	task.State, task.Attempt = state, task.Attempt+1
	kind := lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_COMPLETED
	if state == lessorv1.TaskState_TASK_STATE_COMPLETED {
		task.Output = fmt.Appendf(nil, "<%s>", task.GetSpec().GetPayload())
	} else {
		kind, task.Error = lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_FAILED, &lessorv1.TaskError{Message: "exit status 1"}
	}
	f.sendEvent(&lessorv1.WatchTaskResponse{TaskId: task.GetTaskId(), TaskState: state, Event: &lessorv1.WatchTaskResponse_History{
		History: &lessorv1.HistoryEvent{Type: kind, TaskState: state},
	}})
}

// remove deletes the task of a line, as a user may do.
func (f *fakeCoordinator) remove(line int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := f.drop(line)
	f.sendEvent(&lessorv1.WatchTaskResponse{TaskId: id, Event: &lessorv1.WatchTaskResponse_Deleted{Deleted: &lessorv1.Deleted{}}})
}

// drop forgets the task of a line with its idempotency key (T1), and returns its id.
func (f *fakeCoordinator) drop(line int) (id string) {
	task := f.tasks[line-1]
	delete(f.keys, task.GetSpec().GetIdempotencyKey())
	f.tasks[line-1] = nil
	return task.GetTaskId()
}

// endUnseen completes the task of a line, and tells the watches of the run only how many events
// they missed.
func (f *fakeCoordinator) endUnseen(line int, missed *lessorv1.Missed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tasks[line-1].State = completed
	for _, w := range f.watches {
		w.events <- &lessorv1.WatchTaskResponse{Event: &lessorv1.WatchTaskResponse_Missed{Missed: missed}}
	}
}

// sendOther sends something to all streams that says nothing about a line.
func (f *fakeCoordinator) sendOther() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.watches {
		w.events <- &lessorv1.WatchTaskResponse{}
	}
}

// endAndRemove completes the task of a line and deletes it, so that nobody sees the task in
// between.
func (f *fakeCoordinator) endAndRemove(line int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := f.drop(line)
	f.sendEvent(&lessorv1.WatchTaskResponse{TaskId: id, TaskState: completed, Event: &lessorv1.WatchTaskResponse_History{
		History: &lessorv1.HistoryEvent{Type: lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_COMPLETED, TaskState: completed},
	}})
}

// breakStreams ends all streams with UNAVAILABLE, as a restart of the coordinator does.
func (f *fakeCoordinator) breakStreams() {
	f.endStreams(status.Error(codes.Unavailable, "the stream broke"))
}

// endStreams ends all streams with an error, or as if all was said if it is nil.
func (f *fakeCoordinator) endStreams(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.watches {
		w.err = err
		close(w.events)
	}
	f.watches = nil
}

const (
	completed = lessorv1.TaskState_TASK_STATE_COMPLETED
	failed    = lessorv1.TaskState_TASK_STATE_FAILED
	cancelled = lessorv1.TaskState_TASK_STATE_CANCELLED
)

// testRun is a run with the lines a, b, c ... on a fakeCoordinator.
type testRun struct {
	t         *testing.T
	fake      *fakeCoordinator
	dir       string
	job       *Job
	out, errs bytes.Buffer
	screen    *Screen // writes to these
	summary   Summary
	err       error
	cancel    context.CancelCauseFunc
	done      chan struct{}
}

func startRun(t *testing.T, fake *fakeCoordinator, dir string, lines int, keepOrder bool) *testRun {
	t.Helper()
	return startRunAfter(t, fake, dir, lines, keepOrder, func(*Job) {})
}

// startRunAfter prepares the job before the run starts.
func startRunAfter(t *testing.T, fake *fakeCoordinator, dir string, lines int, keepOrder bool, prepare func(*Job)) *testRun {
	t.Helper()
	var input strings.Builder
	for i := range lines {
		fmt.Fprintf(&input, "%c\n", 'a'+i)
	}
	r := &testRun{t: t, fake: fake, dir: dir, done: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(context.Background())
	r.cancel = cancel
	opts := testOptions
	opts.Workspace = testWorkspace
	job, err := Open(ctx, dir, opts, strings.NewReader(input.String()), false)
	if err != nil {
		t.Fatal(err)
	}
	r.job, r.screen = job, NewScreen(&r.out, &r.errs, Apart)
	prepare(job)
	go func() {
		defer close(r.done)
		r.summary, r.err = job.Run(ctx, Config{Tasks: fake, Epoch: fake.askEpoch, Screen: r.screen, KeepOrder: keepOrder})
	}()
	synctest.Wait()
	return r
}

// finish waits for the end of the run and checks which outputs it printed, and in which order.
func (r *testRun) finish(want string) {
	r.t.Helper()
	<-r.done
	if err := r.job.Close(); err != nil {
		r.t.Error(err)
	}
	if got := r.out.String(); got != want {
		r.t.Errorf("printed %q, want %q", got, want)
	}
}

func TestLinesArePrintedAsTheyEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeCoordinator()
		r := startRun(t, fake, t.TempDir(), 4, false)
		for _, line := range []int{3, 1, 4, 2} {
			fake.end(line, completed)
		}
		r.finish("<c><a><d><b>")
		if !r.summary.OK() || r.err != nil || fake.calls["list"] > 0 {
			t.Errorf("summary %+v, error %v, %d lists of the tasks, want all lines done without a list",
				r.summary, r.err, fake.calls["list"])
		}
	})
}

func TestKeepOrderPrintsInTheOrderOfTheInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeCoordinator()
		r := startRun(t, fake, t.TempDir(), 5, true)
		for _, line := range []int{3, 5, 1, 4, 2} {
			fake.end(line, completed)
			synctest.Wait()
			if line == 1 && r.out.String() != "<a>" {
				t.Errorf("when the first line had ended, %q was printed, want only its output <a>", r.out.String())
			}
		}
		r.finish("<a><b><c><d><e>")
		if !r.summary.OK() || r.err != nil {
			t.Errorf("summary %v, error %v, want all lines done", r.summary, r.err)
		}
	})
}

func TestFailedLinesAreReportedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeCoordinator()
		r := startRun(t, fake, t.TempDir(), 2, false)
		fake.end(1, failed)
		fake.end(2, completed)
		r.finish("<b>")
		if r.summary.OK() || r.summary != (Summary{Lines: 2, Done: 1, Failed: 1}) {
			t.Errorf("summary %+v, want one line done and one failed", r.summary)
		}
		if got, want := r.errs.String(), "line 1 failed: \"a\": exit status 1 (attempt 1)\n"; got != want {
			t.Errorf("standard error has %q, want %q", got, want)
		}
	})
}

// Once an output could not be written, no other is written after the gap, even if there is room
// again: the run ends with that one error.
func TestNothingIsPrintedAfterAGap(t *testing.T) {
	for _, keepOrder := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fake, out := newFakeCoordinator(), &fullOnce{}
			job := mustOpen(t, t.TempDir(), "a\nb\nc\n", Options{Workspace: testWorkspace}, false)
			ended := make(chan error)
			go func() {
				_, err := job.Run(t.Context(),
					Config{Tasks: fake, Epoch: fake.askEpoch, Screen: NewScreen(out, io.Discard, Apart), KeepOrder: keepOrder})
				ended <- err
			}()
			synctest.Wait()
			for _, line := range []int{3, 2, 1} {
				fake.end(line, completed)
			}
			if err := <-ended; out.writes != 1 || err == nil || err.Error() != errDiskFull.Error() {
				t.Errorf("keep order %t: %d writes, error %v, want one write, and its error once", keepOrder, out.writes, err)
			}
		})
	}
}

// When an output cannot be written, the run goes on until its workers have stopped, and counts what
// they have finished meanwhile.
func TestRunAwaitsItsWorkersIfItsOutputFails(t *testing.T) {
	for _, keepOrder := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fake, out := newFakeCoordinator(), &fullOnce{}
			job := mustOpen(t, t.TempDir(), "a\nb\nc\nd\n", Options{Workspace: testWorkspace}, false)
			ctx, workersEnd := context.WithCancel(t.Context())
			var summary Summary
			var err, told error
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				summary, err = job.Run(ctx, Config{
					Tasks: fake, Epoch: fake.askEpoch, Screen: NewScreen(out, io.Discard, Apart), KeepOrder: keepOrder,
					OutputFailed: func(err error) { told = err },
				})
			}()
			synctest.Wait()
			fake.end(1, completed)
			synctest.Wait()
			if told == nil || closed(ended) {
				t.Fatalf("keep order %t: it was told %v, and has returned: %t; want the error of the output, and that the run waits", keepOrder, told, closed(ended))
			}
			fake.end(2, failed)
			fake.end(4, completed)
			workersEnd()
			<-ended
			if want := (Summary{Lines: 4, Done: 2, Failed: 1, Left: 1, Stopped: true}); summary != want || !errors.Is(err, errDiskFull) || out.writes != 1 {
				t.Errorf("keep order %t: summary %+v, error %v, %d writes, want %+v, the error of the output and one write", keepOrder, summary, err, out.writes, want)
			}
		})
	}
}

// fullOnce is a disk that was full at the first write.
type fullOnce struct{ writes int }

func (f *fullOnce) Write(p []byte) (int, error) {
	if f.writes++; f.writes == 1 {
		return 0, errDiskFull
	}
	return len(p), nil
}

// A second process that resumes a run submits nothing again, prints the output of all lines, and
// finds the lines that ended while no process ran.
func TestResumedRunPrintsAllLines(t *testing.T) {
	for _, keepOrder := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fake, dir := newFakeCoordinator(), t.TempDir()
			first := startRun(t, fake, dir, 5, keepOrder)
			fake.end(2, completed)
			fake.end(5, failed)
			synctest.Wait()
			first.cancel(errKilled)
			<-first.done
			_ = first.job.Close()
			fake.end(4, completed) // while no process ran

			second := startRun(t, fake, dir, 5, keepOrder)
			fake.end(3, completed)
			fake.end(1, completed)
			if keepOrder {
				second.finish("<a><b><c><d>")
			} else {
				second.finish("<b><d><c><a>")
			}
			if fake.calls["submit"] != 1 || second.summary != (Summary{Lines: 5, Done: 4, Failed: 1}) {
				t.Errorf("%d submits and the summary %+v, want 1 submit, 4 lines done and 1 failed",
					fake.calls["submit"], second.summary)
			}
		})
	}
}

var errKilled = fmt.Errorf("killed")

// A process that died before it noted that all lines are submitted has left tasks. The next process
// submits all lines again, and the idempotency keys keep the coordinator from making a task twice
// (T1).
func TestInterruptedSubmitMakesNoTaskTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, dir := newFakeCoordinator(), t.TempDir()
		first := startRun(t, fake, dir, 3, false)
		first.cancel(errKilled)
		<-first.done
		first.job.manifest.Submitted = false
		if err := first.job.manifest.write(first.job.path("run.json")); err != nil {
			t.Fatal(err)
		}
		_ = first.job.Close()

		second := startRun(t, fake, dir, 3, false)
		for line := range 3 {
			fake.end(line+1, completed)
		}
		second.finish("<a><b><c>")
		if fake.calls["submit"] != 2 || len(fake.tasks) != 3 {
			t.Errorf("%d submits made %d tasks, want 2 submits and 3 tasks", fake.calls["submit"], len(fake.tasks))
		}
	})
}

// A process that died while it submitted has left only the tasks of the first lines. The next
// process looks for lines that have ended before it has submitted the rest, and does not take the
// rest for deleted.
func TestResumedRunSubmitsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, dir := newFakeCoordinator(), t.TempDir()
		first := startRun(t, fake, dir, 3, false)
		tasks, sequence := fake.backup()
		first.cancel(errKilled)
		<-first.done
		fake.restore(tasks[:1], sequence)
		fake.end(1, completed)
		first.job.manifest.Submitted, first.job.manifest.Epoch = false, 0
		if err := first.job.manifest.write(first.job.path("run.json")); err != nil {
			t.Fatal(err)
		}
		_ = first.job.Close()

		fake.held = make(chan struct{})
		second := startRun(t, fake, dir, 3, false)
		if second.out.String() != "<a>" {
			t.Errorf("before the submit, the run has printed %q, want <a>", second.out.String())
		}
		close(fake.held)
		synctest.Wait()
		fake.end(2, completed)
		fake.end(3, completed)
		second.finish("<a><b><c>")
		if !second.summary.OK() || second.err != nil {
			t.Errorf("summary %v, error %v, want all lines done", second.summary, second.err)
		}
	})
}

// A run ends with the error of a call that the coordinator refuses. It does not take the lines that
// it cannot see for deleted.
func TestRunEndsIfACallIsRefused(t *testing.T) {
	for call, resumed := range map[string]bool{"epoch": false, "submit": false, "list": true, "get": false, "watch": false} {
		for _, keepOrder := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				fake, dir := newFakeCoordinator(), t.TempDir()
				if resumed {
					r := startRun(t, fake, dir, 2, keepOrder)
					r.cancel(errKilled)
					<-r.done
					_ = r.job.Close()
				}
				fake.refused = call
				r := startRun(t, fake, dir, 2, keepOrder)
				for i := range fake.tasks {
					fake.end(i+1, completed)
					synctest.Wait()
				}
				<-r.done
				if err := r.job.Close(); err != nil || status.Code(r.err) != codes.PermissionDenied {
					t.Errorf("%s, in order %t: %v, want PERMISSION_DENIED (%v)", call, keepOrder, r.err, err)
				}
			})
		}
	}
}

// S7: a coordinator may accept smaller batches than usual, so a batch that is refused as too large
// is split. A batch that is refused because of one of its tasks is not split: none of its tasks are
// submitted, and the error names the line of the input, not the index in the batch.
func TestBatchThatIsTooLargeIsSplit(t *testing.T) {
	t.Attr("rules", "S7")
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeCoordinator()
		fake.batchLimit = 2
		r := startRun(t, fake, t.TempDir(), 5, false)
		for line := range 5 {
			fake.end(line+1, completed)
		}
		r.finish("<a><b><c><d><e>")
		if !r.summary.OK() || r.err != nil {
			t.Errorf("summary %v, error %v, want all lines done", r.summary, r.err)
		}
		for limit, submitted := range map[int]int{0: 0, 2: 3} {
			fake = newFakeCoordinator()
			fake.batchLimit, fake.badLine = limit, "d"
			r = startRun(t, fake, t.TempDir(), 5, false)
			r.finish("")
			if len(fake.tasks) != submitted || r.err == nil || !strings.Contains(r.err.Error(), "line 4: payload: ") {
				t.Errorf("limit %d: %d tasks, %v; want %d, and an error that names the payload of line 4",
					limit, len(fake.tasks), r.err, submitted)
			}
		}
		fake = newFakeCoordinator()
		fake.batchLimit = -1
		r = startRun(t, fake, t.TempDir(), 5, false)
		r.finish("")
		if status.Code(r.err) != codes.InvalidArgument || fake.calls["submit"] > 5 {
			t.Errorf("when a single task is refused as too many, the run makes %d submits and ends with %v, want INVALID_ARGUMENT after a few", fake.calls["submit"], r.err)
		}
	})
}

func TestDeletedLinesEndTheRunAsMissing(t *testing.T) {
	for _, keepOrder := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFakeCoordinator()
			r := startRun(t, fake, t.TempDir(), 4, keepOrder)
			fake.end(1, completed)
			fake.remove(2)
			synctest.Wait()
			fake.endAndRemove(4)
			synctest.Wait()
			fake.end(3, completed)
			r.finish("<a><c>")
			if r.err != nil || r.summary.OK() || r.summary != (Summary{Lines: 4, Done: 2, Missing: 2}) {
				t.Errorf("summary %+v, error %v, want 2 lines done and 2 missing", r.summary, r.err)
			}
			if got, want := r.summary.String(), "4 lines: 2 done, 0 failed, 0 retried, 2 deleted by somebody"; got != want {
				t.Errorf("the summary says %q, want %q", got, want)
			}
			const want = "line 2 deleted: \"b\": the coordinator has no task of it any more\nline 4 deleted: \"d\": the coordinator has no task of it any more\n"
			if got := r.errs.String(); got != want {
				t.Errorf("standard error has %q, want %q", got, want)
			}
		})
	}
}

// A run that opens its stream again learns of a line whose task was deleted meanwhile, although no
// event says so.
func TestLineDeletedWhileNothingIsWatched(t *testing.T) {
	for _, keepOrder := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFakeCoordinator()
			r := startRun(t, fake, t.TempDir(), 2, keepOrder)
			fake.end(1, completed)
			synctest.Wait()
			fake.breakStreams()
			fake.remove(2)
			r.finish("<a>")
			if r.err != nil || r.summary != (Summary{Lines: 2, Done: 1, Missing: 1}) {
				t.Errorf("summary %+v, error %v, want 1 line done and 1 missing", r.summary, r.err)
			}
		})
	}
}

// The same if the first call for the stream had failed.
func TestLineDeletedBeforeTheFirstStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeCoordinator()
		fake.failingWatches = 1
		r := startRun(t, fake, t.TempDir(), 2, false)
		fake.remove(2)
		fake.end(1, completed)
		r.finish("<a>")
		if r.err != nil || r.summary != (Summary{Lines: 2, Done: 1, Missing: 1}) {
			t.Errorf("summary %+v, error %v, want 1 line done and 1 missing", r.summary, r.err)
		}
	})
}

// The same if an earlier process has worked on the run, and the deletion comes after the first
// list.
func TestLineDeletedWhileTheRunIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, dir := newFakeCoordinator(), t.TempDir()
		r := startRun(t, fake, dir, 2, false)
		r.cancel(errKilled)
		r.finish("")
		fake.listed = func() {
			fake.listed = nil
			fake.drop(2)
		}
		r = startRun(t, fake, dir, 2, false)
		fake.end(1, completed)
		r.finish("<a>")
		if r.err != nil || r.summary != (Summary{Lines: 2, Done: 1, Missing: 1}) {
			t.Errorf("summary %+v, error %v, want 1 line done and 1 missing", r.summary, r.err)
		}
	})
}

// The same if lines were still being submitted: the quota of tasks had no room for the last one.
func TestLineDeletedDuringTheSubmit(t *testing.T) {
	for _, keepOrder := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFakeCoordinator()
			fake.quota = 2
			r := startRun(t, fake, t.TempDir(), 3, keepOrder)
			fake.remove(1)
			time.Sleep(maxPause)
			synctest.Wait()
			fake.end(2, completed)
			fake.end(3, completed)
			r.finish("<b><c>")
			if r.err != nil || r.summary != (Summary{Lines: 3, Done: 2, Missing: 1}) {
				t.Errorf("summary %+v, error %v, want 2 lines done and 1 missing", r.summary, r.err)
			}
		})
	}
}

// A line that somebody retries between the list of the tasks and its printing is not missing: the
// run waits for its end.
func TestLineRetriedWhileTasksAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeCoordinator()
		r := startRun(t, fake, t.TempDir(), 2, false)
		fake.mu.Lock()
		fake.listed = func() { fake.tasks[0].State = lessorv1.TaskState_TASK_STATE_READY }
		fake.mu.Unlock()
		fake.endUnseen(1, &lessorv1.Missed{Durable: 1})
		synctest.Wait()
		fake.end(2, completed)
		synctest.Wait()
		fake.end(1, completed)
		r.finish("<b><a>")
		if r.err != nil || !r.summary.OK() {
			t.Errorf("summary %+v, error %v, want both lines done", r.summary, r.err)
		}
	})
}

// A task of the run that is none of its lines, such as one that a command has submitted with
// LESSOR_RUN_ID, does not keep the run from ending, does not hide that a line is missing, and is
// not printed, even if it has the task key of a line.
func TestTaskThatIsNoLineDoesNotCount(t *testing.T) {
	for _, keepOrder := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFakeCoordinator()
			r := startRun(t, fake, t.TempDir(), 3, keepOrder)
			fake.mu.Lock()
			for i, key := range []string{"", "4", "1", "2"} {
				fake.tasks = append(fake.tasks, &lessorv1.Task{
					TaskId: fmt.Sprintf("t%d", 4+i), State: lessorv1.TaskState_TASK_STATE_READY,
					Spec: &lessorv1.TaskSpec{RunId: r.job.RunID(), TaskKey: key, IdempotencyKey: key},
				})
			}
			fake.mu.Unlock()
			fake.end(7, completed)
			synctest.Wait()
			fake.remove(1)
			synctest.Wait()
			fake.end(2, completed)
			fake.end(3, completed)
			time.Sleep(time.Hour)
			r.cancel(errKilled) // does nothing if the run has ended
			r.finish("<b><c>")
			if r.err != nil || r.summary != (Summary{Lines: 3, Done: 2, Missing: 1}) {
				t.Errorf("in order %v: summary %+v, error %v, want 2 lines done and 1 missing", keepOrder, r.summary, r.err)
			}
		})
	}
}

// Neither does the progress bar count such a task, nor its attempts.
func TestBarCountsOnlyLines(t *testing.T) {
	for _, keepOrder := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFakeCoordinator()
			job := mustOpen(t, t.TempDir(), "a\nb\nc\n", Options{Workspace: testWorkspace}, false)
			var shown bytes.Buffer
			screen := NewScreen(io.Discard, &shown, Apart)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = job.Run(ctx, Config{
					Tasks: fake, Epoch: fake.askEpoch, Screen: screen, KeepOrder: keepOrder, BarWidth: func() int { return 80 },
				})
			}()
			synctest.Wait()
			fake.submitOther(job.RunID())
			fake.fail(4)
			fake.fail(2)
			fake.end(4, completed)
			fake.end(2, completed)
			time.Sleep(time.Second)
			cancel()
			<-ended
			bar := shown.String()
			if strings.Contains(bar, "2/3 done") || strings.Contains(bar, "2 retried") || !strings.Contains(bar, "1/3 done, 0 failed, 1 retried") {
				t.Errorf("in order %t: drew %q, want 1 line done that was retried once", keepOrder, bar)
			}
		})
	}
}

// If a run has missed durable events, it lists its tasks: one of the events may have been the end
// of a line. It does not if it has missed only others.
func TestRunListsItsTasksIfItMissedDurableEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeCoordinator()
		r := startRun(t, fake, t.TempDir(), 1, false)
		fake.endUnseen(1, &lessorv1.Missed{Volatile: 7})
		synctest.Wait()
		if n := fake.calls["list"]; n != 0 {
			t.Errorf("%d lists of the tasks after missed output and progress, want none", n)
		}
		fake.endUnseen(1, &lessorv1.Missed{Durable: 1})
		r.finish("")
		if r.err != nil || !r.summary.OK() {
			t.Errorf("summary %+v, error %v, want the line done", r.summary, r.err)
		}
	})
}

// A watch goes on after the last event of the one before, also in the next process: the events of a
// long run are not sent again.
func TestWatchGoesOnAfterTheLastEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, dir := newFakeCoordinator(), t.TempDir()
		r := startRun(t, fake, dir, 4, false)
		fake.end(1, completed)
		time.Sleep(2 * saveInterval)
		fake.end(2, completed)
		synctest.Wait()
		fake.sendOther() // it has no sequence
		synctest.Wait()
		fake.breakStreams()
		time.Sleep(2 * saveInterval)
		r.cancel(errKilled)
		r.finish("<a><b>")
		r = startRun(t, fake, dir, 4, false)
		fake.end(3, completed)
		fake.end(4, completed)
		r.finish("<a><b><c><d>")
		if want := []uint64{0, 2, 2}; !slices.Equal(fake.after, want) {
			t.Errorf("the watches began after the events %d, want %d", fake.after, want)
		}
	})
}

// A stream ends with the credential that opened it. The run goes on with the credential that has
// taken its place, and ends if there is none.
func TestRunSurvivesTheEndOfItsCredential(t *testing.T) {
	for _, keepOrder := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fake, ended := newFakeCoordinator(), status.Error(codes.Unauthenticated, "the credential has expired")
			r := startRun(t, fake, t.TempDir(), 2, keepOrder)
			fake.endStreams(ended)
			synctest.Wait()
			fake.end(1, completed)
			synctest.Wait()
			fake.mu.Lock()
			fake.refusedWatches, fake.refusal = 1, ended
			fake.mu.Unlock()
			fake.endStreams(ended)
			r.finish("<a>")
			if status.Code(r.err) != codes.Unauthenticated {
				t.Errorf("error %v, want UNAUTHENTICATED from the watch that was refused", r.err)
			}
		})
	}
}

// A proxy that cuts a stream says INTERNAL or CANCELLED in its own name. The run goes on with
// another stream, but not if the coordinator itself has failed.
func TestRunSurvivesAProxyThatCutsStreams(t *testing.T) {
	fault, err := status.New(codes.Internal, "a fault").WithDetails(&errdetails.ErrorInfo{Reason: "INTERNAL"})
	if err != nil {
		t.Fatal(err)
	}
	for _, keepOrder := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFakeCoordinator()
			r := startRun(t, fake, t.TempDir(), 2, keepOrder)
			fake.endStreams(status.Error(codes.Internal, "stream terminated by RST_STREAM"))
			synctest.Wait()
			fake.end(1, completed)
			time.Sleep(maxPause)
			synctest.Wait()
			fake.endStreams(status.Error(codes.Canceled, "stream terminated by RST_STREAM"))
			time.Sleep(maxPause)
			synctest.Wait()
			fake.endStreams(fault.Err())
			r.finish("<a>")
			if status.Code(r.err) != codes.Internal {
				t.Errorf("error %v, want the fault of the coordinator", r.err)
			}
		})
	}
}

// However often the streams of a run end, it goes on as long as they bring something: the
// coordinator is not away then. It ends when it may not watch.
func TestRunSurvivesStreamsThatOftenEnd(t *testing.T) {
	for _, keepOrder := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFakeCoordinator()
			r := startRun(t, fake, t.TempDir(), 1, keepOrder)
			denied := status.Error(codes.PermissionDenied, "not yours")
			for _, err := range append(slices.Repeat([]error{status.Error(codes.Unavailable, "the stream broke")}, 10), nil, denied) {
				time.Sleep(longLived / 2)
				fake.sendOther()
				synctest.Wait()
				fake.endStreams(err)
			}
			r.finish("")
			if status.Code(r.err) != codes.PermissionDenied {
				t.Errorf("error %v, want PERMISSION_DENIED at the end", r.err)
			}
		})
	}
}

// A watch that is refused as wrong from its beginning ends the run. Only one after a sequence is
// begun anew (TestRunSurvivesARestoreOfTheCoordinator).
func TestRunEndsIfItsWatchIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeCoordinator()
		fake.refusedWatches, fake.refusal = 1, fake.refuse("run_id")
		r := startRun(t, fake, t.TempDir(), 1, false)
		r.finish("")
		if status.Code(r.err) != codes.InvalidArgument {
			t.Errorf("error %v, want INVALID_ARGUMENT", r.err)
		}
	})
}

// A run that prints in order and cannot watch the next line asks again with pauses.
func TestRunInOrderPausesBetweenWatchesThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeCoordinator()
		r := startRun(t, fake, t.TempDir(), 1, true)
		fake.mu.Lock()
		fake.failingWatches = 1 << 30
		fake.mu.Unlock()
		fake.breakStreams()
		r.finish("")
		if n := fake.calls["watch"]; status.Code(r.err) != codes.Unavailable || n > 100 {
			t.Errorf("error %v after %d watches, want UNAVAILABLE after a hundred at most", r.err, n)
		}
	})
}

// A watch that is refused has seen nothing, so the run lists its tasks only once it has a stream
// again: each list would cost a call, of which there may be a quota.
func TestRefusedWatchListsNoTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeCoordinator()
		r := startRun(t, fake, t.TempDir(), 2, false)
		fake.refusedWatches, fake.refusal = 3, status.Error(codes.ResourceExhausted, "too many watches")
		fake.breakStreams()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := fake.calls["list"]; n != 1 || fake.refusedWatches != 0 {
			t.Errorf("the run has listed its tasks %d times, with %d refusals to come, want once after all",
				n, fake.refusedWatches)
		}
		fake.end(1, completed)
		fake.end(2, completed)
		r.finish("<a><b>")
	})
}

// X5: if the tenant's quota of tasks has room for a part of a batch, that part is submitted, and
// the rest as tasks end, however long that takes. The run is watched meanwhile.
func TestBatchForWhichTheQuotaHasNoRoomIsSplit(t *testing.T) {
	t.Attr("rules", "X5")
	for _, keepOrder := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFakeCoordinator()
			fake.quota = 2
			r := startRun(t, fake, t.TempDir(), 5, keepOrder)
			for line := range 3 {
				time.Sleep(10 * maxAway)
				synctest.Wait()
				fake.mu.Lock()
				if tasks, watches := len(fake.tasks), fake.calls["watch"]; tasks != line+2 || watches == 0 {
					t.Errorf("%d tasks and %d watches while %d lines have ended, want two more tasks, and one that is watched", tasks, watches, line)
				}
				fake.mu.Unlock()
				fake.end(line+1, completed)
			}
			time.Sleep(maxAway)
			synctest.Wait()
			fake.end(4, completed)
			fake.end(5, completed)
			r.finish("<a><b><c><d><e>")
			if !r.summary.OK() || r.err != nil || strings.Count(r.errs.String(), "quota of tasks is used up") != 1 {
				t.Errorf("summary %v, error %v, notes %q; want all lines done, and one note", r.summary, r.err, r.errs.String())
			}
		})
	}
}

// A call for several tasks that is refused for lack of room comes back without the wait after which
// the connection would repeat it. A single task, and any other refusal, has to wait.
func TestOnlyCallsForSeveralTasksAreRefusedAtOnce(t *testing.T) {
	waits := func(req any, refusal error) bool {
		err := RefuseAtOnce(t.Context(), "", req, nil, nil,
			func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return refusal })
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("error %v, want that of the coordinator", err)
		}
		return detail.Of[*errdetails.RetryInfo](status.Convert(err)) != nil
	}
	other, err := status.New(codes.ResourceExhausted,
		"too many calls").WithDetails(&errdetails.ErrorInfo{Reason: "QUOTA_CALLS"}, &errdetails.RetryInfo{})
	if err != nil {
		t.Fatal(err)
	}
	batch := func(tasks int) any {
		return &lessorv1.BatchSubmitTasksRequest{Tasks: make([]*lessorv1.TaskSpec, tasks)}
	}
	for _, test := range []struct {
		name    string
		req     any
		refusal error
		waits   bool
	}{
		{"a batch", batch(2), errNoRoom(), false},
		{"a batch of one task", batch(1), errNoRoom(), true},
		{"a batch, refused for its calls", batch(2), other.Err(), true},
		{"the retry of all that has failed", &lessorv1.BatchRetryTasksRequest{}, errNoRoom(), false},
		{"the retry of one task", &lessorv1.RetryTaskRequest{}, errNoRoom(), true},
	} {
		if got := waits(test.req, test.refusal); got != test.waits {
			t.Errorf("%s: has a wait: %t, want %t", test.name, got, test.waits)
		}
	}
}

// If it is not known in which epoch the lines were submitted, a line whose task is gone counts as
// deleted. It is not submitted again.
func TestDeletedLineOfAnUnknownEpoch(t *testing.T) {
	for _, keepOrder := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fake, dir := newFakeCoordinator(), t.TempDir()
			r := startRun(t, fake, dir, 2, keepOrder)
			r.cancel(errKilled)
			<-r.done
			r.job.manifest.Epoch = 0
			if err := errors.Join(r.job.manifest.write(r.job.path("run.json")), r.job.Close()); err != nil {
				t.Fatal(err)
			}
			fake.remove(1)
			r = startRun(t, fake, dir, 2, keepOrder)
			fake.end(2, completed)
			r.finish("<b>")
			if r.err != nil || r.summary != (Summary{Lines: 2, Done: 1, Missing: 1}) || len(fake.tasks) != 2 {
				t.Errorf("summary %+v, error %v, %d tasks, want 1 line done, 1 missing, and 2 tasks",
					r.summary, r.err, len(fake.tasks))
			}
		})
	}
}

// A run opens its streams again after a restart of the coordinator, even if the first calls fail.
// It learns of a line that ended in between.
func TestRunSurvivesARestartOfTheCoordinator(t *testing.T) {
	for _, keepOrder := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFakeCoordinator()
			r := startRun(t, fake, t.TempDir(), 3, keepOrder)
			fake.end(1, completed)
			synctest.Wait()
			fake.mu.Lock()
			fake.failingCalls = 3
			fake.mu.Unlock()
			fake.breakStreams()
			fake.end(2, completed)       // while nothing is watched
			time.Sleep(10 * time.Second) // longer than the pauses between the calls
			synctest.Wait()
			fake.end(3, completed)
			r.finish("<a><b><c>")
			if !r.summary.OK() || r.err != nil {
				t.Errorf("summary %+v, error %v, want all lines done", r.summary, r.err)
			}
		})
	}
}

// restore breaks all streams, and brings back the tasks and events as they were when backup was
// called.
func (f *fakeCoordinator) restore(backup []*lessorv1.Task, sequence uint64) {
	f.breakStreams()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tasks, f.sequence, f.history = backup, sequence, f.history[:sequence]
	f.epoch++
	f.keys = make(map[string]int)
	for i, task := range f.tasks {
		f.keys[task.GetSpec().GetIdempotencyKey()] = i
	}
}

func (f *fakeCoordinator) askEpoch(context.Context) (uint32, error) {
	if f.held != nil {
		<-f.held
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.epoch, f.count("epoch")
}

func (f *fakeCoordinator) backup() (tasks []*lessorv1.Task, sequence uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, task := range f.tasks {
		tasks = append(tasks, proto.CloneOf(task))
	}
	return tasks, f.sequence
}

// After a restore from a backup, the coordinator no longer knows that a line ended whose output the
// run has printed, and no longer has the sequence after which the run watches. The run goes on, and
// prints each line once.
func TestRunSurvivesARestoreOfTheCoordinator(t *testing.T) {
	for _, resumed := range []bool{false, true} {
		for _, keepOrder := range []bool{false, true} {
			t.Run(fmt.Sprintf("resumed %t, in order %t", resumed, keepOrder), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					fake, dir := newFakeCoordinator(), t.TempDir()
					r := startRun(t, fake, dir, 3, keepOrder)
					fake.end(1, completed)
					synctest.Wait()
					tasks, sequence := fake.backup()
					time.Sleep(2 * saveInterval) // so that the run saves the sequence of the next event
					fake.end(2, completed)
					synctest.Wait()
					if resumed {
						r.cancel(errKilled)
						<-r.done
						_ = r.job.Close()
					}
					fake.restore(tasks, sequence)
					if resumed {
						r = startRun(t, fake, dir, 3, keepOrder)
					}
					time.Sleep(10 * time.Second) // longer than the pauses between the calls
					synctest.Wait()
					fake.end(2, completed) // a second time
					fake.end(3, completed)
					r.finish("<a><b><c>")
					if !r.summary.OK() || r.err != nil {
						t.Errorf("summary %+v, error %v, want all lines done", r.summary, r.err)
					}
				})
			})
		}
	}
}

// After a restore from a backup that was made before some lines were submitted, the run submits
// those again that it has not printed, and says so. If a line was deleted and the coordinator was
// not restored, it does not (TestDeletedLinesEndTheRunAsMissing).
func TestLinesLostByARestoreAreSubmittedAgain(t *testing.T) {
	for _, resumed := range []bool{false, true} {
		for _, keepOrder := range []bool{false, true} {
			for kept := range 3 {
				t.Run(fmt.Sprintf("resumed %t, in order %t, kept %d", resumed, keepOrder, kept), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						fake, dir := newFakeCoordinator(), t.TempDir()
						r := startRun(t, fake, dir, 4, keepOrder)
						tasks, sequence := fake.backup()
						fake.end(1, completed)
						synctest.Wait()
						if resumed {
							r.cancel(errKilled)
							<-r.done
							_ = r.job.Close()
						}
						fake.restore(tasks[:kept], sequence)
						if resumed {
							r = startRun(t, fake, dir, 4, keepOrder)
						}
						for range 3 {
							time.Sleep(10 * time.Second) // longer than the pauses between the calls
							synctest.Wait()
							for i := range fake.tasks {
								fake.end(i+1, completed)
							}
						}
						r.finish("<a><b><c><d>")
						if !r.summary.OK() || r.err != nil {
							t.Errorf("summary %+v, error %v, want all lines done", r.summary, r.err)
						}
						if r.job.manifest.Epoch != fake.epoch || !strings.Contains(r.errs.String(), "restored from a backup") {
							t.Errorf("epoch %d is saved, notes %q; want %d and one of the restore",
								r.job.manifest.Epoch, r.errs.String(), fake.epoch)
						}
						again := slices.ContainsFunc(fake.tasks,
							func(task *lessorv1.Task) bool { return string(task.GetSpec().GetPayload()) == "a" })
						if printed := !resumed; again != (kept > 0 || !printed) {
							t.Errorf("the first line has a task: %t; it must not run again after its output was printed", again)
						}
					})
				})
			}
		}
	}
}

// A restore while lines are submitted loses those that were submitted before it. They are submitted
// again.
func TestRestoreDuringTheSubmit(t *testing.T) {
	for _, keepOrder := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFakeCoordinator()
			fake.quota = 2 // the last line waits
			r := startRun(t, fake, t.TempDir(), 3, keepOrder)
			fake.restore(nil, 0)
			fake.mu.Lock()
			fake.quota = 0
			fake.mu.Unlock()
			for range 2 {
				time.Sleep(10 * time.Second) // longer than the pauses between the calls
				synctest.Wait()
				for i := range fake.tasks {
					fake.end(i+1, completed)
				}
			}
			r.finish("<c><a><b>")
			if !r.summary.OK() || r.err != nil {
				t.Errorf("summary %+v, error %v, want all lines done", r.summary, r.err)
			}
		})
	}
}

// Coordinators close old connections, so the streams of a line that runs for hours break several
// times without an event. The run must not conclude that the coordinator is unreachable.
func TestRunWaitsForALongLine(t *testing.T) {
	for _, keepOrder := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFakeCoordinator()
			r := startRun(t, fake, t.TempDir(), 1, keepOrder)
			for range 5 {
				time.Sleep(time.Hour)
				fake.breakStreams()
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			fake.end(1, completed)
			r.finish("<a>")
			if !r.summary.OK() || r.err != nil {
				t.Errorf("summary %+v, error %v, want the line done", r.summary, r.err)
			}
		})
	}
}

func TestRunEndsIfTheCoordinatorStaysAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeCoordinator()
		r := startRun(t, fake, t.TempDir(), 1, false)
		fake.mu.Lock()
		fake.failingCalls = 1 << 30
		fake.mu.Unlock()
		fake.breakStreams()
		r.finish("")
		if status.Code(r.err) != codes.Unavailable {
			t.Errorf("error %v, want UNAVAILABLE", r.err)
		}
	})
}

func TestRunEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRun(t, newFakeCoordinator(), t.TempDir(), 1, false)
		r.cancel(errKilled)
		r.finish("")
		if !errors.Is(r.err, errKilled) {
			t.Errorf("error %v, want %v", r.err, errKilled)
		}
	})
}

// The worker ends together with the run, and lines end while it stops. The run prints them before
// it returns: all of them, or, in the order of the input, those before the first line that has not
// ended, unless no later process prints the others. The summary counts all that have ended.
func TestStoppedRunPrintsTheLinesThatEndedMeanwhile(t *testing.T) {
	for _, tt := range []struct {
		keepOrder, temporary bool
		want                 string
	}{
		{false, false, "<a><b><d>"}, {false, true, "<a><b><d>"}, {true, false, "<a><b>"}, {true, true, "<a><b><d>"},
	} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFakeCoordinator()
			r := startRunAfter(t, fake, t.TempDir(), 4, tt.keepOrder, func(job *Job) { job.temporary = tt.temporary })
			fake.end(1, completed)
			synctest.Wait()
			fake.mu.Lock()
			fake.watches = nil // the events of the next lines do not arrive any more
			fake.mu.Unlock()
			fake.end(2, completed)
			fake.end(4, completed)
			r.cancel(errKilled)
			r.finish(tt.want)
			if r.err == nil || r.err.Error() != errKilled.Error() || r.summary != (Summary{Lines: 4, Done: 3, Left: 1, Stopped: true}) {
				t.Errorf("summary %+v, error %v, want 3 lines done, 1 left, and %v", r.summary, r.err, errKilled)
			}
		})
	}
}

// If the workers finish all lines while they stop, the run is complete, whether or not it heard of
// the last end before theirs.
func TestStoppedRunIsCompleteIfNothingIsLeft(t *testing.T) {
	for _, keepOrder := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFakeCoordinator()
			r := startRun(t, fake, t.TempDir(), 2, keepOrder)
			fake.end(1, completed)
			synctest.Wait()
			fake.mu.Lock()
			fake.watches = nil // the event of the next line does not arrive any more
			fake.mu.Unlock()
			fake.end(2, completed)
			r.cancel(errKilled)
			r.finish("<a><b>")
			if r.err != nil || r.summary != (Summary{Lines: 2, Done: 2}) {
				t.Errorf("summary %+v, error %v, want 2 lines done, and no error", r.summary, r.err)
			}
		})
	}
}

// A run that ends says why it ends, and not also that it could not find out which lines have ended
// meanwhile.
func TestStoppedRunCannotReachTheCoordinator(t *testing.T) {
	for refused, failing := range map[string]int{"list": 0, "": 1 << 30} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFakeCoordinator()
			r := startRun(t, fake, t.TempDir(), 1, false)
			fake.mu.Lock()
			fake.refused, fake.failingCalls = refused, failing
			fake.mu.Unlock()
			r.cancel(errKilled)
			r.finish("")
			if r.err == nil || r.err.Error() != errKilled.Error() {
				t.Errorf("error %v, want only %v", r.err, errKilled)
			}
		})
	}
}

// A coordinator refuses an empty batch.
func TestEmptyInputIsDoneAtOnce(t *testing.T) {
	for _, keepOrder := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := startRun(t, newFakeCoordinator(), t.TempDir(), 0, keepOrder)
			r.finish("")
			if !r.summary.OK() || r.err != nil {
				t.Errorf("summary %+v, error %v, want success", r.summary, r.err)
			}
		})
	}
}

// A batch has at most maxBatch lines and at most maxBatchBytes. Each process makes the same spec of
// a line, because the idempotency key refuses another one (T1). Equal lines are separate tasks.
func TestBatchesAreBoundedAndSpecsAreStable(t *testing.T) {
	j := mustOpen(t, t.TempDir(), "", testOptions, false)
	if a, b := j.spec(7, []byte("x")), j.spec(7, []byte("x")); !proto.Equal(a, b) {
		t.Errorf("the spec of a line is first %v and then %v, want the same", a, b)
	}
	if a, b := j.spec(7, []byte("x")), j.spec(8, []byte("x")); a.GetIdempotencyKey() == b.GetIdempotencyKey() {
		t.Error("two equal lines have the same idempotency key")
	}
	var sizes []int
	s := newSubmitter(j, Config{Tasks: &sizeRecorder{sizes: &sizes}})
	for i := range 1201 {
		if err := s.add(t.Context(), int64(i), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if err := s.add(t.Context(), 1, make([]byte, maxBatchBytes/2)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	// 201 short lines and a long one, then exactly maxBatchBytes
	if want := []int{500, 500, 202, 2}; !slices.Equal(sizes, want) {
		t.Errorf("batches of %d, want %d", sizes, want)
	}
}

// The spec has all options of the run. A shared coordinator does not keep tasks for ever, and has
// short heartbeats, so that the lines of a run that was killed do not wait long. On an embedded
// one, a process that stands still for hours loses no lease. However often the process of a run is
// killed, no line fails because of that: there is no attempt_timeout, which would be a failure and
// come before the loss of the lease.
func TestSpecHasTheOptionsOfTheRun(t *testing.T) {
	embedded := mustOpen(t, t.TempDir(), "", Options{Workspace: "w", MaxAttempts: 7, Timeout: time.Minute}, false)
	want := &lessorv1.TaskSpec{
		WorkspaceId: "w", Queue: embedded.RunID(), Type: TaskType, Payload: []byte("x"), RunId: embedded.RunID(), TaskKey: "7",
		IdempotencyKey: embedded.RunID() + "/7", RetryPolicy: &lessorv1.RetryPolicy{MaxAttempts: 7, MaxLosses: lease.MaxBudget},
		Retention:         durationpb.New(embeddedRetention),
		HeartbeatInterval: durationpb.New(embeddedHeartbeatInterval), HeartbeatTimeout: durationpb.New(embeddedHeartbeatTimeout),
	}
	if got := embedded.spec(7, []byte("x")); !proto.Equal(got, want) {
		t.Errorf("the spec for an embedded coordinator is %v, want %v", got, want)
	}
	shared := mustOpen(t, t.TempDir(), "", Options{Addr: "h:1"}, false)
	want = &lessorv1.TaskSpec{
		Queue: shared.RunID(), Type: TaskType, Payload: []byte("x"), RunId: shared.RunID(), TaskKey: "7",
		IdempotencyKey: shared.RunID() + "/7",
		RetryPolicy:    &lessorv1.RetryPolicy{MaxLosses: lease.MaxBudget}, Retention: durationpb.New(sharedRetention),
		HeartbeatInterval: durationpb.New(sharedHeartbeatInterval), HeartbeatTimeout: durationpb.New(SharedHeartbeatTimeout),
	}
	if got := shared.spec(7, []byte("x")); !proto.Equal(got, want) {
		t.Errorf("the spec for a shared coordinator is %v, want %v", got, want)
	}
}

// A run that nobody will resume leaves its tasks on a shared coordinator for a day only, unless its
// lines may have to wait for others until they are printed.
func TestTasksOfATemporaryRunAreNotKeptLong(t *testing.T) {
	for name, tt := range map[string]struct {
		opts      Options
		keepOrder bool
		want      time.Duration
	}{
		"temporary":              {Options{Addr: "h:1", Temporary: true}, false, temporaryRetention},
		"temporary, in order":    {Options{Addr: "h:1", Temporary: true}, true, sharedRetention},
		"kept":                   {Options{Addr: "h:1"}, false, sharedRetention},
		"temporary and embedded": {Options{Temporary: true}, false, embeddedRetention},
	} {
		s := newSubmitter(mustOpen(t, t.TempDir(), "", tt.opts, false), Config{KeepOrder: tt.keepOrder})
		if err := s.add(t.Context(), 1, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if got := s.batch[0].GetRetention().AsDuration(); got != tt.want {
			t.Errorf("%s: the tasks are kept for %v, want %v", name, got, tt.want)
		}
	}
}

// sizeRecorder records the number of tasks of each batch.
type sizeRecorder struct {
	lessorv1.TaskServiceClient
	sizes *[]int
}

func (s *sizeRecorder) BatchSubmitTasks(
	_ context.Context, req *lessorv1.BatchSubmitTasksRequest, _ ...grpc.CallOption,
) (*lessorv1.BatchSubmitTasksResponse, error) {
	*s.sizes = append(*s.sizes, len(req.GetTasks()))
	return &lessorv1.BatchSubmitTasksResponse{}, nil
}
