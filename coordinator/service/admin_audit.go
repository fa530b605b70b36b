package service

import (
	"context"
	"math"
	"slices"
	"strings"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// ListAuditEvents lists the audit of the caller's tenant, oldest first (X4).
func (s *adminService) ListAuditEvents(
	ctx context.Context, req *lessorv1.ListAuditEventsRequest,
) (*lessorv1.ListAuditEventsResponse, error) {
	f, tenant := s.fields(), gate.Identify(ctx).Tenant
	want := &lessorv1.ListAuditEventsRequest{
		Subject: f.ID("subject", req.GetSubject()),
		Action:  f.ID("action", req.GetAction()),
		Outcome: f.ID("outcome", req.GetOutcome()),
		Since:   req.GetSince(),
		Until:   req.GetUntil(),
	}
	// an action that does not exist would be answered with nothing, as if nobody had done it
	if wrong := gate.UnknownAction(want.GetAction()); wrong != "" {
		f.Fail("action", "%s", wrong)
	}
	if outcome := want.GetOutcome(); !slices.Contains([]string{"O", records.OutcomeOK}, outcome) && !refusal.BeginsCode(outcome) {
		f.Fail("outcome", `is %q; it is "OK", or a code as docs/errors.md has them, such as %s, or how one begins`, outcome, refusal.CodeForbidden)
	}
	p := auditPage{
		want: want, size: f.Items("page_size", req.GetPageSize(), defaultPage),
		until: f.Wall("until", req.GetUntil()),
	}
	from := store.AuditKey{Tenant: tenant, At: f.Wall("since", req.GetSince()), Serving: math.MinInt64}
	list := newListing("audit", tenant, want)
	// A cursor holds both times of the last entry that was scanned.
	if at, serving, ok := list.pair(f, req.GetPageToken()); ok {
		from.At, from.Serving = lease.Wall(at), lease.Instant(serving).Add(1)
	}
	if f.Err != nil {
		return nil, refusal.Status(f.Err)
	}
	if err := s.longView(func(r store.Reader) error { return records.Audits(r, from, p.take) }); err != nil {
		return nil, refusal.Status(err)
	}
	res := &lessorv1.ListAuditEventsResponse{Events: p.events}
	if p.more {
		res.NextPageToken = list.pairToken(uint64(p.last.At), uint64(p.last.Serving))
	}
	return res, nil
}

// auditPage collects a page from a scan.
type auditPage struct {
	want  *lessorv1.ListAuditEventsRequest
	until lease.Wall // 0: no limit
	size  int

	events  []*lessorv1.AuditEvent
	scanned int
	last    store.AuditKey // of the last entry that was scanned
	more    bool
}

// take scans an entry and returns whether the scan goes on. If it returns false, it has not scanned
// the entry: the next page begins with this entry.
func (p *auditPage) take(a *records.Audit) bool {
	switch {
	case p.until != 0 && a.At >= p.until:
		return false
	case len(p.events) == p.size || p.scanned == maxScan:
		p.more = true
		return false
	}
	p.scanned++
	p.last = a.Key()
	if p.matches(a) {
		p.events = append(p.events, auditProto(a))
	}
	return true
}

func (p *auditPage) matches(a *records.Audit) bool {
	subject, action := p.want.GetSubject(), p.want.GetAction()
	return (subject == "" || subject == a.Subject) && (action == "" || action == a.Action) &&
		strings.HasPrefix(a.Outcome, p.want.GetOutcome())
}

// auditProto converts an entry. Earlier versions could write an object that is not UTF-8, and
// protobuf would fail to send the whole page with it.
func auditProto(a *records.Audit) *lessorv1.AuditEvent {
	return &lessorv1.AuditEvent{
		At:           convert.Stamp(a.At),
		Tenant:       a.Tenant,
		Subject:      a.Subject,
		CredentialId: a.Credential,
		Role:         a.Role,
		Peer:         a.Peer,
		Action:       a.Action,
		WorkspaceId:  a.Workspace,
		Object:       strings.ToValidUTF8(a.Object, "\uFFFD"),
		Detail:       a.Detail,
		RequestId:    a.Corr,
		Outcome:      a.Outcome,
		Tasks:        a.Tasks,
		Times:        a.Times,
	}
}
