//go:build faults

package linear

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/lessor-dev/lessor/test/harness"
	"github.com/lessor-dev/lessor/worker"
)

// With these environment variables the test binary runs as a client process. It reads from its
// standard input where the coordinator listens, one line for each start, and prints each call that
// it makes.
const (
	clientName  = "LESSOR_LINEAR_CLIENT"
	clientSeed  = "LESSOR_LINEAR_SEED"
	clientCalls = "LESSOR_LINEAR_CALLS"
	clientTTL   = "LESSOR_LINEAR_TTL"
)

// callersEach is how many workers one client process runs. They share what they know, so that
// several of them report under the same lease.
const callersEach = 3

// client is a client process.
type client struct {
	name       string
	ttl        time.Duration // heartbeat_timeout of the tasks
	known      known
	out        sync.Mutex
	left       atomic.Int64
	connection atomic.Pointer[connection]
}

// connection is the connection to one process of the coordinator.
type connection struct {
	conn *grpc.ClientConn
	next chan struct{} // closed when there is a newer line
}

// runClient runs the client process.
func runClient(name string) int {
	seed, _ := strconv.ParseUint(os.Getenv(clientSeed), 10, 64)
	calls, _ := strconv.ParseInt(os.Getenv(clientCalls), 10, 64)
	ttl, _ := time.ParseDuration(os.Getenv(clientTTL))
	c := &client{name: name, ttl: ttl}
	c.left.Store(calls)
	connected := make(chan struct{})
	go c.connect(connected)
	<-connected
	var busy sync.WaitGroup
	for i := range callersEach {
		busy.Go(func() {
			(&caller{client: c, name: fmt.Sprintf("%s-%d", name, i), rand: rand.New(rand.NewPCG(seed, uint64(i)))}).work()
		})
	}
	busy.Wait()
	return 0
}

// connect makes a new connection for each start of the coordinator.
func (c *client) connect(first chan<- struct{}) {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		conn, err := worker.Dial(lines.Text())
		if err != nil {
			die(err)
		}
		old := c.connection.Swap(&connection{conn: conn, next: make(chan struct{})})
		if old == nil {
			close(first)
		} else {
			close(old.next)
		}
	}
}

// print prints a call in one write, so that each line is written as a whole.
func (c *client) print(o *op) {
	text, err := json.Marshal(o)
	if err != nil {
		die(err)
	}
	c.out.Lock()
	defer c.out.Unlock()
	_, _ = os.Stdout.Write(append(text, '\n'))
}

func die(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}

// caller makes one call after another.
type caller struct {
	*client
	name string
	rand *rand.Rand
}

// work makes calls until the process has made enough of them.
func (w *caller) work() {
	for w.left.Add(-1) >= 0 {
		w.pause()
		at := w.connection.Load()
		if answered := w.step(at.conn); !answered {
			w.await(at.next)
		}
	}
}

// await waits for the next start of the coordinator: until then all calls would stay without an
// answer.
func (w *caller) await(next <-chan struct{}) {
	select {
	case <-next:
	case <-time.After(harness.Patience):
		die(fmt.Errorf("%s: no answer, and the coordinator was not restarted", w.name))
	}
}

// pause waits a moment; now and then longer than a lease lives without a heartbeat.
func (w *caller) pause() {
	d := time.Duration(w.rand.IntN(2000)) * time.Microsecond
	if w.rand.IntN(25) == 0 {
		d += w.ttl
	}
	time.Sleep(d)
}

// step makes one call about something that the process knows.
func (w *caller) step(conn *grpc.ClientConn) (answered bool) {
	o := &op{Kind: w.draw(), Worker: w.name, Return: forever}
	id, held := w.known.pick(w.rand, o)
	o.Call = now()
	grants, err := w.call(conn, o, id, held)
	if err == nil {
		o.Return = now()
	}
	w.print(o)
	for i := range grants {
		grants[i].Worker, grants[i].Call, grants[i].Return = w.name, o.Call, o.Return
		w.print(&grants[i])
	}
	return err == nil
}

// shares says how many of a hundred calls are of each kind.
var shares = []struct {
	kind kind
	n    int
}{
	{submit, 4}, {lease, 14}, {start, 14}, {heartbeat, 14}, {complete, 8}, {fail, 9}, {release, 7}, {cancel, 5}, {retry, 8}, {get, 17},
}

// draw returns a random kind of call for which the process knows enough.
func (w *caller) draw() kind {
	n := w.rand.IntN(100)
	for _, s := range shares {
		if n -= s.n; n < 0 {
			return w.known.or(s.kind)
		}
	}
	return get
}
