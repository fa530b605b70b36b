package quota

import (
	"fmt"
	"time"
)

// countWait is when it is worth while to ask again where a count is full: nobody knows when one of those that are under way ends.
const countWait = time.Second

// Error refuses what is more than a tenant or a credential may use.
type Error struct {
	Limit Limit
	Of    string        // "tenant" or "credential"
	Most  string        // the limit, as settings have it
	Wait  time.Duration // when a repeat may succeed: to the nanosecond, unless others come first, where the limit is a rate
}

var words = [numLimits]string{
	Calls: "calls", Submits: "submitted tasks", Frames: "frames of sessions", Sessions: "open sessions", Streams: "open streams",
	Watches: "open watches", Tasks: "tasks that have not ended",
}

func (e *Error) Error() string {
	return fmt.Sprintf("the %s has used up its quota of %s: %s", e.Of, words[e.Limit], e.Most)
}
