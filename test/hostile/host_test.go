//go:build faults

package hostile

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/test/harness"
)

// host is the coordinator under attack, and what can be measured from outside.
type host struct {
	*harness.Coordinator
	process    *harness.Process
	grpc, http string
	tokens     map[string]string // an operator's token for each tenant
}

// Tenants. honest only works; evil attacks, and has a valid token too.
const (
	honest = "honest"
	evil   = "evil"
)

// newHost starts a coordinator that allows mostOfAddress connections from one address, and twice as
// many in all.
func newHost(t *testing.T, mostOfAddress int) *host {
	t.Helper()
	dir := t.TempDir()
	h := &host{tokens: map[string]string{}}
	st, err := boltstore.Open(dir, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{honest, evil} {
		made, err := coordinator.IssueToken(t.Context(), st, "",
			auth.Request{Tenant: tenant, Role: auth.Operator, Subject: tenant, Life: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		h.tokens[tenant] = made.GetToken()
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	h.Coordinator = harness.NewCoordinator(t, dir)
	h.process, h.grpc, h.http = h.Listen("--auth", "--http", "127.0.0.1:0", "--log-level", "error",
		"--max-connections", strconv.Itoa(2*mostOfAddress), "--max-connections-of-address", strconv.Itoa(mostOfAddress))
	return h
}

// checkAlive fails the test if the coordinator has ended.
func (h *host) checkAlive(t *testing.T) {
	t.Helper()
	select {
	case <-h.process.Ended():
		t.Fatalf("the coordinator has ended\n%s", h.process.Stderr())
	default:
	}
}

// metric reads one of the coordinator's metrics.
func (h *host) metric(t *testing.T, name string) float64 {
	t.Helper()
	return harness.Metric(t.Context(), t, h.http, h.tokens[honest], name)
}

func (h *host) goroutines(t *testing.T) int { return int(h.metric(t, "go_goroutines")) }
func (h *host) heap(t *testing.T) int       { return int(h.metric(t, "go_memstats_heap_inuse_bytes")) }

// awaitGoroutines waits until the coordinator has no more goroutines than before the attack, give
// or take a few.
func (h *host) awaitGoroutines(t *testing.T, what string, before int) {
	t.Helper()
	deadline := time.Now().Add(harness.Patience)
	for {
		now := h.goroutines(t)
		if now <= before+mostGoroutines {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %d goroutines are left, want at most %d more than the %d before", what, now, mostGoroutines, before)
		}
	}
}

// resetPeak resets what peak returns.
func (h *host) resetPeak(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", h.process.Pid()), []byte("5"), 0); err != nil {
		t.Log("the peak is that since the start: ", err)
	}
}

// peak returns the largest memory use of the process, in bytes.
func (h *host) peak(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.process.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	var kib int
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			break
		}
	}
	return kib << 10
}
