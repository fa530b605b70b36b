//go:build faults || long

package idle

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/test/harness"
)

// memory of a coordinator, in bytes. Heap is what lives on it after a collection, stacks the spans in use: this is what the sessions hold, and
// what is judged. Anonymous is what the kernel has given (Pss_Anon); in it is also what the opening needed and the runtime has not yet given
// back, which depends on how many open at once.
type memory struct{ heap, stacks, anonymous int }

// less is by how much there is less in before, for each of n.
func (m memory) less(before memory, n int) memory {
	return memory{(m.heap - before.heap) / n, (m.stacks - before.stacks) / n, (m.anonymous - before.anonymous) / n}
}

// collections of garbage come before each measurement: stacks that were large once are halved by each, as they are in a coordinator that
// has been idle for some minutes.
const collections = 5

// memoryOf measures what is left after some collections of garbage.
func memoryOf(t *testing.T, c *harness.Coordinator) (m memory) {
	t.Helper()
	for range collections {
		get(t, c, "/debug/pprof/heap?gc=1")
	}
	metrics := get(t, c, "/metrics")
	m.heap = int(value(t, metrics, "go_memstats_heap_alloc_bytes %g"))
	m.stacks = int(value(t, metrics, "go_memstats_stack_inuse_bytes %g"))
	rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", c.Process().Pid()))
	if err != nil {
		t.Fatal(err)
	}
	m.anonymous = int(value(t, rollup, "Pss_Anon: %g kB")) << 10
	return m
}

func get(t *testing.T, c *harness.Coordinator, path string) []byte {
	t.Helper()
	res, err := http.Get("http://" + c.HTTP() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", path, res.Status, err)
	}
	return body
}

// value reads a number from the line that has a form.
func value(t *testing.T, text []byte, form string) (v float64) {
	t.Helper()
	for line := range bytes.Lines(text) {
		if _, err := fmt.Sscanf(string(line), form, &v); err == nil {
			return v
		}
	}
	t.Fatalf("no line is %q", form)
	return 0
}

// tick is the unit of processor times in /proc, on every machine that Go runs on.
const tick = 10 * time.Millisecond

// processorTime is what a process has used, in user and kernel.
func processorTime(t *testing.T, p *harness.Process) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	const user, kernel = 11, 12 // behind the name, which may have spaces
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var ticks [2]time.Duration
	if _, err := fmt.Sscan(fields[user]+" "+fields[kernel], &ticks[0], &ticks[1]); err != nil {
		t.Fatal(err)
	}
	return (ticks[0] + ticks[1]) * tick
}

// needFiles makes room for open files. Each Go program takes what the hard limit allows; only root may raise that.
func needFiles(t *testing.T, n int) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Max >= uint64(n) {
		return
	}
	limit = syscall.Rlimit{Cur: uint64(n), Max: uint64(n)}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatalf("%d open files are needed: ulimit -Hn says how many there may be: %v", n, err)
	}
}
