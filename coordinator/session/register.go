package session

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// register handles a register frame: which work the worker wants. The first one makes the session a
// member of the engine; a later one replaces the values of the one before.
func (ss *Session) register(corr string, m *lessorv1.Register, next sessionState) {
	f := convert.Fields{Limits: ss.srv.Limits}
	wants := engine.Wants{
		Worker: ss.info.GetName(),
		Space: engine.Space{
			Tenant:    ss.who.Tenant,
			Workspace: f.Workspace("register.workspace_id", m.GetWorkspaceId()),
		},
		Queues: f.Queues("register.queues", m.GetQueues()),
	}
	convert.ParseCapabilities(&f, "register.capabilities", m.GetCapabilities(), &wants)
	packages := f.Packages("register.packages", m.GetPackages())
	pool := f.ID("register.pool_id", m.GetPoolId())
	slots := m.GetCapabilities().GetConcurrency().GetMaxParallel()
	if slots < 1 || slots > convert.MaxParallel {
		f.Fail("register.capabilities.concurrency.max_parallel", "is %d; the range is 1 to %d",
			slots, convert.MaxParallel)
	}
	if f.Err != nil {
		ss.refuse(corr, refusal.CodeInvalid, f.Err.Error(), "correct the field and register again")
		return
	}
	convert.DropUnknown(m.GetCapabilities())
	ss.packages.replace(packages)
	ss.mu.Lock()
	first := ss.state == handshaking
	ss.caps, ss.wants, ss.slots, ss.pool, ss.installs = m.GetCapabilities(), wants, int(slots), pool,
		m.GetInstallsPackages()
	ss.state = next
	ss.mu.Unlock()
	if first {
		ss.acks.named = ss.out.takeUnacked(ss.admission.lastSeen)
		ss.joinEngine()
		ss.awaitHeartbeat()
		if d := ss.operatorDrain(); d != nil {
			ss.out.drain(d)
		}
		return
	}
	ss.updateMember()
}

// updateMember tells the engine which work the worker wants now, and how much.
func (ss *Session) updateMember() {
	ss.slotsMu.Lock()
	defer ss.slotsMu.Unlock()
	if ss.member == nil { // joinEngine will tell it
		return
	}
	ss.engineSlots = ss.offeredSlots()
	ss.tellWants(ss.presentWants())
}

// tellPackages tells the engine which packages are installed, if that has changed.
func (ss *Session) tellPackages() {
	ss.slotsMu.Lock()
	defer ss.slotsMu.Unlock()
	if ss.member == nil { // joinEngine will tell it
		return
	}
	if wants := ss.presentWants(); !slices.Equal(ss.enginePackages, wants.Capabilities.Packages) {
		ss.tellWants(wants)
	}
}

// tellWants tells the engine which work a member wants. The caller holds slotsMu.
func (ss *Session) tellWants(wants engine.Wants) {
	ss.enginePackages = wants.Capabilities.Packages
	ss.srv.Engine.Update(ss.member, wants, ss.engineSlots)
}

// presentWants returns which work the worker wants now: what it has registered, and its installed
// packages.
func (ss *Session) presentWants() engine.Wants {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	wants := ss.wants
	wants.Capabilities.Packages = ss.packages.installed()
	return wants
}

// joinEngine makes the session a member of the engine, unless the session has ended meanwhile.
func (ss *Session) joinEngine() {
	ss.slotsMu.Lock()
	defer ss.slotsMu.Unlock()
	ss.engineSlots = ss.offeredSlots()
	wants := ss.presentWants()
	ss.enginePackages = wants.Capabilities.Packages
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.left {
		return
	}
	first := ss.srv.resumes.registered(ss.admission)
	ss.member = &engine.Member{
		Session:    ss.id,
		Wants:      wants,
		Slots:      ss.engineSlots,
		Redeliver:  first,
		Backlog:    &ss.out.backlog,
		WhyNoSlots: ss.whyNoSlots,
		Deliver:    ss.out.dispatch,
		Notify:     ss.notify,
		Displaced:  ss.displaced,
	}
	ss.srv.Engine.Join(ss.member)
}

// operatorDrain returns the drain that an operator asked for, or nil.
func (ss *Session) operatorDrain() *lessorv1.Drain {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.drainAsked
}

// offeredSlots returns the number of slots that the engine may use: 0 while the worker drains or is
// not well.
func (ss *Session) offeredSlots() int {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	why := ""
	switch {
	case ss.drainAsked != nil:
		why = "an operator drains it"
	case ss.health.drains:
		why = "it drains"
	default:
		why = ss.health.whyNoWork()
	}
	if ss.whyNoSlots() != why {
		changed := why // only this copy goes to the heap
		ss.noWork.Store(&changed)
	}
	if why != "" {
		return 0
	}
	return ss.slots
}

// whyNoSlots is engine.Member.WhyNoSlots. It takes no lock: others hold them while they wait for
// the loop, which calls this.
func (ss *Session) whyNoSlots() string {
	if why := ss.noWork.Load(); why != nil {
		return *why
	}
	return ""
}

// resize tells the engine the number of slots, if it has changed.
func (ss *Session) resize() {
	ss.slotsMu.Lock()
	defer ss.slotsMu.Unlock()
	m, slots := ss.member, ss.offeredSlots()
	if m == nil || slots == ss.engineSlots {
		return
	}
	ss.engineSlots = slots
	ss.srv.Engine.Resize(m, slots)
}

// takeDrain handles a drain frame: the worker wants no new work for the rest of the session (W10).
func (ss *Session) takeDrain(corr string, m *lessorv1.Drain, next sessionState) {
	f := convert.Fields{Limits: ss.srv.Limits}
	f.Text("drain.reason", m.GetReason(), convert.MaxReason)
	f.Wall("drain.deadline", m.GetDeadline())
	if f.Err != nil {
		ss.refuse(corr, refusal.CodeInvalid, f.Err.Error(), "")
		return
	}
	ss.mu.Lock()
	again := ss.health.drains
	ss.state, ss.health.drains = next, true
	ss.in.said = ss.health.selfReport
	ss.mu.Unlock()
	if !again {
		why := []any{"reason", lease.Clip(m.GetReason(), maxWords)}
		if until := m.GetDeadline(); until != nil {
			why = append(why, "deadline", until.AsTime())
		}
		ss.log.Info("the worker drains", why...)
	}
	ss.resize()
}

func (ss *Session) capacity(corr string, m *lessorv1.Capacity) {
	f := convert.Fields{Limits: ss.srv.Limits}
	if m.GetMaxParallel() > convert.MaxParallel {
		f.Fail("capacity.max_parallel", "is %d; the range is 0 to %d", m.GetMaxParallel(), convert.MaxParallel)
	}
	limits := f.TypeLimits("capacity.per_type_limits", m.GetPerTypeLimits())
	if f.Err != nil {
		ss.refuse(corr, refusal.CodeInvalid, f.Err.Error(), "")
		return
	}
	caps := proto.CloneOf(ss.caps) // a copy, because another goroutine may read the old value to list workers
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
