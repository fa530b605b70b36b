package service

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/coordinator/session"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// The calls of AdminService that are about packages (W13).

// Limits of these calls.
const (
	maxSource      = 2048
	maxPackageWait = time.Minute
)

// InstallPackage has workers install a package.
func (s *adminService) InstallPackage(
	ctx context.Context, req *lessorv1.InstallPackageRequest,
) (*lessorv1.InstallPackageResponse, error) {
	f := s.fields()
	o := session.PackageOrder{Source: parseSource(f, req.GetSource()), SHA256: parseSHA256(f, req.GetSha256())}
	done, err := s.orderPackage(ctx, f, o, req)
	if err != nil {
		return nil, refusal.Status(err)
	}
	return &lessorv1.InstallPackageResponse{Operation: done}, nil
}

// UninstallPackage has workers remove a package.
func (s *adminService) UninstallPackage(
	ctx context.Context, req *lessorv1.UninstallPackageRequest,
) (*lessorv1.UninstallPackageResponse, error) {
	done, err := s.orderPackage(ctx, s.fields(), session.PackageOrder{Remove: true}, req)
	if err != nil {
		return nil, refusal.Status(err)
	}
	return &lessorv1.UninstallPackageResponse{Operation: done}, nil
}

// ordersPackage is what both requests have.
type ordersPackage interface {
	GetName() string
	GetVersion() string
	GetWorkers() *lessorv1.WorkerFilter
	GetWait() *durationpb.Duration
	GetRequestId() string
}

// orderPackage reads the rest of a request, gives the order to the workers, and waits for their
// results.
func (s *adminService) orderPackage(
	ctx context.Context, f *convert.Fields, o session.PackageOrder, req ordersPackage,
) (*lessorv1.PackageOperation, error) {
	o.Name, o.Version, o.Operation = req.GetName(), req.GetVersion(), f.ID("request_id", req.GetRequestId())
	f.Package("", o.Name, o.Version)
	wait := f.Span("wait", req.GetWait(), maxPackageWait)
	if wait > maxPackageWait {
		f.Fail("wait", "is %v; the limit is %v", wait, maxPackageWait)
	}
	selects := parseWorkerFilter(f, req.GetWorkers())
	if f.Err != nil {
		return nil, f.Err
	}
	if o.Operation == "" {
		o.Operation = rand.Text()
	}
	logFields(ctx, "id", lease.PackageID(o.Name, o.Version), "operation", o.Operation)
	p, err := s.packageOperation(ctx, o, selects)
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.untilStop(ctx)
	defer cancel()
	p.Await(ctx, wait)
	return operationProto(o.Operation, p.Results()), nil
}

// packageOperation returns the operation that an order repeats, or begins one.
func (s *adminService) packageOperation(
	ctx context.Context, o session.PackageOrder, selects session.Filter,
) (*session.PackageOperation, error) {
	tenant := gate.Identify(ctx).Tenant
	if p := s.Sessions.Operation(tenant, o); p != nil {
		return p, nil
	}
	found := s.Sessions.Select(tenant, selects)
	if len(found) == 0 {
		return nil, refusal.ErrNoneSelected
	}
	if err := s.auditFirst(ctx); err != nil { // before a worker is told: the call may wait for long
		return nil, err
	}
	return s.Sessions.CarryOut(tenant, o, found), nil
}

func operationProto(id string, results []*lessorv1.PackageResult) *lessorv1.PackageOperation {
	m := &lessorv1.PackageOperation{OperationId: id, Sessions: uint32(len(results))}
	page := pageSize{most: len(results)}
	for _, r := range results {
		switch r.GetStatus() {
		case lessorv1.PackageStatus_PACKAGE_STATUS_INSTALLED, lessorv1.PackageStatus_PACKAGE_STATUS_UNINSTALLED:
			m.Done++
		case lessorv1.PackageStatus_PACKAGE_STATUS_FAILED:
			m.Failed++
		}
		if !page.full() {
			m.Results = append(m.Results, r)
			page.add(r)
		}
	}
	return m
}

// parseSource reads where a package is. A URL must not have a password in it, because the audit and
// logs of workers keep it.
func parseSource(f *convert.Fields, source string) string {
	if strings.ContainsFunc(source, unicode.IsControl) {
		f.Fail("source", "has a control character")
	}
	if convert.NamesUser(source) {
		f.Fail("source", "is a URL with a user in it; the workers need credentials of their own")
	}
	return f.Text("source", source, maxSource)
}

// parseSHA256 reads a checksum, which may be empty.
func parseSHA256(f *convert.Fields, sum string) string {
	if raw, err := hex.DecodeString(sum); sum != "" && (err != nil || len(raw) != 32) {
		f.Fail("sha256", "must have 64 hexadecimal digits")
	}
	return strings.ToLower(sum)
}

// parseWorkerFilter reads which sessions a call is about. It must be said, if only by an empty
// filter.
func parseWorkerFilter(f *convert.Fields, m *lessorv1.WorkerFilter) session.Filter {
	if m == nil {
		f.Fail("workers", "must be set; an empty filter selects all open sessions")
	}
	f.Count("workers.labels", len(m.GetLabels()), lease.MaxRequired)
	return session.Filter{
		Worker:    f.ID("workers.worker_id", m.GetWorkerId()),
		Session:   f.ID("workers.session_id", m.GetSessionId()),
		Queue:     f.ID("workers.queue", m.GetQueue()),
		Workspace: f.ID("workers.workspace_id", m.GetWorkspaceId()),
		Pool:      f.ID("workers.pool_id", m.GetPoolId()),
		Labels:    m.GetLabels(),
	}
}
