package exhaustive

import (
	"flag"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

var full = flag.Bool("full", false, "the whole scopes, for a minute, instead of small ones")

// scope bounds a world. Every scope has two workers and two tasks, a lease of two ticks, two failures and two losses per task.
type scope struct {
	name       string
	kinds      []lease.Kind // that workers say
	inFlight   int          // messages
	batch      int          // steps between two commits
	grants     uint32       // of a task
	crashes    int
	invalidate bool // the start after a crash has --recovery=invalidate
	cancels    int
	adoptions  int
	stream     bool // grants must be acknowledged within a tick (W5)
	keyed      bool // the tasks share a concurrency key of limit 1 (T11)

	rules [3]*lease.Rules // by epoch
	nonce uint64
}

func (s *scope) prepare() {
	for epoch := range s.rules {
		s.rules[epoch] = &lease.Rules{
			Authority: lease.NewAuthority(uint32(epoch), []byte("key")), Limits: lease.DefaultLimits(), AckWithin: time.Duration(tick),
			Entropy: func() uint64 { return s.nonce },
		}
	}
}

const (
	start, complete, fail   = lease.KindStart, lease.KindComplete, lease.KindFail
	release, heartbeat, ack = lease.KindRelease, lease.KindHeartbeat, lease.KindAck
)

// small scopes take a few seconds under the race detector.
var small = []scope{
	{name: "reports", kinds: []lease.Kind{complete, fail}, inFlight: 1, batch: 1, grants: 1},
	{name: "cancel", inFlight: 0, batch: 1, grants: 1, cancels: 1},
	{name: "crash", inFlight: 0, batch: 1, grants: 1, crashes: 1},
	{name: "invalidate", inFlight: 0, batch: 1, grants: 1, crashes: 1, invalidate: true},
	{name: "key", kinds: []lease.Kind{complete}, inFlight: 1, batch: 1, grants: 1, keyed: true, adoptions: 1},
}

// whole scopes together have what the small ones have, and more of it.
var whole = []scope{
	{name: "network", kinds: []lease.Kind{complete, fail}, inFlight: 3, batch: 1, grants: 1},
	{name: "reports", kinds: []lease.Kind{complete, fail}, inFlight: 1, batch: 1, grants: 1, crashes: 1},
	{name: "cancel", kinds: []lease.Kind{start, release}, inFlight: 1, batch: 1, grants: 1, cancels: 1},
	{name: "invalidate", kinds: []lease.Kind{fail}, inFlight: 1, batch: 1, grants: 1, crashes: 1, invalidate: true},
	{name: "stream", kinds: []lease.Kind{ack}, inFlight: 1, batch: 1, grants: 1, stream: true},
	{name: "key", kinds: []lease.Kind{complete, fail}, inFlight: 1, batch: 1, grants: 1, keyed: true, adoptions: 1},
}

func TestEveryState(t *testing.T) {
	t.Attr("rules", "A1 A2 A3 A4 A5 A9 A10 T5 T7 T11")
	scopes := small
	if *full {
		scopes = whole
	}
	for i := range scopes {
		t.Run(scopes[i].name, func(t *testing.T) {
			scopes[i].prepare()
			scopes[i].run(t)
		})
	}
}
