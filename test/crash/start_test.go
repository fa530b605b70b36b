//go:build faults

package crash

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/harness"
)

// TestKillWhileStarting: a coordinator is killed while it starts, for the first time or later. The
// next start has everything that was there before.
func TestKillWhileStarting(t *testing.T) {
	t.Parallel()
	const dirs = 8
	var early, late atomic.Int64
	for range dirs {
		c := harness.NewCoordinator(t, t.TempDir())
		killSoon(t, c, &early, &late)
		c.Start()
		id := submitOne(t, c)
		c.Kill()
		killSoon(t, c, &early, &late)
		c.Start()
		if _, err := lessorv1.NewTaskServiceClient(c.Conn()).GetTask(t.Context(), &lessorv1.GetTaskRequest{TaskId: id}); err != nil {
			t.Errorf("A6: task %s: %v", id, err)
		}
		c.Stop()
		c.Verify()
	}
	t.Logf("%d data directories: %d kills before the coordinator listened, %d after", dirs, early.Load(), late.Load())
}

// killSoon starts a process and kills it at a random moment soon after, whatever it is doing.
func killSoon(t *testing.T, c *harness.Coordinator, early, late *atomic.Int64) {
	t.Helper()
	var listens atomic.Bool
	p := c.Launch(harness.Lines(func(string) { listens.Store(true) }))
	sleep(t.Context(), time.Duration(rand.IntN(120))*time.Millisecond)
	p.Kill()
	if listens.Load() {
		late.Add(1)
	} else {
		early.Add(1)
	}
}

func submitOne(t *testing.T, c *harness.Coordinator) string {
	t.Helper()
	m, err := lessorv1.NewTaskServiceClient(c.Conn()).SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{
		Task: &lessorv1.TaskSpec{Queue: patientQueue, Payload: fmt.Append(nil, "payload")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return m.GetTask().GetTaskId()
}
