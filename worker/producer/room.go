package producer

import (
	"context"
	"math/rand/v2"
	"reflect"
	"sync"
	"time"

	"google.golang.org/grpc"
)

// Bounds of the calls that all Waits on one connection have under way. A coordinator lets a connection have 1,024 calls; the Waits leave most of these to
// whatever else uses the connection: Submit, workers, other calls.
const (
	maxWatches = 256
	maxPolls   = 64
)

// How often a Wait without a watch asks. The intervals grow from the first to the last, and are longer if many Waits ask, or if the answers are large: so
// the Waits of a connection ask a thousand times a second at most, and for at most 32 MiB.
const (
	firstPoll   = 100 * time.Millisecond
	lastPoll    = time.Second
	perPoll     = time.Millisecond
	bytesPerSec = 32 << 20
)

// room is what the Waits on one connection share.
type room struct {
	watches chan struct{} // holds a token for each watch that is open
	polls   chan struct{} // holds a token for each poll under way
	conn    grpc.ClientConnInterface
	waits   int // in progress; guarded by rooms
}

// rooms holds the room of each connection on which there is a Wait. Clients know no more of each other than their connection.
var rooms = struct {
	sync.Mutex
	of map[grpc.ClientConnInterface]*room
}{of: make(map[grpc.ClientConnInterface]*room)}

// enterRoom begins a Wait on a connection. A connection that cannot be compared, for example a struct with a slice, shares no room with others.
func enterRoom(conn grpc.ClientConnInterface) *room {
	rooms.Lock()
	defer rooms.Unlock()
	comparable := reflect.ValueOf(conn).Comparable()
	var r *room
	if comparable {
		r = rooms.of[conn]
	}
	if r == nil {
		r = &room{watches: make(chan struct{}, maxWatches), polls: make(chan struct{}, maxPolls), conn: conn}
		if comparable {
			rooms.of[conn] = r
		}
	}
	r.waits++
	return r
}

// leave ends a Wait.
func (r *room) leave() {
	rooms.Lock()
	defer rooms.Unlock()
	if r.waits--; r.waits == 0 && reflect.ValueOf(r.conn).Comparable() {
		delete(rooms.of, r.conn)
	}
}

// asking returns how many Waits have no watch.
func (r *room) asking() int {
	rooms.Lock()
	defer rooms.Unlock()
	return max(r.waits-len(r.watches), 1)
}

// enterWatch takes room for a watch; ok is false if none became free within the time.
func (r *room) enterWatch(ctx context.Context, within time.Duration) (ok bool) {
	select {
	case r.watches <- struct{}{}:
		return true
	default:
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case r.watches <- struct{}{}:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

func (r *room) leaveWatch() { <-r.watches }

// enterPoll takes room for a poll; ok is false if ctx has ended.
func (r *room) enterPoll(ctx context.Context) (ok bool) {
	if ctx.Err() != nil {
		return false
	}
	select {
	case r.polls <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (r *room) leavePoll() { <-r.polls }

// untilPoll returns how long a Wait waits for a watch before it polls, after so many polls, the last of which had an answer of so many bytes. It is random,
// so that Waits that began together do not ask together.
func (r *room) untilPoll(polls, size int) time.Duration {
	span := min(firstPoll<<min(polls, 10), lastPoll)
	each := perPoll + time.Duration(size)*time.Second/bytesPerSec
	span = max(span, time.Duration(r.asking())*each)
	return span/2 + rand.N(span)
}
