//go:build faults

package run

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/lessor-dev/lessor/test/harness"
)

var (
	kills = flag.Int("kills", 12, "kills per run; every third one while the process starts")
	seed  = flag.Uint64("seed", 0, "what is drawn; 0: another one each time")
)

func TestMain(m *testing.M) { harness.Main(m) }

const (
	jobs = 4
	// most is the largest number of starts before a kill.
	most = 24
)

// slowScript is the script of every line: it logs its start, tells the test of it, and takes a
// while after the test has heard.
const slowScript = `echo "$1" >> starts; echo >> bell; read leave < leave; sleep 0.03; echo "output of $1"`

// TestKilled: lessor run is killed again and again. No line that was printed or committed is run
// again, and in the end the output is that of an undisturbed run.
func TestKilled(t *testing.T) { killAndResume(t) }

// TestKilledInOrder is the same with --keep-order.
func TestKilledInOrder(t *testing.T) { killAndResume(t, "--keep-order") }

func killAndResume(t *testing.T, args ...string) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("seed %d", *seed)
	j := newJob(t, *kills*most+jobs+1, slowScript, args...)
	for n := range *kills {
		before := len(j.starts())
		if n%3 == 0 {
			j.killEarly()
		} else {
			j.kill(1 + j.rand.IntN(most))
		}
		j.checkCommitted(before)
	}
	j.finish()
	if j.hits == 0 {
		t.Error("no kill happened while a command ran: the test shows nothing")
	}
	t.Logf("%d lines, %d kills, %d of them while the process started, %d with commands under way; %d starts, "+
		"%d lines were committed before the last process, none of them was run again", len(j.lines), *kills, j.early, j.hits, len(j.starts()), len(j.committed))
}

// TestKilledWhileSubmitting: what was submitted before a kill is not submitted again (T1). If the
// test stands still before a kill, all lines may be submitted by then; so it tries again.
func TestKilledWhileSubmitting(t *testing.T) {
	const lines, times, tries = 20_000, 4, 5
	for range tries {
		j := newJob(t, lines, `echo >> bell; read leave < leave`)
		for range times {
			j.kill(1 + j.rand.IntN(most))
		}
		tasks := j.tasks()
		for i, task := range tasks {
			if task.GetSpec().GetTaskKey() != fmt.Sprint(i+1) {
				t.Fatalf("T1: task %d is line %s", i+1, task.GetSpec().GetTaskKey())
			}
		}
		t.Logf("%d kills while %d lines were submitted: %d tasks, one for each line up to there", times, lines, len(tasks))
		if 0 < len(tasks) && len(tasks) < lines {
			return
		}
	}
	t.Error("in no try were some but not all lines submitted at the last kill: the test shows nothing")
}
