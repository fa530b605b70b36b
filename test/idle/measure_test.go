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

// memory of a coordinator, in bytes. heap and stacks are what the sessions hold, and what the test
// judges: live objects after a garbage collection, and stack spans in use. anonymous is what the
// kernel has given (Pss_Anon). It includes what the opening of the sessions needed and the runtime
// has not given back yet, which depends on how many open at the same time.
type memory struct{ heap, stacks, anonymous int }

// less returns the difference to before, divided by n.
func (m memory) less(before memory, n int) memory {
	return memory{(m.heap - before.heap) / n, (m.stacks - before.stacks) / n, (m.anonymous - before.anonymous) / n}
}

// collections is the number of garbage collections before each measurement. Each one halves stacks
// that are larger than needed, so after five of them they are as in a coordinator that has been
// idle for some minutes.
const collections = 5

// memoryOf measures what is in use after these collections.
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

// value reads a number from the line that matches form.
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

// tick is the unit of processor times in /proc on Linux.
const tick = 10 * time.Millisecond

// processorTime returns the processor time that a process has used, in user and kernel mode.
func processorTime(t *testing.T, p *harness.Process) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	const user, kernel = 11, 12 // positions behind the name, which may contain spaces
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var ticks [2]time.Duration
	if _, err := fmt.Sscan(fields[user]+" "+fields[kernel], &ticks[0], &ticks[1]); err != nil {
		t.Fatal(err)
	}
	return (ticks[0] + ticks[1]) * tick
}

// needFiles makes sure that n files may be open. Go programs raise their soft limit to the hard
// limit by themselves; only root may raise the hard limit.
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
