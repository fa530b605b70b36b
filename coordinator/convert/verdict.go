package convert

import (
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// A verdict has seven forms: one response message for each of the five RPCs, and two kinds of items
// in a frame. The frame allocates the memory of all its items at once. Each function takes the
// answer of package lease, and the time at which it is sent.

// StartResponse returns the verdict on a Start.
func StartResponse(now lease.Now, a *lease.Answer) *lessorv1.StartResponse {
	return &lessorv1.StartResponse{
		Verdict:         lessorv1.Verdict(a.Verdict),
		Reason:          lessorv1.Reason(a.Reason),
		Detail:          a.Detail,
		TaskState:       lessorv1.TaskState(a.State),
		ShouldCancel:    a.ShouldCancel,
		CancelReason:    a.CancelReason,
		ExpiresAt:       stampAt(now, a.ExpiresAt),
		ExpiresIn:       left(now, a.ExpiresAt),
		CancelGraceLeft: left(now, a.CancelBy),
		CurrentAttempt:  a.CurrentAttempt,
		ServerTime:      Stamp(now.Wall),
	}
}

// HeartbeatResponse returns the verdict on a Heartbeat.
func HeartbeatResponse(now lease.Now, a *lease.Answer) *lessorv1.HeartbeatResponse {
	return &lessorv1.HeartbeatResponse{
		Verdict:         lessorv1.Verdict(a.Verdict),
		Reason:          lessorv1.Reason(a.Reason),
		Detail:          a.Detail,
		TaskState:       lessorv1.TaskState(a.State),
		ShouldCancel:    a.ShouldCancel,
		CancelReason:    a.CancelReason,
		ExpiresAt:       stampAt(now, a.ExpiresAt),
		ExpiresIn:       left(now, a.ExpiresAt),
		CancelGraceLeft: left(now, a.CancelBy),
		CurrentAttempt:  a.CurrentAttempt,
		ServerTime:      Stamp(now.Wall),
	}
}

// leaseAck writes the verdict into m. It does not set the server's time, because the frame holds
// it.
func leaseAck(m *lessorv1.LeaseAck, at *Times, a *lease.Answer) {
	*m = lessorv1.LeaseAck{
		Verdict:         lessorv1.Verdict(a.Verdict),
		Reason:          lessorv1.Reason(a.Reason),
		Detail:          a.Detail,
		TaskState:       lessorv1.TaskState(a.State),
		ShouldCancel:    a.ShouldCancel,
		CancelReason:    a.CancelReason,
		ExpiresAt:       at.StampAt(a.ExpiresAt),
		ExpiresIn:       at.Left(a.ExpiresAt),
		CancelGraceLeft: at.Left(a.CancelBy),
		CurrentAttempt:  a.CurrentAttempt,
	}
}

// CompleteResponse returns the verdict on a Complete.
func CompleteResponse(now lease.Now, a *lease.Answer) *lessorv1.CompleteResponse {
	return &lessorv1.CompleteResponse{
		Verdict:        lessorv1.Verdict(a.Verdict),
		Reason:         lessorv1.Reason(a.Reason),
		Detail:         a.Detail,
		TaskState:      lessorv1.TaskState(a.State),
		CurrentAttempt: a.CurrentAttempt,
		RetryAt:        Stamp(a.RetryAt),
		Replayed:       a.Replayed,
		ServerTime:     Stamp(now.Wall),
	}
}

// FailResponse returns the verdict on a Fail.
func FailResponse(now lease.Now, a *lease.Answer) *lessorv1.FailResponse {
	return &lessorv1.FailResponse{
		Verdict:        lessorv1.Verdict(a.Verdict),
		Reason:         lessorv1.Reason(a.Reason),
		Detail:         a.Detail,
		TaskState:      lessorv1.TaskState(a.State),
		CurrentAttempt: a.CurrentAttempt,
		RetryAt:        Stamp(a.RetryAt),
		Replayed:       a.Replayed,
		ServerTime:     Stamp(now.Wall),
	}
}

// ReleaseResponse returns the verdict on a Release.
func ReleaseResponse(now lease.Now, a *lease.Answer) *lessorv1.ReleaseResponse {
	return &lessorv1.ReleaseResponse{
		Verdict:        lessorv1.Verdict(a.Verdict),
		Reason:         lessorv1.Reason(a.Reason),
		Detail:         a.Detail,
		TaskState:      lessorv1.TaskState(a.State),
		CurrentAttempt: a.CurrentAttempt,
		RetryAt:        Stamp(a.RetryAt),
		Replayed:       a.Replayed,
		ServerTime:     Stamp(now.Wall),
	}
}

// reportVerdict writes the verdict into m. It does not set the server's time, because the frame
// holds it.
func reportVerdict(m *lessorv1.ReportVerdict, at *Times, a *lease.Answer) {
	*m = lessorv1.ReportVerdict{
		Verdict:         lessorv1.Verdict(a.Verdict),
		Reason:          lessorv1.Reason(a.Reason),
		Detail:          a.Detail,
		TaskState:       lessorv1.TaskState(a.State),
		ShouldCancel:    a.ShouldCancel,
		CancelReason:    a.CancelReason,
		ExpiresAt:       at.StampAt(a.ExpiresAt),
		ExpiresIn:       at.Left(a.ExpiresAt),
		CancelGraceLeft: at.Left(a.CancelBy),
		CurrentAttempt:  a.CurrentAttempt,
		RetryAt:         at.Stamp(a.RetryAt),
		Replayed:        a.Replayed,
	}
}
