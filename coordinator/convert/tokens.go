package convert

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/coordinator/tasktoken"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// Tokens adds a task token to each answer that renews a lease (H1).
type Tokens struct {
	*tasktoken.Signer
	credential string // of the worker who gets the tokens; empty: none
}

// For returns Tokens for a worker with this credential; see tasktoken.Claims.
func (t Tokens) For(credential string) Tokens {
	t.credential = credential
	return t
}

// Of returns a new token for the holder of a lease, and when the token ends.
func (t Tokens) Of(at *Times, h lease.Holding, leaseEnds lease.Instant) (string, *timestamppb.Timestamp) {
	token, expires := t.Issue(at.Now, h, t.credential, leaseEnds)
	return token, at.StampAt(expires)
}

// renewed returns the token for an answer, or "" if the lease is not live.
func (t Tokens) renewed(at *Times, a *lease.Answer) (string, *timestamppb.Timestamp) {
	if a.ExpiresAt == 0 {
		return "", nil
	}
	return t.Of(at, a.Holding, a.ExpiresAt)
}

// StartResponse returns the verdict on a Start, with a new token.
func (t Tokens) StartResponse(now lease.Now, a *lease.Answer) *lessorv1.StartResponse {
	m := StartResponse(now, a)
	m.TaskToken, m.TokenExpiresAt = t.renewed(&Times{Now: now}, a)
	return m
}

// HeartbeatResponse returns the verdict on a Heartbeat, with a new token.
func (t Tokens) HeartbeatResponse(now lease.Now, a *lease.Answer) *lessorv1.HeartbeatResponse {
	m := HeartbeatResponse(now, a)
	m.TaskToken, m.TokenExpiresAt = t.renewed(&Times{Now: now}, a)
	return m
}

// ReportVerdict writes the verdict on one item of a reports frame into m. It does not set the
// server's time, which the frame has.
func (t Tokens) ReportVerdict(m *lessorv1.ReportVerdict, at *Times, a *lease.Answer) {
	reportVerdict(m, at, a)
	m.TaskToken, m.TokenExpiresAt = t.renewed(at, a)
}

// LeaseAck writes the verdict on one item of a heartbeat frame into m. It does not set the server's
// time, which the frame has.
func (t Tokens) LeaseAck(m *lessorv1.LeaseAck, at *Times, a *lease.Answer) {
	leaseAck(m, at, a)
	m.TaskToken, m.TokenExpiresAt = t.renewed(at, a)
}
