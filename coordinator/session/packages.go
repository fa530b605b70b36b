package session

import (
	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// This file has the frames about packages (W13), in both directions.

// carryOut has the worker of a registered session carry out an order. A worker that installs
// nothing has done so if there is nothing to do.
func (ss *Session) carryOut(o PackageOrder) *packagePart {
	p := ss.newPart(o)
	if !ss.installsPackages() {
		if ss.packages.fulfils(o) {
			p.tell(o.wanted(), "", "it was so before; the worker installs and removes no packages")
		} else {
			p.tell(failed, refusal.CodePkgPermission, "the worker installs and removes no packages")
		}
		return p
	}
	p.stream = ss.stream.Context()
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

func (ss *Session) installsPackages() bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.installs
}

// order queues the frame that tells the worker of an order.
func (o *outbox) order(p PackageOrder) {
	m := &lessorv1.SessionResponse{Corr: p.Operation}
	if p.Remove {
		m.Payload = &lessorv1.SessionResponse_PkgUninstall{PkgUninstall: &lessorv1.PkgUninstall{
			OperationId: p.Operation, Name: p.Name, Version: p.Version,
		}}
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
		f.Fail("pkg_event.code", "is %q; only a package that is FAILED has a code", lease.Clip(code, maxWords))
	case m.GetStatus() == failed && code == "":
		code = refusal.CodeInternal
	case code != "" && code != refusal.CodePkgInvalid && code != refusal.CodePkgPermission && code != refusal.CodeInternal:
		f.Fail("pkg_event.code", "is %q; it must be %s, %s or %s",
			lease.Clip(code, maxWords), refusal.CodePkgInvalid, refusal.CodePkgPermission, refusal.CodeInternal)
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
		ss.log.Info("a package operation has ended",
			"operation", m.GetOperationId(), "package", id, "status", m.GetStatus(), "code", code)
		ss.srv.AuditPackage(ss.stream.Context(), ss.info.GetName(), m, code, about != nil)
	}
	if about != nil {
		if m.GetStatus() != about.order.begun() {
			ss.srv.Registry.packageOperations(about.order.Remove, m.GetStatus() != failed).Inc()
		}
		ss.packages.settle(about, m.GetStatus(), code, m.GetDetail())
	}
}

// packagesLost ends parts of which the workers have not told: their sessions are over for good. As
// with an event, the entry in the audit comes first (X4).
func (s *Server) packagesLost(parts []*packagePart) {
	for _, p := range parts {
		o := &p.order
		end := &lessorv1.PkgEvent{OperationId: o.Operation, Name: o.Name, Version: o.Version, Status: failed}
		s.AuditPackage(p.stream, p.result.Load().GetWorkerId(), end, refusal.CodeSessionEnded, true)
		s.Registry.packageOperations(o.Remove, false).Inc()
		p.tell(failed, refusal.CodeSessionEnded,
			"the session has ended, and the worker has not told what became of the package")
	}
}
