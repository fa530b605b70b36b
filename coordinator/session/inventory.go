package session

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// This file has the inventory of a worker (W13): which packages it has, and what it was asked to
// install and remove.

// maxUnderWay is how many packages a worker may have to install or remove at a time.
const maxUnderWay = 64

// Statuses of packages, with short names.
const (
	installing   = lessorv1.PackageStatus_PACKAGE_STATUS_INSTALLING
	installed    = lessorv1.PackageStatus_PACKAGE_STATUS_INSTALLED
	uninstalling = lessorv1.PackageStatus_PACKAGE_STATUS_UNINSTALLING
	uninstalled  = lessorv1.PackageStatus_PACKAGE_STATUS_UNINSTALLED
	failed       = lessorv1.PackageStatus_PACKAGE_STATUS_FAILED
)

// PackageOrder is what an operator wants of a package.
type PackageOrder struct {
	Operation     string // id
	Name, Version string
	Remove        bool
	Source        string // of an install; may be empty, like SHA256
	SHA256        string
}

func (o *PackageOrder) id() string { return lease.PackageID(o.Name, o.Version) }

// repeats reports whether an order is a repeat of another one.
func (o *PackageOrder) repeats(was *PackageOrder) bool {
	return o.sameAs(was) && o.Remove == was.Remove
}

// opposes reports whether an order is the opposite of another one, under the same id.
func (o *PackageOrder) opposes(other *PackageOrder) bool {
	return o.sameAs(other) && o.Remove != other.Remove
}

// sameAs reports whether two orders have the same id and package.
func (o *PackageOrder) sameAs(other *PackageOrder) bool {
	return o.Operation == other.Operation && o.Name == other.Name && o.Version == other.Version
}

// answeredBy reports whether an event is about the order.
func (o *PackageOrder) answeredBy(m *lessorv1.PkgEvent) bool {
	return o.Operation == m.GetOperationId() && o.Name == m.GetName() && o.Version == m.GetVersion() &&
		(m.GetStatus() == failed || o.Remove == (m.GetStatus() == uninstalling || m.GetStatus() == uninstalled))
}

// begun is the status of the package while the order is carried out.
func (o *PackageOrder) begun() lessorv1.PackageStatus {
	if o.Remove {
		return uninstalling
	}
	return installing
}

// wanted is the status of the package when the order is carried out.
func (o *PackageOrder) wanted() lessorv1.PackageStatus {
	if o.Remove {
		return uninstalled
	}
	return installed
}

// packagePart is the part of an operation that one worker carries out.
type packagePart struct {
	order  PackageOrder
	shows  *lessorv1.Package // the package meanwhile; nil: as the worker has said. Guarded by inventory.mu
	ended  chan struct{}     // closed when the part has ended; then result does not change any more
	result atomic.Pointer[lessorv1.PackageResult]
	stream context.Context //nolint:containedctx // that of the stream on which the worker was asked; nil when the part has ended
}

func (ss *Session) newPart(o PackageOrder) *packagePart {
	p := &packagePart{order: o, ended: make(chan struct{})}
	p.result.Store(&lessorv1.PackageResult{WorkerId: ss.info.GetName(), SessionId: ss.id, Status: o.begun()})
	return p
}

// tell replaces the result of a part that has not ended. Only the holder of inventory.mu tells a
// part that is in an inventory.
func (p *packagePart) tell(status lessorv1.PackageStatus, code, detail string) {
	was := p.result.Load()
	p.result.Store(&lessorv1.PackageResult{
		WorkerId: was.GetWorkerId(), SessionId: was.GetSessionId(),
		Status: status, Code: code, Detail: detail,
	})
	if status != p.order.begun() {
		p.stream = nil
		close(p.ended)
	}
}

// inventory holds the packages of a worker, and what it has to do about them. It outlives the
// streams of its session: a part of an operation ends when the worker says so, or when the session
// is over for good.
type inventory struct {
	mu sync.Mutex
	// said is what the worker has said last, by NAME@VERSION. Values are replaced, never changed.
	said     map[string]*lessorv1.Package
	underWay []*packagePart
	ended    []endedPart // the last maxUnderWay, oldest first
	over     bool
}

// endedPart is how a part ended.
type endedPart struct {
	order  PackageOrder
	status lessorv1.PackageStatus
}

// replace replaces all packages by those that the worker registers. Operations go on: their events
// are still to come, and perhaps the worker does not know of them yet.
func (v *inventory) replace(all map[string]*lessorv1.Package) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, p := range v.underWay {
		if now := all[p.order.id()]; now.GetStatus() == p.order.begun() {
			p.shows = now
		}
	}
	for _, p := range v.underWay { // which the worker may still refuse
		if id := p.order.id(); all[id] != nil && all[id] == p.shows {
			if all[id] = v.said[id]; all[id] == nil {
				delete(all, id)
			}
		}
	}
	v.said = all
}

// present returns the packages by NAME@VERSION, as they count. The caller holds mu and does not
// change the map.
func (v *inventory) present() map[string]*lessorv1.Package {
	all, copied := v.said, false
	for _, p := range v.underWay {
		id := p.order.id()
		if p.shows == nil || p.order.Remove && all[id] == nil {
			continue
		}
		if !copied {
			all, copied = map[string]*lessorv1.Package{}, true
			maps.Copy(all, v.said)
		}
		all[id] = p.shows
	}
	return all
}

// installed returns the packages that tasks may require.
func (v *inventory) installed() (ids []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id, p := range v.present() {
		if p.GetStatus() == installed {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// fulfils reports whether an order asks for what is so already.
func (v *inventory) fulfils(o PackageOrder) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	has := v.present()[o.id()]
	return o.Remove && has == nil || !o.Remove && has.GetStatus() == installed
}

// list returns all packages, sorted by name and version.
func (v *inventory) list() []*lessorv1.Package {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := v.present()
	if len(all) == 0 {
		return nil
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *lessorv1.Package) int {
		return cmp.Or(cmp.Compare(a.GetName(), b.GetName()), cmp.Compare(a.GetVersion(), b.GetVersion()))
	})
}

// begin notes a part that the worker is to carry out. It returns that part, or the one under way
// that it repeats, and whether the worker must be told.
func (v *inventory) begin(p *packagePart) (under *packagePart, tell bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	o := &p.order
	if i := slices.IndexFunc(v.underWay, func(was *packagePart) bool { return was.order.repeats(o) }); i >= 0 {
		return v.underWay[i], false
	}
	all := v.present()
	switch {
	case v.over:
		p.tell(failed, refusal.CodeSessionEnded, "the session has ended")
		return p, false
	case slices.ContainsFunc(v.underWay, func(was *packagePart) bool { return was.order.opposes(o) }):
		// nobody could tell which of the two fails
		p.tell(failed, refusal.CodePkgInvalid,
			"the worker does the opposite under the same request_id; choose another one")
		return p, false
	case len(v.underWay) >= maxUnderWay:
		p.tell(failed, refusal.CodeOverloaded,
			fmt.Sprintf("the worker has %d packages to install or remove; wait for some of them", maxUnderWay))
		return p, false
	case all[o.id()] == nil && !o.Remove && len(all) >= lease.MaxCapabilities:
		p.tell(failed, refusal.CodePkgInvalid,
			fmt.Sprintf("the worker has %d packages, as many as it may; remove some", lease.MaxCapabilities))
		return p, false
	}
	p.shows = &lessorv1.Package{Name: o.Name, Version: o.Version, Status: o.begun()}
	v.underWay = append(v.underWay, p)
	return p, true
}

// take changes the packages as an event says. It returns the part under way about which the event
// tells, or nil. It reports whether there was room for another package. A worker that refuses an
// order has not touched the package, which is as it was before.
func (v *inventory) take(m *lessorv1.PkgEvent) (about *packagePart, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := &lessorv1.Package{Name: m.GetName(), Version: m.GetVersion(), Status: m.GetStatus(), Detail: m.GetDetail()}
	id, heard := lease.PackageID(now.GetName(), now.GetVersion()), v.underWay
	if i := slices.IndexFunc(v.underWay, func(p *packagePart) bool { return p.order.answeredBy(m) }); i >= 0 {
		about, heard = v.underWay[i], v.underWay[:i+1] // perhaps the worker does not know of the later ones yet
	}
	was := v.said[id]
	full := was == nil && len(v.said) >= lease.MaxCapabilities
	switch {
	case about != nil && m.GetStatus() == about.order.begun():
		about.shows = now
		return about, true
	case m.GetCode() == refusal.CodePkgPermission && (about != nil || was == nil || was.GetStatus() == installed):
		if about != nil {
			about.shows = nil
		}
		return about, true
	case m.GetStatus() == uninstalled:
		delete(v.said, id)
	case full && (about == nil || m.GetStatus() != failed):
		return nil, false
	case !full: // else the part has ended all the same
		if v.said == nil {
			v.said = map[string]*lessorv1.Package{}
		}
		v.said[id] = now
	}
	for _, p := range heard {
		if p.order.id() == id {
			p.shows = nil
		}
	}
	return about, true
}

// settle tells a part what an event says of it.
func (v *inventory) settle(p *packagePart, status lessorv1.PackageStatus, code, detail string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	i := slices.Index(v.underWay, p)
	if i < 0 { // the session is over meanwhile
		return
	}
	if p.tell(status, code, detail); status != p.order.begun() {
		v.underWay = slices.Delete(v.underWay, i, i+1)
		if len(v.ended) == maxUnderWay {
			v.ended = slices.Delete(v.ended, 0, 1)
		}
		v.ended = append(v.ended, endedPart{p.order, status})
	}
}

// toldBefore reports whether an event tells again how a part has ended: perhaps the worker has not
// got the acknowledgement.
func (v *inventory) toldBefore(m *lessorv1.PkgEvent) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.ContainsFunc(v.ended, func(p endedPart) bool {
		return p.status == m.GetStatus() &&
			p.order.answeredBy(m)
	})
}

// end takes the parts out of the inventory of which the worker has not told, and can no longer
// tell: the session is over for good.
func (v *inventory) end() (left []*packagePart) {
	v.mu.Lock()
	defer v.mu.Unlock()
	left, v.over, v.underWay = v.underWay, true, nil
	return left
}
