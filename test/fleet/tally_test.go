//go:build faults

package fleet

import (
	"fmt"
	"sync"
	"testing"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/harness"
)

// Verdicts and a reason, as workers print them.
var (
	committed = lessorv1.Verdict_VERDICT_COMMITTED.String()
	cancelled = lessorv1.Verdict_VERDICT_CANCELLED.String()

	superseded = lessorv1.Reason_REASON_SUPERSEDED.String()
)

// tally records what one worker process prints.
type tally struct {
	t    *testing.T
	name string

	mu       sync.Mutex
	starts   map[attempt]int
	verdicts map[attempt][]string
	counts   map[string]int // number of verdicts of each kind
	reasons  map[string]int // number of verdicts with each reason
	enough   chan struct{}  // closed at start number want
	want     int            // 0: none
}

// attempt identifies an attempt.
type attempt struct {
	task   string
	number uint32
}

func newTally(t *testing.T, name string, want int) *tally {
	return &tally{
		t: t, name: name, want: want, enough: make(chan struct{}),
		starts: map[attempt]int{}, verdicts: map[attempt][]string{}, counts: map[string]int{}, reasons: map[string]int{},
	}
}

// lines returns a writer for the worker's output.
func (n *tally) lines() *harness.LineWriter {
	return harness.Lines(func(line string) {
		var what, verdict, reason string
		var a attempt
		if _, err := fmt.Sscan(line, &what, &a.task, &a.number, &verdict, &reason); err != nil {
			n.t.Errorf("worker %s printed %q", n.name, line)
			return
		}
		n.add(what, a, verdict, reason)
	})
}

func (n *tally) add(what string, a attempt, verdict, reason string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if what == "start" {
		if n.starts[a]++; len(n.starts) == n.want {
			close(n.enough)
		}
		return
	}
	n.verdicts[a] = append(n.verdicts[a], verdict)
	n.counts[verdict]++
	n.reasons[reason]++
}
