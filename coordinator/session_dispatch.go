package coordinator

import (
	"slices"
	"strconv"

	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Bounds of dispatch frames.
const (
	maxDispatch = 2 << 20 // bytes of the assignments of one frame, unless one alone is larger
	maxUnacked  = 16_384  // leases that are remembered for the ack of their frame; more than a worker can hold
)

// dispatch queues new leases. Those that wait by the time they are sent share frames.
func (o *outbox) dispatch(granted []engine.Granted) {
	o.add(func(w *waiting) {
		if n := len(w.pushed); n > 0 && w.pushed[n-1].isWork() {
			w.pushed[n-1].granted = append(w.pushed[n-1].granted, granted...)
			return
		}
		w.pushed = append(w.pushed, push{granted: granted})
	})
}

// sendWork hands out leases, in frames of a bounded size.
func (o *outbox) sendWork(granted []engine.Granted) error {
	for len(granted) > 0 {
		n := fill(granted)
		assignments, err := o.ss.c.assignments(granted[:n])
		if err != nil {
			return err
		}
		granted = granted[n:]
		if len(assignments) == 0 { // their tasks were deleted
			continue
		}
		if err := o.sendDispatch(assignments); err != nil {
			return err
		}
	}
	return nil
}

// fill tells how many leases go into one frame; at least one does.
func fill(granted []engine.Granted) int {
	bytes := 0
	for i := range granted {
		if bytes += granted[i].Bytes; bytes > maxDispatch && i > 0 {
			return i
		}
	}
	return len(granted)
}

func (o *outbox) sendDispatch(assignments []*lessorv1.Assignment) error {
	m := &lessorv1.SessionResponse{
		Id: "d" + strconv.FormatUint(o.seq+1, 10), Ack: &lessorv1.Ack{Request: true},
		Payload: &lessorv1.SessionResponse_Dispatch{Dispatch: &lessorv1.Dispatch{Assignments: assignments}},
	}
	leases := make([]leaseRef, len(assignments))
	for i, a := range assignments {
		leases[i] = leaseRef{task: a.GetTask().GetTaskId(), lease: a.GetLeaseId()}
	}
	o.mu.Lock()
	o.unacked.add(m.GetId(), leases)
	o.mu.Unlock()
	return o.send(m)
}

// dispatched returns the leases of a frame, once.
func (o *outbox) dispatched(frame string) []leaseRef {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.unacked.take(frame)
}

type leaseRef struct{ task, lease string }

// unacked remembers which leases a dispatch carried until its ack comes. A worker need not acknowledge what it starts at once, so
// the oldest are forgotten where they are too many.
type unacked struct {
	frames map[string][]leaseRef
	order  []string // oldest first; some may have been taken
	leases int
}

func (u *unacked) add(frame string, leases []leaseRef) {
	u.frames[frame] = leases
	u.order = append(u.order, frame)
	u.leases += len(leases)
	for u.leases > maxUnacked && len(u.order) > 1 {
		u.take(u.order[0])
		u.order = u.order[1:]
	}
	if len(u.order) > 2*len(u.frames)+16 {
		u.order = slices.DeleteFunc(u.order, func(frame string) bool { return u.frames[frame] == nil })
	}
}

func (u *unacked) take(frame string) []leaseRef {
	leases := u.frames[frame]
	delete(u.frames, frame)
	u.leases -= len(leases)
	return leases
}
