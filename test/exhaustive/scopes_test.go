package exhaustive

import (
	"flag"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

var full = flag.Bool("full", false, "the whole scopes, for some 15 s, instead of small ones")

// scope bounds a world. Every scope has two workers and two tasks, a TTL of two ticks, and budgets
// of two failures and two losses for each task.
type scope struct {
	name       string
	kinds      []lease.Kind // kinds of messages that workers send
	batch      int          // most steps between two commits
	tasks      int          // how many of the two tasks have work to do
	grants     uint32       // for each task
	crashes    int
	invalidate bool // the start after a crash has --recovery=invalidate
	cancels    int  // of all tasks together
	adoptions  int
	stream     bool // grants must be acknowledged within a tick (W5)
	began      bool // a Start, or a report that closes an attempt, may say that it had begun (T7, V19)
	keyed      bool // the tasks share a concurrency key with limit 1 (T11)

	rules [3]*lease.Rules // one for each epoch
	nonce uint64

	states  int
	reached reached
}

func (s *scope) prepare() {
	s.reached = reached{}
	for epoch := range s.rules {
		authority := lease.NewAuthority(uint32(epoch), []byte("key"))
		authority.KnownFrom = 1
		s.rules[epoch] = &lease.Rules{
			Authority: authority, Limits: lease.DefaultLimits(), AckWithin: time.Duration(tick),
			Entropy: func() uint64 { return s.nonce },
		}
	}
}

const (
	start, complete, fail   = lease.KindStart, lease.KindComplete, lease.KindFail
	release, heartbeat, ack = lease.KindRelease, lease.KindHeartbeat, lease.KindAck
)

var smallScopes = []scope{
	{name: "together", kinds: []lease.Kind{complete}, batch: 1, tasks: 2, grants: 1, cancels: 1},
	{name: "again", kinds: []lease.Kind{start, complete, fail, release, heartbeat}, batch: 1, tasks: 1, grants: 2, adoptions: 1},
	{name: "cancel", kinds: []lease.Kind{start, complete, fail, release, heartbeat}, batch: 1, tasks: 1, grants: 1, cancels: 1},
	{name: "crash", kinds: []lease.Kind{complete, fail}, batch: 1, tasks: 1, grants: 2, crashes: 1},
	{name: "invalidate", kinds: []lease.Kind{start, complete, fail}, batch: 1, tasks: 1, grants: 1, crashes: 1, invalidate: true},
	{name: "stream", kinds: []lease.Kind{ack, complete, fail, release}, batch: 1, tasks: 1, grants: 2, cancels: 1, stream: true},
	{name: "began", kinds: []lease.Kind{ack, start, complete, fail}, batch: 1, tasks: 1, grants: 1, cancels: 1, stream: true, began: true},
	{name: "key", kinds: []lease.Kind{complete}, batch: 1, tasks: 2, grants: 1, keyed: true, adoptions: 1},
}

// fullScopes together contain everything that smallScopes contain, and more.
var fullScopes = []scope{
	{name: "together", kinds: []lease.Kind{start, complete, heartbeat}, batch: 1, tasks: 2, grants: 1, crashes: 1, cancels: 1},
	{name: "again", kinds: []lease.Kind{start, complete, fail, release, heartbeat}, batch: 1, tasks: 1, grants: 2, crashes: 1, cancels: 1},
	{name: "budgets", kinds: []lease.Kind{complete, fail, heartbeat}, batch: 1, tasks: 1, grants: 3, cancels: 1, adoptions: 1},
	{name: "batches", kinds: []lease.Kind{complete, heartbeat}, batch: 2, tasks: 1, grants: 2, crashes: 1},
	{name: "invalidate", kinds: []lease.Kind{start, complete, fail}, batch: 1, tasks: 1, grants: 2, crashes: 1, cancels: 1, invalidate: true},
	{name: "stream", kinds: []lease.Kind{ack, complete, fail, release}, batch: 1, tasks: 1, grants: 2, cancels: 1, stream: true},
	{name: "began", kinds: []lease.Kind{ack, start, complete, fail, release}, batch: 1, tasks: 1, grants: 2, crashes: 1, cancels: 1, stream: true, began: true},
	{name: "key", kinds: []lease.Kind{complete, fail}, batch: 1, tasks: 2, grants: 2, keyed: true, adoptions: 1},
}

// In every state that the scopes can reach, and at each step between two states, the invariants
// hold, and the system can still finish all tasks. Together the scopes reach exactly the expected
// outcomes.
func TestEveryState(t *testing.T) {
	t.Attr("rules", "A1 A2 A3 A4 A5 A9 A10 T5 T7 T11 V4 V12 V19")
	scopes := smallScopes
	if *full {
		scopes = fullScopes
	}
	t.Run("scopes", func(t *testing.T) {
		for i := range scopes {
			t.Run(scopes[i].name, func(t *testing.T) {
				t.Parallel()
				scopes[i].prepare()
				scopes[i].run(t)
			})
		}
	})
	if t.Failed() {
		return // the search stopped at the failure
	}
	states, all := 0, reached{}
	for i := range scopes {
		states += scopes[i].states
		for o, n := range scopes[i].reached {
			all[o] += n
		}
	}
	all.check(t)
	if t.Logf("%d states", states); *full && states < 100_000 {
		t.Error("the full scopes have fewer than 100,000 states: the search left most of them out")
	}
}
