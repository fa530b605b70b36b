//go:build faults

package standby

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/proxy"
)

// The directions of a relay between a standby and its coordinator.
const (
	toCoordinator = proxy.ToCoordinator
	toStandby     = proxy.ToWorker
)

// fault is something that happens to the connection of a standby.
type fault struct {
	name   string
	begin  func(*proxy.Relay)
	end    func(*proxy.Relay)
	landed func(*proxy.Relay) int64 // rises once the fault has hit something; nil: it has, since begin returned
	silent bool                     // nothing is acknowledged meanwhile
}

var reset = fault{
	name: "reset",
	begin: func(r *proxy.Relay) {
		for r.Reset() == 0 {
			time.Sleep(time.Millisecond)
		}
	},
	end: func(*proxy.Relay) {},
}

// hole lets nothing pass in these directions, and nobody is told.
func hole(name string, directions ...proxy.Direction) fault {
	return fault{
		name: name, silent: true,
		begin: func(r *proxy.Relay) {
			for _, d := range directions {
				r.Block(d)
			}
		},
		end: func(r *proxy.Relay) {
			for _, d := range directions {
				r.Unblock(d)
			}
		},
		landed: func(r *proxy.Relay) int64 { return r.Held(toCoordinator) + r.Held(toStandby) },
	}
}

var faults = []fault{
	reset,
	hole("nothing to the standby", toStandby),
	hole("nothing from the standby", toCoordinator),
	hole("nothing either way", toCoordinator, toStandby),
	{
		name:   "a trickle",
		begin:  func(r *proxy.Relay) { r.Trickle(200, 20*time.Millisecond) },
		end:    func(r *proxy.Relay) { r.Slow(0) },
		landed: (*proxy.Relay).Slowed,
	},
}

// newRelayed starts a coordinator, and a standby that follows it through a relay.
func newRelayed(t *testing.T, args ...string) *pair {
	p := newPair(t)
	p.serve(args...)
	p.relay = proxy.NewRelay(t, p.c.Addr)
	p.follow(filepath.Join(t.TempDir(), "spare"))
	return p
}

// begin begins a fault, and returns when it has hit something.
func (p *pair) begin(f fault) {
	p.Helper()
	if f.landed == nil {
		f.begin(p.relay)
		return
	}
	before := f.landed(p.relay)
	f.begin(p.relay)
	p.await(f.name+": no byte was held up", func() bool { return f.landed(p.relay) > before })
}

// gaveUp counts how often answers ceased to wait for a standby.
func (p *pair) gaveUp() int { return strings.Count(p.c.Process().Stderr(), "no standby keeps up") }

// copies counts the copies that the standby began.
func (p *pair) copies() int { return strings.Count(p.s.Stderr(), "is being copied") }

// watch notes, again and again, what was told before the coordinator said that all of it is on the
// standby, too. It ends when the coordinator does; safe waits for that, and returns what was told
// before it last said so.
func (p *pair) watch() (safe func() *book) {
	b, admin := p.b, lessorv1.NewAdminServiceClient(p.c.Conn())
	last := make(chan *book)
	go func() {
		promised := newBook()
		for ; ; time.Sleep(5 * time.Millisecond) {
			told := b.copied()
			m, err := admin.GetStatus(p.Context(), &lessorv1.GetStatusRequest{})
			if err != nil {
				last <- promised
				return
			}
			if m.GetWaitsForStandby() {
				promised = told
			}
		}
	}()
	return func() *book { return <-last }
}

// The connection between a coordinator and its standby is reset, carries nothing in one or both
// directions, or next to nothing, at random times under load; then, in the middle of such a fault,
// the coordinator is killed, its disk is gone, and the standby is promoted. It has what was
// acknowledged before the coordinator last said that results are told when a standby has them, too
// (A6). If the faults last longer than results are to wait, results no longer wait, and everything
// goes on; if not, nobody is told anything that the standby does not have. Once the connection
// works again, the standby catches up by itself, without a new copy, and results wait again.
func TestPartitions(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, wait := range []string{"200ms", "1h", "200ms", "1h"} {
		p := newRelayed(t, "--standby-wait", wait)
		stop, safe := p.load(), p.watch()
		for _, i := range random.Perm(len(faults)) {
			p.awaitMore(20)
			time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
			p.suffer(faults[i], wait == "200ms", random)
		}
		p.failOver(faults[random.IntN(len(faults))], random)
		stop()
		told, promised := p.b, safe()
		if wait == "1h" {
			promised = told // it said so all the time
		}
		p.serve()
		promised.compare(t.Context(), t, lessorv1.NewTaskServiceClient(p.c.Conn()))
		submits, reports := promised.sizes()
		if submits == 0 || reports == 0 {
			t.Error("the coordinator never said that results wait")
		}
		allSubmits, allReports := told.sizes()
		t.Logf("--standby-wait %s: %d of %d submits and %d of %d reports were acknowledged before it last said that all is safe",
			wait, submits, allSubmits, reports, allReports)
	}
}

// suffer lets a fault last for a while. short says that results may wait for less than that.
func (p *pair) suffer(f fault, short bool, random *rand.Rand) {
	p.Helper()
	gaveUp, copies := p.gaveUp(), p.copies()
	p.begin(f)
	if short {
		if f.silent {
			p.awaitStatus(f.name+": results still wait",
				func(m *lessorv1.GetStatusResponse) bool { return !m.GetWaitsForStandby() })
		}
		p.awaitMore(20)
	}
	time.Sleep(time.Duration(random.IntN(600)) * time.Millisecond)
	f.end(p.relay)
	p.awaitMore(20)
	p.awaitWaits()
	if n := p.gaveUp() - gaveUp; !short && n > 0 {
		p.Errorf("%s: results ceased to wait %d times\n%s", f.name, n, p.c.Process().Stderr())
	}
	if p.copies() > copies {
		p.Errorf("%s: the standby began a new copy\n%s\n%s", f.name, p.c.Process().Stderr(), p.s.Stderr())
	}
}

// failOver kills the coordinator in the middle of a fault, or right after it, removes its disk, and
// promotes the standby.
func (p *pair) failOver(f fault, random *rand.Rand) {
	p.Helper()
	p.awaitMore(20)
	p.begin(f)
	time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond)
	if random.IntN(2) == 0 { // or while the standby catches up
		f.end(p.relay)
		time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
	}
	p.c.Kill()
	p.s.Kill()
	if err := os.RemoveAll(p.dir); err != nil {
		p.Fatal(err)
	}
	p.run("standby", "promote", "--force", p.spare) // the relay still listens where the coordinator did
	p.run("verify", p.spare)
	p.dir = p.spare
}
