package session

import (
	"slices"

	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// Bounds of dispatch frames.
var (
	maxDispatch = 2 << 20 // bytes of the assignments of one frame, unless one alone is larger
	maxUnacked  = 16_384  // leases whose dispatch is not acknowledged yet; more than a worker can hold
)

const handedSize = 128 // about how many bytes one handedLease takes

// dispatch queues new leases. Leases that wait at the same time share dispatch frames.
func (o *outbox) dispatch(granted []engine.Granted) {
	o.add(func(w *waiting) {
		if n := len(w.pushed); n > 0 && w.pushed[n-1].make == nil {
			w.pushed[n-1].granted = append(w.pushed[n-1].granted, granted...)
			return
		}
		w.pushed = append(w.pushed, waitingFrame{granted: granted, wantsAck: true})
	})
}

// countForFrame returns how many of the leases fit into one frame: at least one.
func countForFrame(granted []engine.Granted) int {
	bytes := 0
	for i := range granted {
		if bytes += granted[i].Bytes; bytes > maxDispatch && i > 0 {
			return i
		}
	}
	return len(granted)
}

// handedLease is what the session keeps of a lease that it sent in a dispatch frame.
type handedLease struct {
	task    lease.TaskID
	attempt uint32
	lease   string
	token   uint64
}

func handedLeases(granted []engine.Granted) []handedLease {
	all := make([]handedLease, len(granted))
	for i := range granted {
		g := &granted[i]
		all[i] = handedLease{g.Task.ID, g.Task.Lease.Attempt, g.LeaseID, g.Token}
	}
	return all
}

// mayHaveEnded reports whether one of the leases may have ended, so that the store must be read
// before the dispatch is sent. A lease may have ended if its acknowledgement or its renewal is
// overdue: then the dispatch has waited for a slow reader (W11) or for the next stream (W8). It may
// also have ended if it is delivered again: the holder may have reported in the meantime, and the
// verdict goes out before the dispatch.
func mayHaveEnded(granted []engine.Granted, now lease.Now) bool {
	return slices.ContainsFunc(granted, func(g engine.Granted) bool {
		return g.Again || g.Task.Lease.AckBy <= now.Serving || g.Task.ExpiresAt(now) <= now.Serving
	})
}

// regrant reads from the store which of the leases are still live, for a dispatch that is sent
// again or late.
func (s *Server) regrant(leases []handedLease) ([]engine.Granted, error) {
	var all []engine.Granted
	err := s.View(func(r store.Reader) error {
		for _, h := range leases {
			t, err := records.Task(r, h.task)
			if err != nil {
				return err
			}
			if t != nil && t.Lease != nil && t.Lease.Attempt == h.attempt {
				all = append(all, engine.Granted{Task: t, LeaseID: h.lease, Token: h.token})
			}
		}
		return nil
	})
	return all, err
}

// dispatchOf makes the dispatch frame of the leases, for a worker with this credential. If no lease
// is left, the frame has no payload, but it still uses its sequence number.
func (s *Server) dispatchOf(credential string, granted []engine.Granted) (*lessorv1.SessionResponse, error) {
	assignments, err := s.Assign(credential, granted)
	if err != nil || len(assignments) == 0 {
		return &lessorv1.SessionResponse{}, err
	}
	return &lessorv1.SessionResponse{
		Payload: &lessorv1.SessionResponse_Dispatch{Dispatch: &lessorv1.Dispatch{Assignments: assignments}},
	}, nil
}

// unacked holds the leases of each dispatch until the ack of the dispatch comes (W5). A worker that
// starts its tasks at once need not send acks, so unacked drops the oldest dispatches when it holds
// more than maxUnacked leases.
type unacked struct {
	frames []dispatched // oldest first
	leases int
}

type dispatched struct {
	seq    uint64
	leases []handedLease
}

func (u *unacked) add(seq uint64, leases []handedLease) {
	u.frames = append(u.frames, dispatched{seq, leases})
	u.leases += len(leases)
	u.dropOld()
}

// putBack undoes a take. Which of the leases belonged to which dispatch is not known any more: the
// next take returns all of them as those of earlier ones.
func (u *unacked) putBack(leases []handedLease) {
	u.frames = slices.Insert(u.frames, 0, dispatched{leases: leases})
	u.leases += len(leases)
	u.dropOld()
}

func (u *unacked) dropOld() {
	for u.leases > maxUnacked && len(u.frames) > 1 {
		u.pop()
	}
}

func (u *unacked) pop() (leases []handedLease) {
	leases = pop(&u.frames).leases
	u.leases -= len(leases)
	return leases
}

// take removes and returns the leases of the dispatch with the given seq, and those of all
// dispatches before it.
func (u *unacked) take(seq uint64) (a acks) {
	for len(u.frames) > 0 && u.frames[0].seq < seq {
		a.before = append(a.before, u.pop()...)
	}
	if len(u.frames) > 0 && u.frames[0].seq == seq {
		a.named = u.pop()
	}
	return a
}
