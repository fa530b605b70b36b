package exhaustive

import "github.com/lessor-dev/lessor/lease"

// message is what a worker says under a lease. Nothing in it depends on when it is sent. So a network that keeps any number of messages in
// flight, for as long as it likes, loses, repeats and reorders them, delivers exactly this: under each lease that was told, every message, at any
// time, any number of times. That is what is tried, and no message in flight is a part of the world.
type message struct {
	task    int
	attempt uint32
	kind    lease.Kind
}

// told is what is known of a lease outside of the coordinator. A worker that missed an answer knows less, and asks again; so every message
// may be sent at any time under every lease that was told.
type told struct {
	ticket  lease.Ticket // zero: no grant was told
	until   lease.Instant
	closed  lease.Kind // of the report that was told to be COMMITTED; 0: none
	state   lease.State
	because lease.Reason // of the first CANCELLED that was told; 0: none
}

// news is what will be told when it is durable.
type news struct {
	message        // of kind 0: a grant, or the loss of the lease
	ticket         lease.Ticket
	answer         lease.Answer
	granted, ended bool
	until          lease.Instant
}

// report is the message as the coordinator gets it.
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
