//go:build !race

package coordinator

import (
	"testing"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// The number of allocations for writing a frame does not grow with its items, because the buffers of sent frames are reused.
func TestAllocationsOfAFrame(t *testing.T) {
	m := &lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Verdicts{Verdicts: &lessorv1.Verdicts{
		Verdicts: manyOf(100, &lessorv1.ReportVerdict{TaskId: benchTask, LeaseId: benchLease, TaskToken: string(make([]byte, 200))}),
	}}}
	n := testing.AllocsPerRun(20, func() {
		b, err := encode(m)
		if err != nil {
			t.Fatal(err)
		}
		b.Free()
	})
	if n > 20 {
		t.Errorf("%v allocations for a frame of 100 items, want at most 20", n)
	}
}
