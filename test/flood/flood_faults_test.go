//go:build faults

package flood

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/auth"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

const (
	callers = 32  // of the loud tenant; each repeats its call at once
	submits = 200 // of the quiet tenant, one after the other
)

// X5: while one tenant floods the coordinator with calls, all calls of another tenant succeed.
// Their latency is only printed, in three phases: alone, beside a flood, and beside a flood that a
// quota limits to a tenth of its calls. Calls of the flood are refused only in the last one.
func TestFloodOfAnotherTenant(t *testing.T) {
	t.Attr("rules", "X5")
	dir := t.TempDir()
	tokens := map[string]string{}
	issue(t, dir, tokens, "loud", "quiet")
	c := harness.NewCoordinator(t, dir)
	var rate int64 // of the calls of the flood that were accepted, each second, in the phase before
	for _, phase := range []struct {
		name    string
		callers int
		quota   bool
	}{
		{name: "alone"},
		{name: "beside a flood", callers: callers},
		{name: "beside a flood within quotas", callers: callers, quota: true},
	} {
		args := []string{"--auth"}
		if phase.quota {
			args = append(args, "--quota-tenant", fmt.Sprintf("loud.calls=%d/s", max(rate/10, 1)))
		}
		conn, process := serve(t, c, args)
		began := time.Now()
		stop := flood(t, conn, tokens["loud"], phase.callers)
		took := measure(t, conn, tokens["quiet"])
		accepted, refused := stop()
		rate = int64(float64(accepted) / time.Since(began).Seconds())
		t.Logf("%-30s p50 %v, p99 %v; of the flood %d taken (%d/s), %d refused", phase.name,
			took[len(took)/2].Round(10*time.Microsecond), took[len(took)*99/100].Round(10*time.Microsecond), accepted,
			rate, refused)
		if phase.callers > 0 && accepted == 0 || phase.quota != (refused > 0) {
			t.Errorf("%s: %d calls of the flood were accepted and %d refused, want accepted calls, and refused ones only with a quota", phase.name, accepted, refused)
		}
		_ = conn.Close()
		if code := process.Stop(); code != 0 {
			t.Fatalf("exit code %d\n%s", code, process.Stderr())
		}
	}
}

func issue(t *testing.T, dir string, tokens map[string]string, tenants ...string) {
	t.Helper()
	st, err := boltstore.Open(dir, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	for _, tenant := range tenants {
		made, err := coordinator.IssueToken(t.Context(), st, "",
			auth.Request{Tenant: tenant, Role: auth.Producer, Subject: tenant, Life: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		tokens[tenant] = made.GetToken()
	}
}

// serve starts a coordinator with these arguments, and connects to it.
func serve(t *testing.T, c *harness.Coordinator, args []string) (*grpc.ClientConn, *harness.Process) {
	t.Helper()
	printed := make(chan string, 1)
	p := c.Launch(harness.Lines(func(line string) { printed <- line }), args...)
	var at struct{ GRPC string }
	select {
	case line := <-printed:
		if err := json.Unmarshal([]byte(line), &at); err != nil {
			t.Fatal(err)
		}
	case <-time.After(harness.Patience):
		t.Fatal("the coordinator did not start")
	}
	conn, err := grpc.NewClient(at.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	return conn, p
}

func withToken(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

func submit(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := lessorv1.NewTaskServiceClient(conn).SubmitTask(ctx,
		&lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q"}}, grpc.WaitForReady(true))
	return err
}

// flood submits from so many callers until stop is called, which returns how many calls were
// accepted and refused.
func flood(t *testing.T, conn *grpc.ClientConn, token string, callers int) (stop func() (accepted, refused int64)) {
	ctx, cancel := context.WithCancel(withToken(t.Context(), token))
	var accepted, refused atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for ctx.Err() == nil {
				switch err := submit(ctx, conn); status.Code(err) {
				case codes.OK:
					accepted.Add(1)
				case codes.ResourceExhausted:
					refused.Add(1)
				case codes.Canceled:
				default:
					t.Errorf("a call of the flood: %v", err)
					return
				}
			}
		})
	}
	return func() (int64, int64) {
		cancel()
		wg.Wait()
		return accepted.Load(), refused.Load()
	}
}

// measure submits tasks, and returns how long each call took, shortest first.
func measure(t *testing.T, conn *grpc.ClientConn, token string) []time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(withToken(t.Context(), token), 4*harness.Patience)
	defer cancel()
	took := make([]time.Duration, submits)
	for i := range took {
		begin := time.Now()
		if err := submit(ctx, conn); err != nil {
			t.Fatalf("a call of the quiet tenant: %v", err)
		}
		took[i] = time.Since(begin)
	}
	slices.Sort(took)
	return took
}
