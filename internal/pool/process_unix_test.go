//go:build unix

package pool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker/readiness"
)

// shop is a supervisor that runs real processes.
type shop struct {
	*testing.T
	*Supervisor
	listener net.Listener
	stop     context.CancelFunc // the first signal
	kill     context.CancelFunc // the second
	printed  chan string        // lines of the processes
	log      *locked
	ended    chan error
}

// newShop runs the pools of a file.
func newShop(t *testing.T, file string) *shop {
	t.Helper()
	config, err := Parse([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{T: t, listener: l, printed: make(chan string, 1000), log: &locked{}, ended: make(chan error, 1)}
	s.Supervisor = New(config, Options{
		Token: testToken, URL: "http://" + l.Addr().String(), Output: s, Log: slog.New(slog.NewJSONHandler(s.log, nil)),
	})
	ctx, stop := context.WithCancel(t.Context())
	killed, kill := context.WithCancel(t.Context())
	s.stop, s.kill = stop, kill
	go func() { s.ended <- s.Supervisor.Run(ctx, killed, l) }()
	return s
}

// Write takes a line that a process has printed.
func (s *shop) Write(p []byte) (int, error) {
	s.printed <- string(p)
	return len(p), nil
}

// prints waits until a process has printed a line.
func (s *shop) prints(want string) {
	for line := range s.printed {
		if line == want+"\n" {
			return
		}
	}
}

// ends waits for the end of the supervisor, which must have the error, and returns what was printed
// and not yet read.
func (s *shop) ends(want error) (printed []string) {
	s.Helper()
	if err := <-s.ended; !errors.Is(err, want) {
		s.Errorf("the supervisor ended with the error %v, want %v", err, want)
	}
	s.stop()
	s.kill()
	close(s.printed)
	for line := range s.printed {
		printed = append(printed, strings.TrimSuffix(line, "\n"))
	}
	if strings.Contains(s.log.String(), testToken) {
		s.Errorf("the log has the token: %s", s.log)
	}
	return printed
}

// worker returns the only worker as a list shows it.
func (s *shop) worker() *lessorv1.PoolWorker { return s.pools[0].workers[0].show() }

// script returns the beginning of a pool p in a directory of its own, with a script of the shell as
// its program.
func script(t *testing.T, text string) (pool, dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "script"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("id: p, dir: %q, command: [sh, script]", dir), dir
}

// A process gets what it needs by its environment, whatever that of the supervisor has; the token
// is not among its arguments. The supervisor returns when all workers have ended by themselves.
func TestEnvironmentOfAProcess(t *testing.T) {
	t.Attr("rules", "P1")
	for _, name := range ourVariables {
		t.Setenv(name, "of the supervisor")
	}
	t.Setenv("INHERITED", "1")
	text := `echo "$LESSOR_POOL_ID $LESSOR_WORKER_ID $LESSOR_POOL_URL $LESSOR_POOL_TOKEN $LESSOR_GPU_DEVICE $CUDA_VISIBLE_DEVICES $INHERITED $ADDED ${PWD##*/}"`
	if runtime.GOOS == "linux" {
		text += "\ntr '\\0' ' ' < /proc/$$/cmdline >&2"
	}
	pool, dir := script(t, text)
	s := newShop(t, "pools:\n- {"+pool+", gpus: [5, 0], env: {ADDED: 2}}\n- {"+strings.Replace(pool, "id: p", "id: q",
		1)+", env: {CUDA_VISIBLE_DEVICES: 7}}\n")
	got := s.ends(nil)
	slices.Sort(got)
	url, base := "http://"+s.listener.Addr().String(), filepath.Base(dir)
	want := []string{
		fmt.Sprintf("[p-0] p p-0 %s %s 0 0 1 2 %s", url, testToken, base),
		fmt.Sprintf("[p-5] p p-5 %s %s 5 5 1 2 %s", url, testToken, base),
		fmt.Sprintf("[q-0] q q-0 %s %s  7 1  %s", url, testToken, base),
	}
	if runtime.GOOS == "linux" {
		want = append(want, "[p-0] sh script ", "[p-5] sh script ", "[q-0] sh script ")
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("printed\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// How a process ended is said in words for people; a program or a directory that is gone since the
// file was read is a failure, too.
func TestEndOfAProcess(t *testing.T) {
	for _, test := range []struct {
		args []string
		dir  string
		want ending
	}{
		{[]string{"sh", "-c", "exit 0"}, "", ending{ok: true, text: "exit code 0"}},
		{[]string{"sh", "-c", "exit 3"}, "", ending{text: "exit code 3"}},
		{[]string{"sh", "-c", "kill -KILL $$"}, "", ending{text: "signal: killed"}},
		{[]string{"/no/such/program"}, "", ending{text: "cannot be started: no such file or directory"}},
		{[]string{"no-such-program"}, "", ending{text: `cannot be started: exec: "no-such-program": executable file not found in $PATH`}},
		{[]string{"/dev/null"}, "", ending{text: "cannot be started: permission denied"}},
		{[]string{"sh"}, "/no/such/dir", ending{text: "cannot be started: no such file or directory"}},
	} {
		out := &lines{out: newOutput(io.Discard)}
		c := command{args: test.args, dir: test.dir, stdout: out, stderr: out}
		if got := runProcess(c, func(int) {}, func(p running) { <-p.exited() }); got != test.want {
			t.Errorf("%q in %q: %+v, want %+v", test.args, test.dir, got, test.want)
		}
	}
}

// stuck is a pipe that nobody reads until it is closed.
type stuck chan struct{}

func (s stuck) Write(p []byte) (int, error) {
	<-s
	return len(p), nil
}

// Output that nobody takes does not hide the end of a process; if it does, the test does not end.
func TestOutputThatNobodyTakes(t *testing.T) {
	t.Attr("rules", "P1")
	pipe := make(stuck)
	out := newOutput(pipe)
	c := command{
		args:   []string{"sh", "-c", "echo line; echo line; printf unfinished; echo line >&2; exit 3"},
		stdout: &lines{out: out}, stderr: &lines{out: out}, patience: time.Millisecond,
	}
	for range 2 {
		if got := runProcess(c, func(int) {}, func(p running) { <-p.exited() }); got != crash {
			t.Errorf("got %+v, want %+v", got, crash)
		}
	}
	close(pipe)
	out.turn <- struct{}{} // nothing is printed any more
}

// A process that fails is followed by the next one, which says what came of the one before.
func TestNextProcess(t *testing.T) {
	t.Attr("rules", "P1")
	pool, _ := script(t, "if [ -e second ]; then echo again; exec sleep 1000; fi; touch second; printf unfinished; exit 3")
	s := newShop(t, "pools: [{"+pool+", restart_backoff: 10ms}]")
	s.prints("[p-0] unfinished")
	s.prints("[p-0] again")
	if w := s.worker(); w.GetStarts() != 2 || w.GetLastFailure() != "exit code 3" {
		t.Errorf("got %v, want the second process, and how the first one ended", w)
	}
	s.stop()
	s.ends(nil)
	if w := s.worker(); w.GetState() != stopped || w.GetPid() != 0 {
		t.Errorf("got %v, want none", w)
	}
}

// A drain asks the process alone. What that has started, a task for example, it ends in its own way
// and time.
func TestDrainAsksTheLeaderAlone(t *testing.T) {
	t.Attr("rules", "P1")
	pool, dir := script(t, `
		trap 'echo leader asked; echo > go' TERM
		sh -c 'trap "echo child asked" TERM; echo up; read line < go; echo child ends' &
		wait $!
		wait $!
		echo leader ends`)
	if err := syscall.Mkfifo(filepath.Join(dir, "go"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newShop(t, "pools: [{"+pool+"}]")
	s.prints("[p-0] up")
	s.stop()
	if got, want := strings.Join(s.ends(nil), ", "), "[p-0] leader asked, [p-0] child ends, [p-0] leader ends"; got != want {
		t.Errorf("printed %s, want %s", got, want)
	}
}

// The second signal kills a process that drains, and what it has started, at once.
func TestSecondSignalKillsTheGroup(t *testing.T) {
	t.Attr("rules", "P1")
	pool, dir := script(t, "trap 'echo asked' TERM; sleep 1000 3> alive & echo up; while :; do wait; done")
	alive := filepath.Join(dir, "alive")
	if err := syscall.Mkfifo(alive, 0o600); err != nil {
		t.Fatal(err)
	}
	s := newShop(t, "pools: [{"+pool+", drain_timeout: 24h}]")
	child, err := os.Open(alive) // waits for the child
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Close() }()
	s.prints("[p-0] up")
	s.stop()
	s.prints("[p-0] asked")
	if w := s.worker(); w.GetState() != draining {
		t.Errorf("got %v, want %v", w, draining)
	}
	s.kill()
	s.ends(nil)
	if _, err := io.ReadAll(child); err != nil { // ends with the child; if it lives on, the test does not end
		t.Error(err)
	}
}

// If the listener fails, no process could say anything any more: they are drained, and the
// supervisor ends with the error.
func TestListenerThatFails(t *testing.T) {
	pool, _ := script(t, "trap 'echo asked; exit' TERM; sleep 1000 & echo up; wait")
	s := newShop(t, "pools: [{"+pool+"}]")
	s.prints("[p-0] up")
	_ = s.listener.Close()
	if got := s.ends(net.ErrClosed); !slices.Equal(got, []string{"[p-0] asked"}) {
		t.Errorf("printed %q, want that the process was asked to end", got)
	}
}

// A real process says that it is ready with what its environment has, and is in the list as soon as
// it has the answer.
func TestProcessNotifies(t *testing.T) {
	t.Attr("rules", "P1 P2 P4")
	if os.Getenv("NOTIFIES") != "" { // this is the process
		term := make(chan os.Signal, 1)
		signal.Notify(term, syscall.SIGTERM)
		body := fmt.Sprintf(`{"worker_id":%q,"pool_id":%q,"status":"ready","vram_used_bytes":5}`, os.Getenv(readiness.VarWorkerID), os.Getenv(readiness.VarPoolID))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, os.Getenv(readiness.VarPoolURL)+readyPath,
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Close = true // leave no connection
		req.Header.Set("Authorization", "Bearer "+os.Getenv(readiness.VarPoolToken))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		fmt.Fprintln(os.Stdout, "answer:", resp.Status)
		<-term
		return
	}
	s := newShop(t, fmt.Sprintf("pools: [{id: p, command: [%q, -test.run=^TestProcessNotifies$], env: {NOTIFIES: 1}, ready_timeout: 1h}]", os.Args[0]))
	s.prints("[p-0] answer: 200 OK")
	if w := s.worker(); w.GetState() != ready || w.GetVramUsedBytes() != 5 || w.GetStarts() != 1 {
		t.Errorf("got %v, want the ready process", w)
	}
	s.stop()
	s.ends(nil)
}
