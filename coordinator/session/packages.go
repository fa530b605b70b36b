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
	before *lessorv1.Package // the package as it was before the order; nil: it was not there
	ended  chan struct{}     // closed when the part has ended; then result does not change any more
	result atomic.Pointer[lessorv1.PackageResult]
}

func (ss *Session) newPart(o PackageOrder) *packagePart {
	p := &packagePart{order: o, ended: make(chan struct{})}
	p.result.Store(&lessorv1.PackageResult{WorkerId: ss.info.GetName(), SessionId: ss.id, Status: o.begun()})
	return p
}

// answeredBy reports whether an event is about the part.
func (p *packagePart) answeredBy(m *lessorv1.PkgEvent) bool {
	return p.order.Operation == m.GetOperationId() && p.order.Name == m.GetName() && p.order.Version == m.GetVersion() &&
		(m.GetStatus() == failed || p.order.Remove == (m.GetStatus() == uninstalling || m.GetStatus() == uninstalled))
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
	packages map[string]*lessorv1.Package // by NAME@VERSION; values are replaced, never changed
	underWay []*packagePart
	over     bool
}

// replace replaces all packages by those that the worker registers. Operations go on: their events are still to come.
func (v *inventory) replace(all map[string]*lessorv1.Package) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.packages = all
}

// installed returns the packages that tasks may require.
func (v *inventory) installed() (ids []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id, p := range v.packages {
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
	has := v.packages[lease.PackageID(o.Name, o.Version)]
	return o.Remove && has == nil || !o.Remove && has.GetStatus() == installed
}

// list returns all packages, sorted by name and version.
func (v *inventory) list() []*lessorv1.Package {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.packages) == 0 {
		return nil
	}
	return slices.SortedFunc(maps.Values(v.packages), func(a, b *lessorv1.Package) int {
		return cmp.Or(cmp.Compare(a.GetName(), b.GetName()), cmp.Compare(a.GetVersion(), b.GetVersion()))
	})
}

// begin notes a part that the worker is to carry out. If it returns false, the worker need not be told: the part has failed.
func (v *inventory) begin(p *packagePart) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	o := &p.order
	id := lease.PackageID(o.Name, o.Version)
	p.before = v.packages[id]
	switch {
	case v.over:
		p.tell(failed, refusal.CodeSessionEnded, "the session has ended")
		return false
	case len(v.underWay) >= maxUnderWay:
		p.tell(failed, refusal.CodeOverloaded, fmt.Sprintf("the worker has %d packages to install or remove; wait for some of them", maxUnderWay))
		return false
	case p.before == nil && !o.Remove && len(v.packages) >= lease.MaxCapabilities:
		p.tell(failed, refusal.CodePkgInvalid, fmt.Sprintf("the worker has %d packages, as many as it may; remove some", lease.MaxCapabilities))
		return false
	}
	v.underWay = append(v.underWay, p)
	if p.before != nil || !o.Remove {
		v.put(id, &lessorv1.Package{Name: o.Name, Version: o.Version, Status: o.begun()})
	}
	return true
}

func (v *inventory) put(id string, p *lessorv1.Package) {
	if v.packages == nil {
		v.packages = map[string]*lessorv1.Package{}
	}
	v.packages[id] = p
}

// take changes the packages as an event says. It returns the part under way about which the event tells, or nil. It reports whether there was room for
// another package. A worker that refuses an order has not touched the package, which is as it was before.
func (v *inventory) take(m *lessorv1.PkgEvent) (about *packagePart, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if i := slices.IndexFunc(v.underWay, func(p *packagePart) bool { return p.answeredBy(m) }); i >= 0 {
		about = v.underWay[i]
	}
	id := lease.PackageID(m.GetName(), m.GetVersion())
	now := &lessorv1.Package{Name: m.GetName(), Version: m.GetVersion(), Status: m.GetStatus(), Detail: m.GetDetail()}
	switch {
	case m.GetStatus() == uninstalled:
		now = nil
	case about != nil && m.GetCode() == refusal.CodePkgPermission:
		now = about.before
	}
	switch {
	case now == nil:
		delete(v.packages, id)
	case v.packages[id] == nil && len(v.packages) >= lease.MaxCapabilities:
		return nil, false
	default:
		v.put(id, now)
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
	}
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
	case ss.packages.begin(p):
		ss.updateMember() // first, so that a package that is to go away is not promised to another task
		ss.out.order(o)
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
	ss.updateMember()
	if m.GetOperationId() != "" && m.GetStatus() != installing && m.GetStatus() != uninstalling {
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
