package quota

import (
	"fmt"
	"time"
)

// countWait is the wait in a refusal by a count. It is only a guess, because nobody knows when one
// of those under way will end.
const countWait = time.Second

// Error says that a tenant or a credential may not use more.
type Error struct {
	Limit Limit
	Of    string        // "tenant" or "credential"
	Most  string        // the limit, in the form that settings use
	Wait  time.Duration // after which a repeat may succeed; exact for a rate, unless other calls come first

	Used, Asked uint64 // of Tasks only: how many there are, and how many more were asked for
}

var words = [numLimits]string{
	Calls:    "calls",
	Submits:  "submitted tasks",
	Frames:   "frames of sessions",
	Sessions: "open sessions",
	Streams:  "open streams",
	Watches:  "open watches",
	Waits:    "tasks that are waited for",
	Tasks:    "tasks that have not ended",
}

func (e *Error) Error() string {
	if e.Limit == Tasks { // there may be room, but not for all tasks of a batch
		return fmt.Sprintf("the %s's quota of %s is %s: it has %d, which leaves no room for %d more",
			e.Of, words[e.Limit], e.Most, e.Used, e.Asked)
	}
	return fmt.Sprintf("the %s has used up its quota of %s: %s", e.Of, words[e.Limit], e.Most)
}
