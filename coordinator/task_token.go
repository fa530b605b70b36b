package coordinator

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/coordinator/tasktoken"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// taskTokens puts a task token into whatever renews a lease (H1).
type taskTokens struct{ *tasktoken.Signer }

// of returns a new token for the lease, and when it ends.
func (t taskTokens) of(at *times, h lease.Holding, leaseEnds lease.Instant) (string, *timestamppb.Timestamp) {
	token, expires := t.Issue(at.now, h, leaseEnds)
	return token, at.stampAt(expires)
}

// renewed returns the token that comes with an answer, none where the lease is not live.
func (t taskTokens) renewed(at *times, a *lease.Answer) (string, *timestamppb.Timestamp) {
	if a.ExpiresAt == 0 {
		return "", nil
	}
	return t.of(at, a.Holding, a.ExpiresAt)
}

func (t taskTokens) startResponse(now lease.Now, a *lease.Answer) *lessorv1.StartResponse {
	m := startResponse(now, a)
	m.TaskToken, m.TokenExpiresAt = t.renewed(&times{now: now}, a)
	return m
}

func (t taskTokens) heartbeatResponse(now lease.Now, a *lease.Answer) *lessorv1.HeartbeatResponse {
	m := heartbeatResponse(now, a)
	m.TaskToken, m.TokenExpiresAt = t.renewed(&times{now: now}, a)
	return m
}

func (t taskTokens) reportVerdict(m *lessorv1.ReportVerdict, at *times, a *lease.Answer) {
	reportVerdict(m, at, a)
	m.TaskToken, m.TokenExpiresAt = t.renewed(at, a)
}

func (t taskTokens) leaseAck(m *lessorv1.LeaseAck, at *times, a *lease.Answer) {
	leaseAck(m, at, a)
	m.TaskToken, m.TokenExpiresAt = t.renewed(at, a)
}
