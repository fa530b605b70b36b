package exhaustive

import "github.com/lessor-dev/lessor/lease"

// message is what a worker says under a lease. It does not depend on when it is sent. So a network that keeps any number of messages for any time,
// and loses, repeats and reorders them, delivers any message at any time, any number of times, under each lease that was told. All of that is tried,
// and messages under way need not be part of the world.
type message struct {
	task    int
	attempt uint32
	kind    lease.Kind
}

// told is what is known of a lease outside of the coordinator. A worker that missed an answer knows less, and asks again. So every message may be
// sent at any time under every lease that was told.
type told struct {
	ticket  lease.Ticket // zero if the grant was not told
	until   lease.Instant
	closed  lease.Kind // the kind of the report that was COMMITTED; 0 if none was
	state   lease.State
	because lease.Reason // the reason of the first CANCELLED; 0 if there was none
}

// news is what will be told once it is durable.
type news struct {
	message        // its kind is 0 for a grant, and for the end of a lease
	ticket         lease.Ticket
	answer         lease.Answer
	granted, ended bool
	until          lease.Instant
}

// report returns the message as the coordinator gets it.
func (m message) report(s *scope, t lease.Ticket) *lease.Report {
	r := &lease.Report{Kind: m.kind, TaskID: id(m.task).String(), LeaseID: s.rules[t.Epoch].Authority.Issue(tenant, t), Attempt: m.attempt}
	switch m.kind {
	case lease.KindComplete:
		r.Result = &lease.Result{}
	case lease.KindFail:
		r.Failure = &lease.Failure{}
	}
	return r
}
