package session

import (
	"crypto/rand"

	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

func newInstance() string { return rand.Text() }

// register takes in which work the worker wants. The first register makes the session a member of the engine; a later one replaces what was said.
func (ss *Session) register(corr string, m *lessorv1.Register, next sessionState) {
	f := convert.Fields{Limits: ss.srv.Limits}
	wants := engine.Wants{
		Worker: ss.info.GetName(),
		Space:  engine.Space{Tenant: ss.who.Tenant, Workspace: f.Workspace("register.workspace_id", m.GetWorkspaceId())},
		Queues: f.Queues("register.queues", m.GetQueues()),
	}
	convert.ParseCapabilities(&f, "register.capabilities", m.GetCapabilities(), &wants)
	pool := f.ID("register.pool_id", m.GetPoolId())
	slots := m.GetCapabilities().GetConcurrency().GetMaxParallel()
	if slots < 1 || slots > convert.MaxParallel {
		f.Fail("register.capabilities.concurrency.max_parallel", "is %d; the range is 1 to %d", slots, convert.MaxParallel)
	}
	if f.Err != nil {
		ss.fail(corr, refusal.CodeInvalid, f.Err.Error(), "correct the field and register again")
		return
	}
	ss.mu.Lock()
	first := ss.state == handshaking
	ss.caps, ss.wants, ss.slots, ss.pool = m.GetCapabilities(), wants, int(slots), pool
	ss.state = next
	ss.mu.Unlock()
	if first {
		ss.joinEngine()
		ss.awaitHeartbeat()
		if d := ss.operatorDrain(); d != nil {
			ss.out.drain(d)
		}
		return
	}
	ss.updateMember()
}

// updateMember tells the engine anew which work the worker wants, and how much.
func (ss *Session) updateMember() {
	ss.sizing.Lock()
	defer ss.sizing.Unlock()
	ss.toldSlots = ss.offeredSlots()
	ss.mu.Lock()
	wants := ss.wants
	ss.mu.Unlock()
	_ = ss.srv.Engine.Update(ss.id, wants, ss.toldSlots) // a stopped engine pushes nothing
}

// joinEngine makes the session a member of the engine, unless its end has come meanwhile.
func (ss *Session) joinEngine() {
	ss.sizing.Lock()
	defer ss.sizing.Unlock()
	ss.toldSlots = ss.offeredSlots()
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.left {
		return
	}
	ss.srv.resumes.registered(ss.admission)
	ss.member = &engine.Member{
		Session: ss.id, Wants: ss.wants, Slots: ss.toldSlots, Redeliver: !ss.whole,
		Backlog: &ss.out.backlog, Deliver: ss.out.dispatch, Notify: ss.notify, Displaced: ss.displaced,
	}
	_ = ss.srv.Engine.Join(ss.member) // a stopped engine pushes nothing
}

// operatorDrain returns the drain that an operator asked for, or nil.
func (ss *Session) operatorDrain() *lessorv1.Drain {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.drain
}

// offeredSlots is the number of slots as the engine is to see it: none while the worker drains or is not well.
func (ss *Session) offeredSlots() int {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.state == draining || ss.drain != nil || !ss.health.takesWork() {
		return 0
	}
	return ss.slots
}

// joined is the session as the engine knows it; nil before register.
func (ss *Session) joined() *engine.Member {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.member
}

// resize tells the engine of the slots, where they have changed.
func (ss *Session) resize() {
	ss.sizing.Lock()
	defer ss.sizing.Unlock()
	m, slots := ss.joined(), ss.offeredSlots()
	if m == nil || slots == ss.toldSlots {
		return
	}
	ss.toldSlots = slots
	_ = ss.srv.Engine.Resize(m, slots) // a stopped engine pushes nothing
}

func (ss *Session) capacity(corr string, m *lessorv1.Capacity) {
	f := convert.Fields{Limits: ss.srv.Limits}
	if m.GetMaxParallel() > convert.MaxParallel {
		f.Fail("capacity.max_parallel", "is %d; the range is 0 to %d", m.GetMaxParallel(), convert.MaxParallel)
	}
	limits := f.TypeLimits("capacity.per_type_limits", m.GetPerTypeLimits())
	if f.Err != nil {
		ss.fail(corr, refusal.CodeInvalid, f.Err.Error(), "")
		return
	}
	caps := proto.CloneOf(ss.caps) // whoever lists workers may be reading it
	caps.Concurrency.MaxParallel = m.GetMaxParallel()
	ss.mu.Lock()
	ss.caps, ss.slots = caps, int(m.GetMaxParallel())
	if len(limits) > 0 {
		caps.Concurrency.PerTypeLimits, ss.wants.TypeLimits = limits, limits
	}
	ss.mu.Unlock()
	if len(limits) == 0 {
		ss.resize()
		return
	}
	ss.updateMember()
}
