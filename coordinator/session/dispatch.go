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
const (
	maxDispatch = 2 << 20 // bytes of the assignments of one frame, unless one alone is larger
	maxUnacked  = 16_384  // leases that are remembered for the ack of their frame; more than a worker can hold
	handedSize  = 128     // bytes that one of them takes, roughly
)

// dispatch queues new leases. Leases that wait together share frames.
func (o *outbox) dispatch(granted []engine.Granted) {
	o.add(func(w *waiting) {
		if n := len(w.pushed); n > 0 && w.pushed[n-1].frame == nil {
			w.pushed[n-1].granted = append(w.pushed[n-1].granted, granted...)
			return
		}
		w.pushed = append(w.pushed, push{granted: granted})
	})
}

// fill returns how many of the leases go into one frame: at least one.
func fill(granted []engine.Granted) int {
	bytes := 0
	for i := range granted {
		if bytes += granted[i].Bytes; bytes > maxDispatch && i > 0 {
			return i
		}
	}
	return len(granted)
}

// handedLease is what is remembered of a lease that a dispatch frame carried.
type handedLease struct {
	task    lease.TaskID
	attempt uint32
	lease   string
	token   uint64
}

func handOver(granted []engine.Granted) []handedLease {
	all := make([]handedLease, len(granted))
	for i := range granted {
		g := &granted[i]
		all[i] = handedLease{g.Task.ID, g.Task.Lease.Attempt, g.LeaseID, g.Token}
	}
	return all
}

// mayHaveEnded reports whether one of the leases may not be live any more, so that it must be looked up before its dispatch is sent. That is so if it
// should have been acknowledged or renewed by now: then the dispatch has waited for a slow reader (W11) or for the next stream (W8). It is also so if
// the lease is handed over again: the holder may know it already, and have reported, with the verdict on its way before this dispatch.
func mayHaveEnded(granted []engine.Granted, now lease.Now) bool {
	return slices.ContainsFunc(granted, func(g engine.Granted) bool {
		return g.Again || g.Task.Lease.AckBy <= now.Serving || g.Task.ExpiresAt(now) <= now.Serving
	})
}

// regrant looks up which of the leases are still live, for a dispatch that is sent again, or late.
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

// dispatchOf makes the dispatch frame of the leases. If none of them is live any more the frame has no payload, but it still fills its place in the
// sequence.
func (s *Server) dispatchOf(granted []engine.Granted) (*lessorv1.SessionResponse, error) {
	assignments, err := s.Assign(granted)
	if err != nil || len(assignments) == 0 {
		return &lessorv1.SessionResponse{}, err
	}
	return &lessorv1.SessionResponse{
		Payload: &lessorv1.SessionResponse_Dispatch{Dispatch: &lessorv1.Dispatch{Assignments: assignments}},
	}, nil
}

// unacked remembers which leases each dispatch carried, until its ack comes (W5). Since a worker need not send acks for tasks that it starts at once,
// the oldest dispatches are forgotten when there are too many.
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
	for u.leases > maxUnacked && len(u.frames) > 1 {
		u.pop()
	}
}

func (u *unacked) pop() (leases []handedLease) {
	leases = u.frames[0].leases
	u.frames[0] = dispatched{}
	if u.frames = u.frames[1:]; len(u.frames) == 0 {
		u.frames = nil
	}
	u.leases -= len(leases)
	return leases
}

// take removes and returns the leases of the dispatch with the given seq, and those of all dispatches before it.
func (u *unacked) take(seq uint64) (a acks) {
	for len(u.frames) > 0 && u.frames[0].seq < seq {
		a.before = append(a.before, u.pop()...)
	}
	if len(u.frames) > 0 && u.frames[0].seq == seq {
		a.named = u.pop()
	}
	return a
}
