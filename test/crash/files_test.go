//go:build faults

package crash

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/harness"
)

// files is how many files the coordinator of TestFilesUsedUp may open.
const files = 64

// TestFilesUsedUp: a coordinator that may open no more files still serves the connections that it
// has, and logs why it accepts no others. When files are free again, it accepts connections.
func TestFilesUsedUp(t *testing.T) {
	t.Parallel()
	w := &walker{t: t, c: harness.NewCoordinator(t, t.TempDir())}
	w.c.Under = []string{"prlimit", fmt.Sprintf("--nofile=%d", files), "--"}
	w.c.Start("--max-connections", "50000") // the default is smaller where so few files may be open
	w.runTask()
	crowd := make([]net.Conn, files)
	for i := range crowd {
		var err error
		// the kernel accepts the first of them even if the coordinator cannot
		if crowd[i], err = net.Dial("tcp", w.c.Addr()); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 { // over the connection from before
		w.runTask()
	}
	if len(w.done) != 11 {
		t.Errorf("%d tasks were submitted and %d completed over the connection from before, want 11", len(w.ids), len(w.done))
	}
	for from := time.Now(); !strings.Contains(w.c.Process().Stderr(), "cannot accept a connection"); time.Sleep(10 * time.Millisecond) {
		if time.Since(from) > harness.Patience {
			t.Fatalf("the log does not say that the coordinator cannot accept a connection:\n%s", w.c.Process().Stderr())
		}
	}
	for _, conn := range crowd {
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, err := lessorv1.NewAdminServiceClient(w.c.Follow()).GetStatus(t.Context(), &lessorv1.GetStatusRequest{},
		grpc.WaitForReady(true))
	if err != nil {
		t.Errorf("a new connection after the others were closed: error %v, want none", err)
	}
	w.c.Stop()
	w.c.Verify()
}
