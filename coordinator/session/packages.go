package session

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// This file has the packages of workers (W13): what each has, and what operators have it install and remove.

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
}

func (ss *Session) newPart(o PackageOrder) *packagePart {
	p := &packagePart{order: o, ended: make(chan struct{})}
	p.result.Store(&lessorv1.PackageResult{WorkerId: ss.info.GetName(), SessionId: ss.id, Status: o.begun()})
	return p
}

// tell replaces the result of a part that has not ended. Only the holder of inventory.mu tells a part that is in an inventory.
func (p *packagePart) tell(status lessorv1.PackageStatus, code, detail string) {
	was := p.result.Load()
	p.result.Store(&lessorv1.PackageResult{WorkerId: was.GetWorkerId(), SessionId: was.GetSessionId(), Status: status, Code: code, Detail: detail})
	if status != p.order.begun() {
		close(p.ended)
	}
}

// inventory holds the packages of a worker, and what it has to do about them. It outlives the streams of its session: a part of an operation ends when the
// worker says so, or when the session is over for good.
type inventory struct {
	mu       sync.Mutex
	said     map[string]*lessorv1.Package // as the worker has said last, by NAME@VERSION; values are replaced, never changed
	underWay []*packagePart
	ended    []endedPart // the last maxUnderWay, oldest first
	over     bool
}

// endedPart is how a part ended.
type endedPart struct {
	order  PackageOrder
	status lessorv1.PackageStatus
}

// replace replaces all packages by those that the worker registers. Operations go on: their events are still to come, and perhaps the worker does not know
// of them yet.
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

// present returns the packages by NAME@VERSION, as they count. The caller holds mu and does not change the map.
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

// begin notes a part that the worker is to carry out. It returns that part, or the one under way that it repeats, and whether the worker must be told.
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
	case slices.ContainsFunc(v.underWay, func(was *packagePart) bool { return was.order.opposes(o) }): // nobody could tell which of the two fails
		p.tell(failed, refusal.CodePkgInvalid, "the worker does the opposite under the same request_id; choose another one")
		return p, false
	case len(v.underWay) >= maxUnderWay:
		p.tell(failed, refusal.CodeOverloaded, fmt.Sprintf("the worker has %d packages to install or remove; wait for some of them", maxUnderWay))
		return p, false
	case all[o.id()] == nil && !o.Remove && len(all) >= lease.MaxCapabilities:
		p.tell(failed, refusal.CodePkgInvalid, fmt.Sprintf("the worker has %d packages, as many as it may; remove some", lease.MaxCapabilities))
		return p, false
	}
	p.shows = &lessorv1.Package{Name: o.Name, Version: o.Version, Status: o.begun()}
	v.underWay = append(v.underWay, p)
	return p, true
}

// take changes the packages as an event says. It returns the part under way about which the event tells, or nil. It reports whether there was room for
// another package. A worker that refuses an order has not touched the package, which is as it was before.
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

// toldBefore reports whether an event tells again how a part has ended: perhaps the worker has not got the acknowledgement.
func (v *inventory) toldBefore(m *lessorv1.PkgEvent) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.ContainsFunc(v.ended, func(p endedPart) bool { return p.status == m.GetStatus() && p.order.answeredBy(m) })
}

// end ends the parts that the worker has not told of: the session is over for good.
func (v *inventory) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, p := range v.underWay {
		p.tell(failed, refusal.CodeSessionEnded, "the session has ended, and the worker has not told what became of the package")
	}
	v.over, v.underWay = true, nil
}

// carryOut has the worker of a registered session carry out an order. A worker that installs nothing has done so if there is nothing to do.
func (ss *Session) carryOut(o PackageOrder) *packagePart {
	p := ss.newPart(o)
	switch {
	case !ss.carriesOut() && ss.packages.fulfils(o):
		p.tell(o.wanted(), "", "it was so before; the worker installs and removes no packages")
	case !ss.carriesOut():
		p.tell(failed, refusal.CodePkgPermission, "the worker installs and removes no packages")
	default:
		under, tell := ss.packages.begin(p)
		if tell {
			ss.tellPackages() // first, so that a package that is to go away is not promised to another task
			if now := ss.srv.resumes.streamOf(ss.admission.state); now != nil && now != ss {
				now.tellPackages() // it has taken the session over since the caller selected this stream
			}
			ss.out.order(o)
		}
		return under
	}
	return p
}

func (ss *Session) carriesOut() bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.installs
}

// order queues the frame that tells the worker of an order.
func (o *outbox) order(p PackageOrder) {
	m := &lessorv1.SessionResponse{Corr: p.Operation}
	if p.Remove {
		m.Payload = &lessorv1.SessionResponse_PkgUninstall{PkgUninstall: &lessorv1.PkgUninstall{OperationId: p.Operation, Name: p.Name, Version: p.Version}}
	} else {
		m.Payload = &lessorv1.SessionResponse_PkgInstall{PkgInstall: &lessorv1.PkgInstall{
			OperationId: p.Operation, Name: p.Name, Version: p.Version, Source: p.Source, Sha256: p.SHA256,
		}}
	}
	o.push(func(lease.Now, convert.Tokens) *lessorv1.SessionResponse {
		return &lessorv1.SessionResponse{Corr: m.GetCorr(), Payload: m.GetPayload()}
	})
}

// packageEvent handles a pkg_event frame: the worker says what became of a package.
func (ss *Session) packageEvent(corr string, m *lessorv1.PkgEvent) {
	f := convert.Fields{Limits: ss.srv.Limits}
	id := f.Package("pkg_event.", m.GetName(), m.GetVersion())
	f.ID("pkg_event.operation_id", m.GetOperationId())
	f.PackageStatus("pkg_event.status", m.GetStatus())
	f.Text("pkg_event.detail", m.GetDetail(), convert.MaxPackageDetail)
	code := m.GetCode()
	switch {
	case m.GetStatus() != failed && code != "":
		f.Fail("pkg_event.code", "is %q; only a package that is FAILED has a code", convert.Clip(code, maxWords))
	case m.GetStatus() == failed && code == "":
		code = refusal.CodeInternal
	case code != "" && code != refusal.CodePkgInvalid && code != refusal.CodePkgPermission && code != refusal.CodeInternal:
		f.Fail("pkg_event.code", "is %q; it must be %s, %s or %s", convert.Clip(code, maxWords), refusal.CodePkgInvalid, refusal.CodePkgPermission, refusal.CodeInternal)
	}
	var about *packagePart
	if f.Err == nil {
		var ok bool
		if about, ok = ss.packages.take(m); !ok {
			f.Fail("pkg_event.name", "is another package; the limit is %d", lease.MaxCapabilities)
		}
	}
	if f.Err != nil {
		ss.refuse(corr, refusal.CodePkgInvalid, f.Err.Error(), "correct the field and send the event again")
		return
	}
	ss.tellPackages()
	ends := m.GetOperationId() != "" && m.GetStatus() != installing && m.GetStatus() != uninstalling
	if ends && (about != nil || !ss.packages.toldBefore(m)) {
		ss.log.Info("a package operation has ended", "operation", m.GetOperationId(), "package", id, "status", m.GetStatus(), "code", code)
		ss.srv.AuditPackage(ss.stream.Context(), ss.info.GetName(), m, code, about != nil)
	}
	if about != nil {
		if m.GetStatus() != about.order.begun() {
			ss.srv.Registry.packageOperations(about.order.Remove, m.GetStatus() != failed).Inc()
		}
		ss.packages.settle(about, m.GetStatus(), code, m.GetDetail())
	}
}
