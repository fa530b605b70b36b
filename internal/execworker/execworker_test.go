package execworker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/process"
	"github.com/lessor-dev/lessor/internal/traceparent"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/workertest"
)

// rig is a coordinator with a worker that runs a shell script for each task.
type rig struct {
	*workertest.Coordinator
	t     *testing.T
	spool Spool
	stop  func()
	// fifo is the file that the script finds in $FIFO; readFIFO returns what the script writes to
	// it.
	fifo string
}

func newRig(t *testing.T, script string, cfg Config, wcfg worker.Config) *rig {
	t.Helper()
	if cfg.Spool.dir == "" {
		cfg.Spool = OwnSpool(filepath.Join(t.TempDir(), "spool"))
	}
	if cfg.Command == nil {
		cfg.Command = Command{"sh", "-c", script}
	}
	h, err := cfg.Handler()
	if err != nil {
		t.Fatal(err)
	}
	return rigOf(t, h, cfg.Spool, wcfg)
}

// rigOf returns a rig whose worker has the handler h.
func rigOf(t *testing.T, h worker.Handler, spool Spool, wcfg worker.Config) *rig {
	t.Helper()
	b := &rig{Coordinator: workertest.Start(t), t: t, spool: spool, fifo: filepath.Join(t.TempDir(), "fifo")}
	if err := syscall.Mkfifo(b.fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FIFO", b.fifo)
	w := b.Worker("q", wcfg)
	w.Handle("t", h)
	b.stop = b.Run(w)
	return b
}

func (b *rig) spec(payload string) *lessorv1.TaskSpec {
	return &lessorv1.TaskSpec{
		Queue: "q", Type: "t", Payload: []byte(payload), RunId: "r", TaskKey: "k",
		RetryPolicy: &lessorv1.RetryPolicy{MaxAttempts: 1},
	}
}

// readFIFO waits until the script has written to its fifo, and returns the text.
func (b *rig) readFIFO() string {
	b.t.Helper()
	text, err := os.ReadFile(b.fifo)
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// waitWithoutLease waits until the task has no lease. A worker that ends releases its leases, but
// waits only for a limited time for the answer, so the lease may end a moment after the worker.
func (b *rig) waitWithoutLease(id string) *lessorv1.Task {
	b.t.Helper()
	for {
		if task := b.Task(id); task.GetLease() == nil {
			return task
		}
		time.Sleep(time.Millisecond)
	}
}

func (b *rig) wantState(task *lessorv1.Task, want lessorv1.TaskState) {
	b.t.Helper()
	if task.GetState() != want {
		b.t.Errorf("state %v, want %v (%v)", task.GetState(), want, task.GetError())
	}
}

const (
	ready     = lessorv1.TaskState_TASK_STATE_READY
	completed = lessorv1.TaskState_TASK_STATE_COMPLETED
	failed    = lessorv1.TaskState_TASK_STATE_FAILED
	cancelled = lessorv1.TaskState_TASK_STATE_CANCELLED
)

func TestCommandGetsPayloadAndVariablesOfTheTask(t *testing.T) {
	b := newRig(t, `cat; echo ":$LESSOR_TASK_ID:$LESSOR_ATTEMPT:$LESSOR_QUEUE:$LESSOR_TYPE:$LESSOR_RUN_ID:$LESSOR_TASK_KEY:$LESSOR_ASSET_ID:$LESSOR_DEADLINE:"`,
		Config{}, worker.Config{})
	t.Setenv("LESSOR_ASSET_ID", "of the worker itself")
	task := b.Do(b.spec("hello"))
	b.wantState(task, completed)
	if got, want := string(task.GetOutput()), "hello:"+task.GetTaskId()+":1:q:t:r:k:::\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The command gets each value of its task in the variable of that name. The fencing token, above
// all, must be the right number, because outside systems compare it.
func TestVariablesOfTheTask(t *testing.T) {
	deadline := time.Date(2030, 1, 2, 3, 4, 5, 600, time.FixedZone("", 3600))
	got := make(map[string]string)
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, variable := range environment(traceparent.With(t.Context(), trace), &worker.Task{
		ID: "id", Attempt: 3, AttemptID: "id/3", FencingToken: 7<<32 | 3, Workspace: "w", Queue: "q", Type: "t",
		RunID: "r", Key: "k", AssetID: "a",
		Deadline: deadline,
	}) {
		name, value, _ := strings.Cut(variable, "=")
		got[name] = value // the last one counts
	}
	for name, want := range map[string]string{
		"LESSOR_TASK_ID": "id", "LESSOR_ATTEMPT": "3", "LESSOR_ATTEMPT_ID": "id/3", "LESSOR_FENCING_TOKEN": "30064771075", "LESSOR_WORKSPACE": "w",
		"LESSOR_QUEUE": "q", "LESSOR_TYPE": "t", "LESSOR_RUN_ID": "r", "LESSOR_TASK_KEY": "k", "LESSOR_ASSET_ID": "a",
		"LESSOR_DEADLINE": "2030-01-02T02:04:05.0000006Z", "TRACEPARENT": trace, "PATH": os.Getenv("PATH"),
	} {
		if got[name] != want {
			t.Errorf("%s=%q, want %q", name, got[name], want)
		}
	}
}

// A command does not get the worker's credentials: neither its tokens nor the files of the token
// and the certificate. So a lessor in the command cannot act as the worker, and readiness.FromEnv
// finds no pool there. Nor does it get those for the collector of the worker's spans, not even as
// empty variables, or what the command sets itself might not count; headers that the worker does
// not read are none of its credentials.
func TestCommandDoesNotSeeTheCredentials(t *testing.T) {
	for _, name := range []string{
		"LESSOR_TOKEN", "LESSOR_TOKEN_FILE", "LESSOR_TLS_CERT", "LESSOR_TLS_KEY", "LESSOR_POOL_TOKEN", "LESSOR_POOL_URL",
		"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
	} {
		t.Setenv(name, "secret")
	}
	t.Setenv("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "of the command")
	b := newRig(t, `env`, Config{}, worker.Config{})
	task := b.Do(b.spec(""))
	b.wantState(task, completed)
	if got := string(task.GetOutput()); strings.Contains(got, "secret") || strings.Contains(got, "_TRACES_HEADERS") ||
		!strings.Contains(got, "LESSOR_TASK_ID=") || !strings.Contains(got, "_METRICS_HEADERS=of the command") {
		t.Errorf("the command sees the environment %s, want no credential, LESSOR_TASK_ID, and the headers of the command", got)
	}
}

func TestFailureHasCategoryAndEndOfStandardError(t *testing.T) {
	var stderr bytes.Buffer
	b := newRig(t, `echo reading >&2; printf 'no column "x"' >&2; exit 65`, Config{Stderr: &stderr}, worker.Config{})
	task := b.Do(b.spec(""))
	b.wantState(task, failed)
	e := task.GetError()
	if e.GetCategory() != worker.DataQuality || e.GetMessage() != `exit status 65: no column "x"` || e.GetStackTrace() != "reading\nno column \"x\"" {
		t.Errorf("error %v, want category DATA_QUALITY, the last line in the message, and all of standard error", e)
	}
	if got := stderr.String(); got != "reading\nno column \"x\"\n" {
		t.Errorf("the worker's standard error has %q, want both lines of the command", got)
	}
}

func TestMissingProgramIsAConfigurationError(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	b := newRig(t, "", Config{Command: Command{program}}, worker.Config{})
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	task := b.Do(b.spec(""))
	b.wantState(task, failed)
	if task.GetError().GetCategory() != worker.Configuration {
		t.Errorf("error %v, want category CONFIGURATION", task.GetError())
	}
}

func TestPayloadBecomesAnArgument(t *testing.T) {
	b := newRig(t, "", Config{
		Command: Command{"sh", "-c", `cat; printf '%s|' "$@"`, "sh", "<{}>"}, Arguments: true,
		Placeholder: "{}",
	}, worker.Config{})
	if task := b.Do(b.spec("a  b")); string(task.GetOutput()) != "<a  b>|" {
		t.Errorf("output %q, want the payload as one argument and no input: %q", task.GetOutput(), "<a  b>|")
	}
}

func TestLargeOutputIsAnArtifact(t *testing.T) {
	b := newRig(t, `printf 123456789`, Config{InlineLimit: 8}, worker.Config{})
	task := b.Do(b.spec(""))
	b.wantState(task, completed)
	if len(task.GetOutput()) > 0 || len(task.GetArtifacts()) != 1 {
		t.Fatalf("output %q, artifacts %v", task.GetOutput(), task.GetArtifacts())
	}
	a := task.GetArtifacts()[0]
	kept, err := os.ReadFile(b.spool.Path(a.GetResourceId()))
	if err != nil || string(kept) != "123456789" || a.GetSizeBytes() != 9 || a.GetInline() {
		t.Errorf("the artifact %v has %q (%v), want 9 bytes, not inline", a, kept, err)
	}
}

func TestOutputOfAFailureIsKeptIfConfigured(t *testing.T) {
	for _, tt := range []struct {
		keep  bool
		limit int // below the size of the output, it is in a file when the command fails
		out   string
		kept  int // files
	}{
		{true, 1000, "half", 1},
		{true, 1, "half", 1},
		{true, 1000, "", 0},
		{false, 1000, "half", 0},
		{false, 1, "half", 0},
	} {
		b := newRig(t, "printf '"+tt.out+"'; exit 1", Config{KeepFailed: tt.keep, InlineLimit: tt.limit}, worker.Config{})
		task := b.Do(b.spec(""))
		b.wantState(task, failed)
		kept, _ := os.ReadFile(b.spool.Path(SpoolName(task.GetTaskId(), 1)))
		files, _ := os.ReadDir(b.spool.dir)
		if len(files) != tt.kept || tt.kept > 0 && string(kept) != tt.out {
			t.Errorf("%+v: kept %q, the spool has %v", tt, kept, files)
		}
	}
}

// The workers of one machine share a spool by default, and the first tasks of two coordinators have
// the same id. What one task has for its output, the other must not replace: neither when its
// command is done, nor while it prints.
func TestOutputsOfTwoStoresShareASpool(t *testing.T) {
	spool := NewSpool(filepath.Join(t.TempDir(), "spool"))
	var ids, files, want []string
	rigs := map[string]*rig{}
	for _, name := range []string{"dev", "prod"} {
		rigs[name] = newRig(t, "printf of-"+name+"; echo up > $FIFO; read go < $FIFO; printf :ended",
			Config{Spool: spool, InlineLimit: 4}, worker.Config{})
		ids = append(ids, rigs[name].Submit(rigs[name].spec("")))
		rigs[name].readFIFO()
	}
	if ids[0] != ids[1] {
		t.Fatalf("the tasks are %v, want the same id for the first task of each store", ids)
	}
	for name, b := range rigs {
		if err := os.WriteFile(b.fifo, []byte("go\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		task := b.Wait(ids[0])
		b.wantState(task, completed)
		if len(task.GetArtifacts()) != 1 {
			t.Fatalf("artifacts %v, want the output of %s", task.GetArtifacts(), name)
		}
		files, want = append(files, task.GetArtifacts()[0].GetMetadata()["path"]), append(want, "of-"+name+":ended")
	}
	for i, file := range files {
		if got, err := os.ReadFile(file); err != nil || string(got) != want[i] {
			t.Errorf("%s has %q (%v), want %q", file, got, err, want[i])
		}
	}
	if all, _ := os.ReadDir(spool.dir); len(all) != 2 {
		t.Errorf("the spool has %v, want two files", all)
	}
}

// If the output of a command cannot be stored, its task must not be COMPLETED without the output.
func TestOutputThatCannotBeStoredFailsTheTask(t *testing.T) {
	for script, want := range map[string]*lessorv1.TaskError{
		`printf 123456789`:          {Category: worker.Infrastructure, Message: "spooling the output: "},
		`printf 123456789; exit 65`: {Category: worker.Infrastructure, Message: "spooling the output: "},
		`printf 12; echo "no column" >&2; exit 65`: {
			Category: worker.DataQuality, Message: "exit status 65: no column (its output was lost: spooling the output: ",
		},
	} {
		b := newRig(t, script, Config{InlineLimit: 8, KeepFailed: true}, worker.Config{})
		// a file where the directory should be, so that nothing can be created in it
		if err := os.WriteFile(b.spool.dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		task := b.Do(b.spec(""))
		b.wantState(task, failed)
		if e := task.GetError(); e.GetCategory() != want.GetCategory() || !strings.HasPrefix(e.GetMessage(), want.GetMessage()) {
			t.Errorf("%s: error %v, want %v", script, e, want)
		}
	}
}

// Half of an output is not kept in the spool: if it was too large for its disk, the disk would stay
// full for all the other tasks.
func TestOutputThatFillsTheDiskIsNotKept(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("this system has no /dev/full")
	}
	b := newRig(t, `mkdir "$SPOOL"; ln -s /dev/full "$SPOOL/$LESSOR_TASK_ID.1.part"; printf 123456789`,
		Config{InlineLimit: 8, KeepFailed: true}, worker.Config{})
	t.Setenv("SPOOL", b.spool.dir)
	task := b.Do(b.spec(""))
	b.wantState(task, failed)
	if m := task.GetError().GetMessage(); !strings.HasPrefix(m, "spooling the output: ") || !strings.HasSuffix(m, "no space left on device") {
		t.Errorf("error %q, want only that the output cannot be stored", m)
	}
	if files, _ := os.ReadDir(b.spool.dir); len(files) > 0 {
		t.Errorf("the spool has %v", files)
	}
}

// The rename of the finished file fails, because a directory has its name.
func TestOutputThatCannotBeKeptFailsTheTask(t *testing.T) {
	b := newRig(t, `mkdir -p "$SPOOL/$LESSOR_TASK_ID.1"; printf 123456789`, Config{InlineLimit: 8}, worker.Config{})
	t.Setenv("SPOOL", b.spool.dir)
	task := b.Do(b.spec(""))
	b.wantState(task, failed)
	if e := task.GetError(); e.GetCategory() != worker.Infrastructure || !strings.Contains(e.GetMessage(), "spooling the output") || len(task.GetArtifacts()) > 0 {
		t.Errorf("error %v, artifacts %v, want category INFRASTRUCTURE and no artifact", e, task.GetArtifacts())
	}
	if left, err := os.ReadDir(b.spool.dir); err != nil || len(left) != 1 {
		t.Errorf("the spool has %v (%v), want only the directory: a disk may be full because of the file", left, err)
	}
}

// onFirstWrite calls a function with the first text that is written.
type onFirstWrite struct {
	once sync.Once
	call func(text string)
}

func (o *onFirstWrite) Write(p []byte) (int, error) {
	o.once.Do(func() { o.call(string(p)) })
	return len(p), nil
}

// useUpFiles makes this process unable to open another file, until restore is called.
func useUpFiles(t *testing.T) (restore func()) {
	t.Helper()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	none := before
	none.Cur = 3
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}
}

// A command for which this machine has no room is started once there is room. The task has only one
// attempt: a failure would end it.
func TestCommandWaitsForRoomToStart(t *testing.T) {
	said, restore := "", func() {}
	b := newRig(t, `echo "$(cat)"`, Config{Stderr: &onFirstWrite{call: func(text string) { said = text; restore() }}},
		worker.Config{})
	restore = useUpFiles(t)
	defer restore()
	task := b.Do(b.spec("late"))
	b.wantState(task, completed)
	if got := string(task.GetOutput()); got != "late\n" || task.GetAttempt() != 1 {
		t.Errorf("output %q of attempt %d, want late of attempt 1", got, task.GetAttempt())
	}
	if !strings.HasPrefix(said, `cannot run "sh": `) || !strings.HasSuffix(said, "too many open files; waiting until there is room\n") {
		t.Errorf("the worker's standard error has %q, want that the command waits for room", said)
	}
}

// noFiles is a sink that cannot open the file to which it writes.
type noFiles struct{}

func (noFiles) Write([]byte) (int, error) { return 0, syscall.EMFILE }

// A command that has started is not run a second time, even if it ends because this machine has no
// room for its output.
func TestCommandIsStartedOnce(t *testing.T) {
	runs := filepath.Join(t.TempDir(), "runs")
	t.Setenv("RUNS", runs)
	p := &process.Process{Args: []string{"sh", "-c", `echo begun >> $RUNS; echo output`}, Stdout: noFiles{}, Stderr: io.Discard}
	state, err := Config{}.runOnceThereIsRoom(t.Context(), &worker.Task{}, p)
	if text, _ := os.ReadFile(runs); state == nil || !noRoom(err) || string(text) != "begun\n" {
		t.Errorf("state %v, error %v, the command has written %q; want that it has run once", state, err, text)
	}
}

// A command that waits for room does not start any more when the worker stops: its task is given
// back, which counts in no budget.
func TestCommandThatWaitsForRoomIsGivenBackAtAStop(t *testing.T) {
	stop, restore := make(chan struct{}), func() {}
	b := newRig(t, "cat", Config{Stop: stop, Stderr: &onFirstWrite{call: func(string) { restore(); close(stop) }}},
		worker.Config{})
	restore = useUpFiles(t)
	defer restore()
	task := b.Do(b.spec("later")) // the worker of the test goes on, and takes the task again
	b.wantState(task, completed)
	if got := string(task.GetOutput()); got != "later" || task.GetAttempt() != 2 {
		t.Errorf("output %q of attempt %d, want later of attempt 2", got, task.GetAttempt())
	}
}

// Nor does it hold up a worker that has to end: neither when the time for its drain is over, nor
// when all commands are killed.
func TestCommandThatWaitsForRoomEndsWithTheWorker(t *testing.T) {
	for _, test := range []struct {
		name  string
		drain time.Duration
		kill  bool
	}{{"drain", time.Millisecond, false}, {"kill", time.Hour, true}} {
		t.Run(test.name, func(t *testing.T) {
			waits, kill := make(chan struct{}), make(chan struct{})
			b := newRig(t, "cat", Config{Kill: kill, Stderr: &onFirstWrite{call: func(string) { close(waits) }}}, worker.Config{
				DrainTimeout: test.drain,
				Hooks: worker.Hooks{OnState: func(s worker.State) {
					if test.kill && s == worker.StateDraining { // before, the worker would take the task again
						close(kill)
					}
				}},
			})
			defer useUpFiles(t)()
			id := b.Submit(b.spec(""))
			<-waits
			b.stop()
			task := b.waitWithoutLease(id)
			b.wantState(task, ready)
			if task.GetFailures() != 0 {
				t.Errorf("%d failures, want none", task.GetFailures())
			}
		})
	}
}

// K6: many programs exit with code 0 after SIGTERM although their work is half done. So after a
// cancel, exit code 0 is not a success.
func TestExitCode0AfterACancelIsNoSuccess(t *testing.T) {
	t.Attr("rules", "K6")
	b := newRig(t, `trap 'exit 0' TERM; sh -c 'echo up > $FIFO; exec sleep 1000' & wait`, Config{}, worker.Config{})
	id := b.Submit(b.spec(""))
	b.readFIFO()
	// a cancel that comes before the start is recorded would end the task at once (T7)
	b.WaitState(id, lessorv1.TaskState_TASK_STATE_RUNNING)
	b.Cancel(id, "enough")
	task := b.Wait(id)
	b.wantState(task, cancelled)
	if !strings.Contains(task.GetError().GetMessage(), "exit status 0") {
		t.Errorf("error %v, want a message with %q", task.GetError(), "exit status 0")
	}
}

// K6: the time to stop is for all processes of the group. A shell that waits for a program exits at
// once, and the program still has that time.
func TestProgramOfAShellGetsTheTimeToStop(t *testing.T) {
	t.Attr("rules", "K6")
	saved := filepath.Join(t.TempDir(), "saved")
	t.Setenv("SAVED", saved)
	b := newRig(t, `sh -c 'trap "sleep 0.1; echo yes > $SAVED; exit" TERM; echo up > $FIFO; while :; do sleep 0.01; done'; true`, Config{}, worker.Config{})
	spec := b.spec("")
	spec.CancelGrace = durationpb.New(time.Hour) // nothing waits longer than the program needs
	id := b.Submit(spec)
	b.readFIFO()
	// a cancel that comes before the start is recorded would end the task at once (T7)
	b.WaitState(id, lessorv1.TaskState_TASK_STATE_RUNNING)
	b.Cancel(id, "enough")
	b.wantState(b.Wait(id), cancelled)
	if _, err := os.Stat(saved); err != nil {
		t.Errorf("the program was killed before it had stopped: %v", err)
	}
}

// K2: a command whose lease is lost is stopped, here by SIGKILL, because it ignores SIGTERM. stop
// waits for the command, and fails the test if the handler does not return.
func TestLostLeaseStopsTheCommand(t *testing.T) {
	t.Attr("rules", "K2")
	b := newRig(t, `trap '' TERM; echo up > $FIFO; sleep 1000`, Config{}, worker.Config{})
	id := b.Submit(b.spec(""))
	b.readFIFO()
	_, err := lessorv1.NewTaskServiceClient(b.Conn()).DeleteTask(t.Context(),
		&lessorv1.DeleteTaskRequest{TaskId: id, Force: true})
	if err != nil {
		t.Fatal(err)
	}
	b.stop()
}

// An attempt that takes longer than Timeout fails as a timeout, and what the command printed is
// kept: when it is stopped, here by SIGKILL, the attempt is not over.
func TestTimeoutKeepsTheOutput(t *testing.T) {
	spool := OwnSpool(filepath.Join(t.TempDir(), "spool"))
	b, pass := withHour(t, Config{Command: Command{"sh", "-c", `trap '' TERM; printf half; echo up > $FIFO; sleep 1000`}, Spool: spool, KeepFailed: true})
	id := b.Submit(b.spec(""))
	b.readFIFO()
	pass()
	b.WaitState(id, failed)
	wantTimeout(t, b.Task(id), "1h0m0s")
	if kept, err := os.ReadFile(spool.Path(SpoolName(id, 1))); string(kept) != "half" {
		t.Errorf("kept %q (%v), want what was printed", kept, err)
	}

	b = newRig(t, `sleep 1000`, Config{Timeout: time.Millisecond}, worker.Config{})
	wantTimeout(t, b.Do(b.spec("")), "1ms")
}

// Of an attempt that took too long, no part of the output is kept if another part could not be
// written, even if it could be by then.
func TestTimeoutKeepsNoPartOfTheOutput(t *testing.T) {
	spool := OwnSpool(filepath.Join(t.TempDir(), "spool"))
	if err := os.WriteFile(spool.dir, nil, 0o600); err != nil { // in the way
		t.Fatal(err)
	}
	b, pass := withHour(t, Config{
		Command:    Command{"sh", "-c", `trap '' PIPE; while printf 123456789; do :; done 2> /dev/null; echo cut > $FIFO; sleep 1000`},
		KeepFailed: true, Spool: spool, InlineLimit: 4,
	})
	id := b.Submit(b.spec(""))
	b.readFIFO()
	if err := os.Remove(spool.dir); err != nil {
		t.Fatal(err)
	}
	pass()
	b.WaitState(id, failed)
	wantTimeout(t, b.Task(id), "1h0m0s")
	if left, err := os.ReadDir(spool.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the spool has %v (%v), want that there is none", left, err)
	}
}

// withHour returns a rig whose attempts may take an hour, which passes when pass is called.
func withHour(t *testing.T, cfg Config) (b *rig, pass func()) {
	t.Helper()
	cfg.Timeout = time.Hour
	passed := make(chan struct{})
	return rigOf(t, func(ctx context.Context, t *worker.Task) ([]byte, error) {
		ctx, expire := context.WithCancelCause(ctx)
		go func() {
			<-passed
			expire(tookTooLong(cfg.Timeout))
		}()
		return cfg.handle(ctx, t)
	}, cfg.Spool, worker.Config{}), func() { close(passed) }
}

func wantTimeout(t *testing.T, task *lessorv1.Task, span string) {
	t.Helper()
	got := task.GetError()
	if got.GetCategory() != lessorv1.ErrorCategory_ERROR_CATEGORY_TIMEOUT || !strings.HasPrefix(got.GetMessage(), "it took longer than "+span) {
		t.Errorf("the task is %v, and its error %v", task.GetState(), got)
	}
}

// startGrace cancels a task whose command goes on, with a grace of an hour.
func startGrace(t *testing.T, c Config) (b *rig, id string) {
	t.Helper()
	b = newRig(t, `trap 'echo stopping > $FIFO' TERM; echo up > $FIFO; while :; do sleep 0.01; done`, c, worker.Config{})
	spec := b.spec("")
	spec.CancelGrace = durationpb.New(time.Hour)
	id = b.Submit(spec)
	b.readFIFO()
	// a cancel that comes before the start is recorded would end the task at once (T7)
	b.WaitState(id, lessorv1.TaskState_TASK_STATE_RUNNING)
	b.Cancel(id, "enough")
	b.readFIFO()
	return b, id
}

// K2: a cancelled command has time until the end of the grace, but only while its lease is live.
// When the lease is lost, the command is killed.
func TestLostLeaseEndsTheGrace(t *testing.T) {
	t.Attr("rules", "K2")
	b, id := startGrace(t, Config{})
	_, err := lessorv1.NewTaskServiceClient(b.Conn()).DeleteTask(t.Context(),
		&lessorv1.DeleteTaskRequest{TaskId: id, Force: true})
	if err != nil {
		t.Fatal(err)
	}
	b.stop()
}

// So does the end of all commands.
func TestKillEndsTheGrace(t *testing.T) {
	kill := make(chan struct{})
	b, id := startGrace(t, Config{Kill: kill})
	close(kill)
	b.wantState(b.Wait(id), cancelled)
}

// W10: a command that does not end within the drain timeout is stopped, and its task goes back to
// READY. That counts neither as a failure nor as a loss.
func TestDrainReleasesTheTask(t *testing.T) {
	t.Attr("rules", "W10")
	b := newRig(t, `trap 'exit 1' TERM; sh -c 'echo up > $FIFO; exec sleep 1000' & wait`,
		Config{}, worker.Config{DrainTimeout: time.Millisecond})
	id := b.Submit(b.spec(""))
	b.readFIFO()
	b.stop()
	task := b.waitWithoutLease(id)
	b.wantState(task, ready)
	if task.GetFailures() != 0 || task.GetLosses() != 0 {
		t.Errorf("%d failures, %d losses, want none", task.GetFailures(), task.GetLosses())
	}
}

// K6: if a command ended by itself, its exit code counts, even if the worker is drained while
// another process still holds the output open.
func TestDrainKeepsTheOutputOfACommandThatHasEnded(t *testing.T) {
	t.Attr("rules", "K6")
	for _, code := range []string{"0", "1"} {
		b := newRig(t, `mkfifo $FIFO.left
			setsid sh -c "echo left > $FIFO.left; while kill -0 $$; do sleep 0.01; done 2> /dev/null; echo gone > $FIFO; exec sleep 2" &
			read left < $FIFO.left; printf done; exit `+code, Config{KeepFailed: true}, worker.Config{DrainTimeout: time.Millisecond})
		spec := b.spec("")
		spec.RetryPolicy = &lessorv1.RetryPolicy{MaxAttempts: 1}
		id := b.Submit(spec)
		b.readFIFO()
		b.stop()
		task := b.waitWithoutLease(id)
		if code == "0" {
			b.wantState(task, completed)
			if string(task.GetOutput()) != "done" {
				t.Errorf("output %q, want done", task.GetOutput())
			}
			continue
		}
		b.wantState(task, failed)
		kept, err := os.ReadFile(b.spool.Path(SpoolName(id, 1)))
		if string(kept) != "done" {
			t.Errorf("kept %q, %v; want done", kept, err)
		}
	}
}

// K6: the same if all commands are killed. A process that is left in the group holds the FIFO open:
// when it is gone, the worker knows that the command has ended. The process that has left the group
// holds the output open.
func TestKillKeepsTheOutputOfACommandThatHasEnded(t *testing.T) {
	t.Attr("rules", "K6")
	kill := make(chan struct{})
	b := newRig(t, `mkfifo $FIFO.up $FIFO.left
		sh -c "echo up > $FIFO.up; exec sleep 1000" > $FIFO &
		setsid sh -c "echo left > $FIFO.left; exec sleep 2" &
		read up < $FIFO.up; read left < $FIFO.left; printf done`, Config{Kill: kill}, worker.Config{DrainTimeout: time.Hour})
	id := b.Submit(b.spec(""))
	b.readFIFO()
	close(kill)
	task := b.Wait(id)
	b.wantState(task, completed)
	if string(task.GetOutput()) != "done" || task.GetAttempt() != 1 {
		t.Errorf("output %q of attempt %d, want done of attempt 1", task.GetOutput(), task.GetAttempt())
	}
}

func TestKillStopsTheCommandAndReleasesTheTask(t *testing.T) {
	kill, draining := make(chan struct{}), make(chan struct{})
	b := newRig(t, `trap '' TERM; echo up > $FIFO; sleep 1000`, Config{Kill: kill}, worker.Config{
		DrainTimeout: time.Hour,
		Hooks: worker.Hooks{OnState: func(s worker.State) {
			if s == worker.StateDraining {
				close(draining)
			}
		}},
	})
	id := b.Submit(b.spec(""))
	b.readFIFO()
	go func() {
		<-draining
		close(kill)
	}()
	b.stop()
	task := b.waitWithoutLease(id)
	b.wantState(task, ready)
	if task.GetFailures() != 0 {
		t.Errorf("%d failures, want none", task.GetFailures())
	}
}

// goneGroup is a group without a process. The channel is closed when it is known that the command
// has exited.
type goneGroup chan struct{}

func (g goneGroup) Signal(syscall.Signal) (sent bool) { return false }
func (g goneGroup) Exited() <-chan struct{}           { return g }
func (g goneGroup) Ended() bool                       { return closed(g) }

// K6: a command that has ended by itself was not told to stop, whatever ends at the same moment.
func TestCommandThatEndsWhenItHasToStopWasNotToldTo(t *testing.T) {
	t.Attr("rules", "K6")
	exited, kill := make(chan struct{}), make(chan struct{})
	close(exited)
	close(kill)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // a select that has a choice takes any
		// it is closed a moment after the group has ended
		for _, exited := range []chan struct{}{exited, make(chan struct{})} {
			if (Config{}).stop(over, &worker.Task{}, goneGroup(exited)) {
				t.Fatal("the command that has ended was told to stop, because ctx has ended")
			}
			if (Config{Kill: kill}).stop(t.Context(), &worker.Task{}, goneGroup(exited)) {
				t.Fatal("the command that has ended was told to stop, because all commands are killed")
			}
		}
	}
}

// A command has ended by itself, too, if that is noticed a moment after the end of its time: this
// process may have been stopped meanwhile.
func TestExitIsNoticedAMomentAfterTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exited := make(chan struct{})
		over, cancel := context.WithCancelCause(t.Context())
		cancel(tookTooLong(time.Second))
		time.AfterFunc(exitDelay/2, func() { close(exited) })
		if (Config{}).stop(over, &worker.Task{}, zombieGroup{goneGroup(exited)}) {
			t.Error("the command was told to stop, although it had exited")
		}
	})
}

// zombieGroup is a group of a command that has exited, and of which nobody has taken notice.
type zombieGroup struct{ goneGroup }

func (zombieGroup) Signal(syscall.Signal) (sent bool) { return true }

// K6: a cancelled command gets SIGKILL shortly before the end of the grace, so that the worker can
// still report its end.
func TestCancelledCommandIsKilledBeforeTheGraceEnds(t *testing.T) {
	t.Attr("rules", "K6")
	synctest.Test(t, func(t *testing.T) {
		for left, want := range map[time.Duration]time.Duration{
			time.Second:      900 * time.Millisecond,
			10 * time.Second: 9 * time.Second,
			time.Minute:      59 * time.Second,
		} {
			if got := untilKill(&worker.StopError{Err: worker.ErrCancelled, GraceEnds: time.Now().Add(left)}); got != want {
				t.Errorf("with %v left of the grace the command is killed after %v, want %v", left, got, want)
			}
		}
	})
}

// The grace of a cancel is only for a cancel: what else stops a command does not wait as long.
func TestCommandIsKilledSoonIfItWasNotCancelled(t *testing.T) {
	for cause, want := range map[error]time.Duration{worker.ErrDraining: stopTimeout, worker.ErrLeaseLost: lostGrace} {
		if got := untilKill(&worker.StopError{Err: cause}); got != want {
			t.Errorf("%v: the command is killed after %v, want %v", cause, got, want)
		}
	}
}
