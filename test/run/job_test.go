//go:build faults

package run

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/harness"
)

// job is one run, with all its processes.
type job struct {
	t     *testing.T
	rand  *rand.Rand
	dir   string
	args  []string
	lines []string
	bell  chan struct{} // gets a value for each start

	committed map[string]int // for each line that was seen committed: how many starts the log had by then
	early     int            // kills during the start of the process
	hits      int            // kills while commands were under way
}

// newJob prepares a run of a script for each of so many lines, with these additional arguments.
// Nothing runs yet.
func newJob(t *testing.T, lines int, script string, args ...string) *job {
	t.Helper()
	j := &job{
		t: t, rand: rand.New(rand.NewPCG(*seed, 0)), dir: t.TempDir(), bell: make(chan struct{}, 1),
		committed: map[string]int{},
	}
	for i := range lines {
		j.lines = append(j.lines, fmt.Sprintf("line-%d", i))
	}
	j.write("lines", strings.Join(j.lines, "\n")+"\n")
	j.write("starts", "")
	j.args = append([]string{"run", "-j", fmt.Sprint(jobs), "--data", "data", "--input", "lines"}, args...)
	j.args = append(j.args, "--", "sh", "-c", script, "sh", "{}")
	j.listen()
	return j
}

func (j *job) path(name ...string) string { return filepath.Join(append([]string{j.dir}, name...)...) }

func (j *job) write(name, text string) {
	j.t.Helper()
	j.must(os.WriteFile(j.path(name), []byte(text), 0o600))
}

func (j *job) must(err error) {
	j.t.Helper()
	if err != nil {
		j.t.Fatal(err)
	}
}

// listen makes two pipes: by the one, commands tell that they have started; by the other, each is
// allowed to go on once that was read. So the run never gets far ahead of the test, even if the
// test stands still.
func (j *job) listen() {
	j.t.Helper()
	bell, leave := j.pipe("bell"), j.pipe("leave")
	go func() {
		ring := make([]byte, 1)
		for {
			if _, err := bell.Read(ring); err != nil {
				return
			}
			select {
			case j.bell <- struct{}{}:
			case <-j.t.Context().Done():
				return
			}
			if _, err := leave.Write([]byte("\n")); err != nil {
				return
			}
		}
	}()
}

// pipe makes a named pipe with both ends open here, so that reading never ends.
func (j *job) pipe(name string) *os.File {
	j.t.Helper()
	j.must(syscall.Mkfifo(j.path(name), 0o600))
	pipe, err := os.OpenFile(j.path(name), os.O_RDWR, 0)
	j.must(err)
	j.t.Cleanup(func() { _ = pipe.Close() })
	return pipe
}

// start starts a process that works on the run.
func (j *job) start(stdout *bytes.Buffer) *harness.Process {
	j.t.Helper()
	return harness.Start(j.t, harness.Command{Args: j.args, Dir: j.dir, Stdout: stdout})
}

// kill works on the run until so many commands have started, and then kills the process.
func (j *job) kill(starts int) {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(j.t.Context(), harness.Patience)
	defer cancel()
	var stdout bytes.Buffer
	p := j.start(&stdout)
	for range starts {
		select {
		case <-j.bell:
		case <-ctx.Done():
			j.t.Fatalf("no command started:\n%s", p.Stderr())
		}
	}
	p.Kill()
	j.noteOutput(stdout.String())
}

// killEarly kills a process a moment after its start, whatever it is doing by then.
func (j *job) killEarly() {
	j.t.Helper()
	j.early++
	ctx, cancel := context.WithTimeout(j.t.Context(), time.Duration(j.rand.IntN(150))*time.Millisecond)
	defer cancel()
	var stdout bytes.Buffer
	p := j.start(&stdout)
	<-ctx.Done()
	p.Kill()
	j.noteOutput(stdout.String())
}

// starts reads the log of starts.
func (j *job) starts() []string {
	j.t.Helper()
	data, err := os.ReadFile(j.path("starts"))
	j.must(err)
	return strings.Fields(string(data))
}

// noteOutput notes the lines whose outputs were printed: they are committed (A6).
func (j *job) noteOutput(stdout string) {
	for line := range strings.Lines(stdout) {
		if name, ok := strings.CutPrefix(line, "output of "); ok && strings.HasSuffix(name, "\n") {
			j.noteCommitted(strings.TrimSpace(name))
		}
	}
}

func (j *job) noteCommitted(line string) {
	if _, known := j.committed[line]; !known {
		j.committed[line] = len(j.starts())
	}
}

// checkCommitted reads which lines are committed in the store, and checks that those that were seen
// committed before still are. before is how many starts the log had before the last process: if one
// of the later starts is not committed, the kill has hit commands under way.
func (j *job) checkCommitted(before int) {
	j.t.Helper()
	done := j.completed()
	if slices.ContainsFunc(j.starts()[before:], func(line string) bool { return !slices.Contains(done, line) }) {
		j.hits++
	}
	for line := range j.committed {
		if !slices.Contains(done, line) {
			j.t.Errorf("A6: %s was printed or committed before the kill, and is not committed after it", line)
		}
	}
	for _, line := range done {
		j.noteCommitted(line)
	}
}

// completed lists the lines whose tasks are COMPLETED in the store.
func (j *job) completed() (done []string) {
	j.t.Helper()
	for _, t := range j.tasks(lessorv1.TaskState_TASK_STATE_COMPLETED) {
		number, err := strconv.Atoi(t.GetSpec().GetTaskKey()) // from 1 on
		j.must(err)
		done = append(done, j.lines[number-1])
	}
	return done
}

// tasks lists the tasks of the run that are in one of these states, oldest first; without states,
// all of them.
func (j *job) tasks(states ...lessorv1.TaskState) (tasks []*lessorv1.Task) {
	j.t.Helper()
	if _, err := os.Stat(j.path("data", "run.json")); err != nil {
		return nil // it was killed before the run was made
	}
	c := harness.NewCoordinator(j.t, j.path("data", "store"))
	c.Start()
	defer c.Stop()
	req := &lessorv1.ListTasksRequest{Filter: &lessorv1.TaskFilter{States: states}, PageSize: 1000}
	for {
		m, err := lessorv1.NewTaskServiceClient(c.Conn()).ListTasks(j.t.Context(), req)
		j.must(err)
		tasks = append(tasks, m.GetTasks()...)
		if req.PageToken = m.GetNextPageToken(); req.PageToken == "" {
			return tasks
		}
	}
}

// finish lets the run end, and checks the output and the starts.
func (j *job) finish() {
	j.t.Helper()
	go func() {
		for { // nobody else reads the bell any more
			select {
			case <-j.bell:
			case <-j.t.Context().Done():
				return
			}
		}
	}()
	var stdout bytes.Buffer
	p := j.start(&stdout)
	if code := p.Wait(); code != 0 {
		j.t.Fatalf("exit code %d:\n%s", code, p.Stderr())
	}
	j.sameOutput(stdout.String())
	starts := j.starts()
	for line, at := range j.committed {
		if slices.Contains(starts[at:], line) {
			j.t.Errorf("%s was run again although it was committed", line)
		}
	}
	// Only what was under way at a kill may run again: at most jobs commands for each kill.
	if again := len(starts) - len(j.lines); again > jobs**kills {
		j.t.Errorf("%d starts of %d lines, want at most %d more starts than lines: %d kills of %d commands each",
			len(starts), len(j.lines), jobs**kills, *kills, jobs)
	}
}

// sameOutput compares the output of the last process with that of a run without kills.
func (j *job) sameOutput(stdout string) {
	j.t.Helper()
	var want []string
	for _, line := range j.lines {
		want = append(want, "output of "+line)
	}
	got := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	if !slices.Contains(j.args, "--keep-order") {
		slices.Sort(want)
		slices.Sort(got)
	}
	if !slices.Equal(got, want) {
		j.t.Errorf("printed %q\nwant %q", got, want)
	}
}
