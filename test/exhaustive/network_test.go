package exhaustive

import "github.com/lessor-dev/lessor/lease"

// message is what a worker sends under a lease. Its content does not depend on when it is sent. A
// network that keeps any number of messages for any time, and loses, repeats and reorders them, can
// deliver each message at any time and any number of times, under each lease that was told. The
// search tries all of that, so the world need not contain the messages in transit.
type message struct {
	task    int
	attempt uint32
	kind    lease.Kind
	began   bool // the message says that the attempt had begun, without an answer to a Start (T7, V19)
}

// workerView is what the workers were told about a lease. A worker that missed an answer knows
// less, and asks again. So every message may be sent at any time under every lease that was told.
type workerView struct {
	ticket       lease.Ticket // zero if the grant was not told
	liveUntil    lease.Instant
	reported     lease.Kind // the kind of the report that was COMMITTED; 0 if none was
	state        lease.State
	cancelReason lease.Reason // the reason of the first CANCELLED; 0 if there was none
}

// pendingNews is what a worker will be told once it is durable.
type pendingNews struct {
	message        // its kind is 0 for a grant, and for the end of a lease
	ticket         lease.Ticket
	answer         lease.Answer
	granted, ended bool
	liveUntil      lease.Instant
}

// toReport returns the message as the coordinator gets it.
func (m message) toReport(s *scope, t lease.Ticket) *lease.Report {
	r := &lease.Report{
		Kind: m.kind, TaskID: id(m.task).String(), LeaseID: s.rules[t.Epoch].Authority.Issue(tenant, t),
		Attempt: m.attempt, Started: m.began,
	}
	switch m.kind {
	case lease.KindComplete:
		r.Result = &lease.Result{}
	case lease.KindFail:
		r.Failure = &lease.Failure{}
	}
	return r
}
