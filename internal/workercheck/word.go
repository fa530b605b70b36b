package workercheck

import (
	"fmt"
	"slices"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// kind says what the worker says about an attempt.
type kind string

const (
	start     kind = "start"
	heartbeat kind = "heartbeat"
	complete  kind = "complete"
	fail      kind = "fail"
	release   kind = "release"
)

// outcome reports whether it ends the attempt.
func (k kind) outcome() bool { return k == complete || k == fail || k == release }

// word is one thing that the worker said about an attempt.
type word struct {
	kind    kind
	attempt *attempt
	at      time.Time
	content string // equal for two reports that are the same (V13); of a start, begun or empty
	// category is that of a fail.
	category string

	verdict lessorv1.Verdict // UNSPECIFIED: none has come, or none yet
	reason  string
	told    time.Time // when it had the verdict, or would have had it
	lost    bool      // the worker did not get the answer
}

// begun is the content of a start that does not ask whether the work may begin.
const begun = "begun"

func (w *word) String() string {
	s := fmt.Sprintf("%s of %s", w.kind, w.attempt)
	if w.category != "" {
		s += " (" + w.category + ")"
	}
	return s
}

// attempt is a grant that the worker was told of.
type attempt struct {
	task    string
	number  uint32
	granted time.Time
	words   []*word
	// lost is when the worker was told that the lease is lost; zero: it was not.
	lost time.Time
	// stopping is when the worker was told to stop within a grace; zero: it was not.
	stopping time.Time
	// acked: the worker has acknowledged the frame with the dispatch.
	acked bool
}

func (a *attempt) String() string { return fmt.Sprintf("%s, attempt %d", a.task, a.number) }

// lose: the worker was told that the lease is lost.
func (a *attempt) lose() {
	if a.lost.IsZero() {
		a.lost = time.Now()
	}
}

// outcomes returns what would end the attempt, in the order in which the worker said it.
func (a *attempt) outcomes() []*word {
	return slices.DeleteFunc(slices.Clone(a.words), func(w *word) bool { return !w.kind.outcome() })
}

// repeatedInVain reports whether the worker said another outcome, or the same again although it had
// an answer, or had not waited for one. On a busy machine the answer may take so long that it is
// right to repeat the report (V4).
func (a *attempt) repeatedInVain() bool {
	all := a.outcomes()
	for i, w := range all {
		for _, before := range all[:i] {
			answered := !before.told.IsZero() && !before.lost
			if w.kind != before.kind || w.content != before.content ||
				answered && w.at.After(before.told.Add(crossing)) || w.at.Before(before.at.Add(crossing)) {
				return true
			}
		}
	}
	return false
}
