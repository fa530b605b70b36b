package exhaustive

import (
	"slices"

	"github.com/lessor-dev/lessor/lease"
)

// message is what a worker says under a lease. While it is in flight it may be delivered any number of times, so that a second one like it
// would add nothing.
type message struct {
	task    int
	attempt uint32
	kind    lease.Kind
}

func (m message) order() int { return m.task<<16 | int(m.attempt)<<8 | int(m.kind) }

func (w *world) send(m message) {
	w.net = append(w.net, m)
	slices.SortFunc(w.net, func(a, b message) int { return a.order() - b.order() })
}

func (w *world) inFlight(m message) bool { return slices.Contains(w.net, m) }

func (w *world) lose(m message) {
	w.net = slices.DeleteFunc(w.net, func(other message) bool { return other == m })
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
