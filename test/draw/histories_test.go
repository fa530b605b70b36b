package draw_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/test/draw"
)

var histories = draw.NewHistories("./here", 1)

// ending is the environment variable that says how the history of seed 8 ends.
const ending = "LESSOR_DRAW_ENDING"

// TestPlayed is run once more by TestFailedHistoryIsNamed.
func TestPlayed(t *testing.T) {
	how := os.Getenv(ending)
	histories.Play(t, func(t *testing.T, seed uint64) {
		switch {
		case seed == 7:
		case seed > 8:
			t.Error("another history was played")
		case how == "Error":
			t.Error("it failed")
		case how == "Fatal":
			t.Fatal("it failed")
		case how == "panic":
			panic("it failed")
		}
	})
}

// However a history fails, it is the last one, and the log says how to repeat it.
func TestFailedHistoryIsNamed(t *testing.T) {
	for _, how := range []string{"Error", "Fatal", "panic"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestPlayed$", "-random.seed=7", "-random.histories=3")
		cmd.Env = append(os.Environ(), ending+"="+how)
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("%s: the test passed", how)
		}
		for _, want := range []string{"seeds from 7 on", "it failed", "repeat: go test ./here -run '^TestPlayed$' -random.histories=1 -random.seed=8"} {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: the output has no %q:\n%s", how, want, out)
			}
		}
		if strings.Contains(string(out), "another history") {
			t.Errorf("%s: a history came after the one that failed:\n%s", how, out)
		}
	}
}
