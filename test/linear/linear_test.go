//go:build faults

package linear

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/harness"
)

var (
	histories = flag.Int("histories", 8, "histories, every second one with kills in it")
	seed      = flag.Uint64("seed", 0, "what the clients draw; 0: another one each time")
)

const (
	clients      = 4
	callsEach    = 2000 / clients
	killsPerCut  = 3
	callsPerKill = clients * callsEach / (killsPerCut + 1)
	callsPerTTL  = 20 // that one worker could make, one after another, while a lease lives without a heartbeat
)

func TestMain(m *testing.M) {
	if name := os.Getenv(clientName); name != "" {
		os.Exit(runClient(name))
	}
	harness.Main(m)
}

// TestHistories: for the calls about each task there is an order in which the contract would have
// given the answers that the clients got (A1-A5, A10, V4, V5, V9, V10, V12, T7), and no
// acknowledged task is lost (A6).
func TestHistories(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("seed %d", *seed)
	counts, states, total := map[string]int{}, map[string]int{}, 0
	var longest time.Duration
	for i := range *histories {
		h := &history{
			t: t, c: harness.NewCoordinator(t, t.TempDir()), seed: *seed + uint64(i*clients), counts: counts,
			states: states,
		}
		if i%2 == 1 {
			h.kills = killsPerCut
		}
		h.record()
		h.read()
		longest = max(longest, h.check())
		h.checkTasks()
		if h.unchecked > len(h.storedTasks)/10 {
			t.Errorf("%d of %d tasks were not checked, because their histories dropped entries; want at most a tenth",
				h.unchecked, len(h.storedTasks))
		}
		total += len(h.ops)
		t.Logf("history %d: %d operations on %d tasks, %d kills, %d open; leases of %v",
			i, len(h.ops), len(h.storedTasks), h.kills, h.open(), h.ttl.Round(time.Millisecond))
	}
	t.Logf("%d operations; the longest check of a task took %v; answers: %v; tasks: %v", total, longest, counts, states)
	requireAnswers(t, counts)
}

// requireAnswers fails the test if the clients did not compete enough to get every kind of answer.
func requireAnswers(t *testing.T, counts map[string]int) {
	t.Helper()
	for _, want := range []string{
		"COMMITTED/NONE", "COMMITTED/NONE replayed", "REJECTED/DUPLICATE_REPORT", "CANCELLED/ALREADY_REPORTED",
		"CANCELLED/SUPERSEDED", "CANCELLED/LEASE_EXPIRED", "CANCELLED/TASK_CANCELLED", "FailedPrecondition",
	} {
		if counts[want] == 0 {
			t.Errorf("no client got the answer %s, want at least one: the clients did not compete enough", want)
		}
	}
}

// history is one coordinator and its clients, from the first start to the last read.
type history struct {
	t      *testing.T
	c      *harness.Coordinator
	seed   uint64
	ttl    time.Duration
	kills  int
	counts map[string]int // counts of answers, over all histories
	states map[string]int // final states of tasks, over all histories

	mu          sync.Mutex
	ops         []*op
	storedTasks map[string]*storedTask
	unchecked   int // tasks that are not checked, because their stored history has dropped entries
}

// record runs the clients, and kills the coordinator meanwhile.
func (h *history) record() {
	h.t.Helper()
	h.c.Start()
	h.ttl = h.measureTTL()
	calls := make(chan struct{}, clients*callsEach)
	var inputs []*os.File
	var processes []*harness.Process
	for i := range clients {
		r, w, err := os.Pipe()
		if err != nil {
			h.t.Fatal(err)
		}
		defer func() { _, _ = r.Close(), w.Close() }()
		inputs = append(inputs, w)
		processes = append(processes, h.startClient(i, r, calls))
	}
	h.sendAddr(inputs)
	for range h.kills {
		h.await(calls, callsPerKill)
		h.c.Kill()
		h.c.Start()
		h.sendAddr(inputs)
	}
	h.await(calls, clients*callsEach-h.kills*callsPerKill)
	for _, p := range processes {
		if code := p.Wait(); code != 0 {
			h.t.Fatalf("%v ended with exit code %d:\n%s", p, code, p.Stderr())
		}
	}
}

// measureTTL returns the shortest heartbeat_timeout with which clients compete on this machine:
// were calls slower, each lease would end before its worker can report.
func (h *history) measureTTL() time.Duration {
	h.t.Helper()
	ctx, stop := context.WithTimeout(h.t.Context(), harness.Patience)
	defer stop()
	began := time.Now()
	for range callsPerTTL {
		if _, err := lessorv1.NewTaskServiceClient(h.c.Conn()).SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "measure"}}); err != nil {
			h.t.Fatal(err)
		}
	}
	return max(shortest, time.Since(began))
}

func (h *history) startClient(i int, stdin *os.File, calls chan<- struct{}) *harness.Process {
	h.t.Helper()
	return harness.Start(h.t, harness.Command{
		Path: harness.Self(h.t),
		Env: []string{
			fmt.Sprintf("%s=client%d", clientName, i), fmt.Sprintf("%s=%d", clientSeed, h.seed+uint64(i)),
			fmt.Sprintf("%s=%d", clientCalls, callsEach),
			fmt.Sprintf("%s=%v", clientTTL, h.ttl),
		},
		Stdin: stdin,
		Stdout: harness.Lines(func(line string) {
			o := &op{}
			if err := json.Unmarshal([]byte(line), o); err != nil {
				h.t.Errorf("a client printed %q: %v", line, err)
			}
			h.add(o)
			if o.Kind != granted {
				calls <- struct{}{}
			}
		}),
	})
}

func (h *history) add(o *op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, o)
	if a := o.Answer; o.open() {
		h.counts["open"]++
	} else if name := a.Verdict + "/" + a.Reason; a.Replayed {
		h.counts[name+" replayed"]++
	} else if a.Verdict != "" {
		h.counts[name]++
	} else if a.Refused != "" {
		h.counts[a.Refused]++
	}
}

// sendAddr tells the clients where the coordinator listens.
func (h *history) sendAddr(inputs []*os.File) {
	h.t.Helper()
	for _, w := range inputs {
		if _, err := fmt.Fprintln(w, h.c.Addr()); err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h *history) await(calls <-chan struct{}, n int) {
	h.t.Helper()
	for range n {
		select {
		case <-calls:
		case <-time.After(harness.Patience):
			h.t.Fatalf("no client made a call within %v", harness.Patience)
		}
	}
}

// read reads all tasks.
func (h *history) read() {
	h.t.Helper()
	ctx, stop := context.WithTimeout(h.t.Context(), harness.Patience)
	defer stop()
	h.storedTasks = map[string]*storedTask{}
	tasks := lessorv1.NewTaskServiceClient(h.c.Conn())
	list, err := tasks.ListTasks(ctx, &lessorv1.ListTasksRequest{Filter: &lessorv1.TaskFilter{RunId: runID}, PageSize: 1000})
	if err != nil || list.GetNextPageToken() != "" {
		h.t.Fatalf("list of %d tasks: %v", len(list.GetTasks()), err)
	}
	for _, t := range list.GetTasks() {
		name := t.GetSpec().GetIdempotencyKey()
		if h.storedTasks[name] != nil {
			h.t.Errorf("T1: the key %s made two tasks", name)
		}
		last := op{Kind: get, Worker: "test", Task: name, Call: now()}
		m, err := tasks.GetTask(ctx, &lessorv1.GetTaskRequest{TaskId: t.GetTaskId()})
		if err != nil {
			h.t.Fatalf("task %s: %v", name, err)
		}
		last.Return = now()
		last.Answer = read(m.GetTask())
		h.storedTasks[name] = &storedTask{task: m.GetTask(), read: last}
	}
}

// check looks for an order of the operations of each task. In histories without kills it also
// checks that it finds none after one answer is falsified.
func (h *history) check() (longest time.Duration) {
	h.t.Helper()
	calls, openLeases := map[string][]*op{}, []*op{}
	for _, o := range h.ops {
		if o.Kind != lease {
			calls[o.Task] = append(calls[o.Task], o)
		} else if o.open() {
			openLeases = append(openLeases, o)
		}
	}
	slices.SortFunc(openLeases, func(a, b *op) int { return int(a.Call - b.Call) })
	for name, t := range h.storedTasks {
		// on a machine without free processors, a task may lose more leases than its history can
		// hold (T10)
		if t.task.GetHistoryDropped() > 0 {
			h.unchecked++
			continue
		}
		all := t.history(calls[name], openLeases)
		began := time.Now()
		if result := search(all); result != porcupine.Ok {
			h.t.Errorf("A10: the history of task %s: %s\n%s", name, result, show(all))
			continue
		}
		longest = max(longest, time.Since(began))
		if h.kills == 0 {
			checkSearchCanFail(h.t, all)
		}
	}
	return longest
}

// search looks for an order. If that takes too long, the test fails.
func search(all []*op) porcupine.CheckResult {
	operations := make([]porcupine.Operation, len(all))
	for i, o := range all {
		operations[i] = porcupine.Operation{Input: o, Call: o.Call, Output: o.Answer, Return: o.Return}
	}
	return porcupine.CheckOperationsTimeout(model, operations, harness.Patience)
}

func show(all []*op) string {
	all = slices.SortedFunc(slices.Values(all), func(a, b *op) int { return int(a.Call - b.Call) })
	var b strings.Builder
	for _, o := range all {
		fmt.Fprintln(&b, o)
	}
	return b.String()
}

// checkTasks checks that each acknowledged task is there, and that each task was submitted.
func (h *history) checkTasks() {
	h.t.Helper()
	submitted, acknowledged := map[string]bool{}, map[string]bool{}
	for _, o := range h.ops {
		if o.Kind == submit {
			submitted[o.Task] = true
			acknowledged[o.Task] = acknowledged[o.Task] || !o.open()
		}
	}
	for name := range acknowledged {
		if acknowledged[name] && h.storedTasks[name] == nil {
			h.t.Errorf("A6: task %s was acknowledged and does not exist", name)
		}
	}
	for name, t := range h.storedTasks {
		h.states[t.read.Answer.State]++
		if !submitted[name] {
			h.t.Errorf("A6: task %s exists, but no client submitted it", name)
		}
	}
}

func (h *history) open() (n int) {
	for _, o := range h.ops {
		if o.open() {
			n++
		}
	}
	return n
}
