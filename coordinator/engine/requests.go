package engine

import (
	"slices"

	"github.com/lessor-dev/lessor/lease"
)

// requests has the unary requests that have a request id, so that the worker can repeat them (S2),
// and the calls that are about to get an answer. A request is kept while a call of it waits or one
// of its leases is live. It belongs to the loop.
type requests struct {
	byKey    map[requestKey]*request
	toAnswer []*taker // calls that were granted something and have no answer yet
}

func newRequests() *requests { return &requests{byKey: map[requestKey]*request{}} }

type requestKey struct {
	space           Space
	worker, request string
}

// request is a unary request with all its calls. Only its newest call may wait, and only this call
// may have leases to give back if its caller is gone. A repeat that gets the leases of the calls
// before gives none of them back, because an earlier caller may have received them.
type request struct {
	call   *taker         // the newest call; nil if there was none since the start
	leases []lease.TaskID // tasks whose live leases its calls were granted
}

func (t *taker) requestKey() requestKey {
	return requestKey{t.wants.Space, t.wants.Worker, t.call.request}
}

func keyOfRequest(t *lease.Task) requestKey {
	return requestKey{Space{t.Tenant, t.Workspace}, t.Lease.Worker, t.Lease.Request}
}

func (rs *requests) request(k requestKey) *request {
	r := rs.byKey[k]
	if r == nil {
		r = &request{}
		rs.byKey[k] = r
	}
	return r
}

// begin makes a call the newest one of its request. It returns the call before, or nil, and the
// leases that the calls before were granted.
func (rs *requests) begin(t *taker) (before *taker, leases []lease.TaskID) {
	if t.call.request == "" {
		return nil, nil
	}
	r := rs.request(t.requestKey())
	before, r.call = r.call, t
	return before, r.leases
}

// addLease records the new lease of a task, if it was granted to a request with an id.
func (rs *requests) addLease(t *lease.Task) {
	if t.Lease.Request != "" {
		r := rs.request(keyOfRequest(t))
		r.leases = append(r.leases, t.ID)
	}
}

// removeLease forgets the lease of a task when it has ended, if it was granted to a request with an
// id.
func (rs *requests) removeLease(t *lease.Task) {
	if t.Lease.Request != "" {
		k := keyOfRequest(t)
		r := rs.byKey[k]
		r.leases = slices.DeleteFunc(r.leases, func(id lease.TaskID) bool { return id == t.ID })
		rs.prune(k)
	}
}

// prune forgets a request if none of its calls waits and none of its leases is live.
func (rs *requests) prune(k requestKey) {
	if r := rs.byKey[k]; r != nil && len(r.leases) == 0 && (r.call == nil || r.call.gone) {
		delete(rs.byKey, k)
	}
}

// answerSoon adds a call that was granted something.
func (rs *requests) answerSoon(t *taker) { rs.toAnswer = append(rs.toAnswer, t) }

// answering returns how many calls are about to get an answer.
func (rs *requests) answering() int { return len(rs.toAnswer) }

// answerAll calls answer for each call that is about to get one.
func (rs *requests) answerAll(answer func(*taker)) {
	for i, t := range rs.toAnswer {
		answer(t)
		rs.toAnswer[i] = nil
	}
	rs.toAnswer = rs.toAnswer[:0]
}
