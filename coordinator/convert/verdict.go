package convert

import (
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// A verdict has five forms on the wire, one per call, since every RPC answers with a message of its own, and two more as items of
// frames, which are written into memory that the frame makes at once. Each is one function of the answer and the reading of the clocks at which it
// leaves.

// StartResponse is the verdict on a Start.
func StartResponse(now lease.Now, a *lease.Answer) *lessorv1.StartResponse {
	return &lessorv1.StartResponse{
		Verdict: lessorv1.Verdict(a.Verdict), Reason: lessorv1.Reason(a.Reason), Detail: a.Detail,
		TaskState: lessorv1.TaskState(a.State), ShouldCancel: a.ShouldCancel, CancelReason: a.CancelReason,
		ExpiresAt: stampAt(now, a.ExpiresAt), ExpiresIn: left(now, a.ExpiresAt),
		CurrentAttempt: a.CurrentAttempt, ServerTime: Stamp(now.Wall),
	}
}

// HeartbeatResponse is the verdict on a Heartbeat.
func HeartbeatResponse(now lease.Now, a *lease.Answer) *lessorv1.HeartbeatResponse {
	return &lessorv1.HeartbeatResponse{
		Verdict: lessorv1.Verdict(a.Verdict), Reason: lessorv1.Reason(a.Reason), Detail: a.Detail,
		TaskState: lessorv1.TaskState(a.State), ShouldCancel: a.ShouldCancel, CancelReason: a.CancelReason,
		ExpiresAt: stampAt(now, a.ExpiresAt), ExpiresIn: left(now, a.ExpiresAt),
		CurrentAttempt: a.CurrentAttempt, ServerTime: Stamp(now.Wall),
	}
}

// leaseAck leaves out the server's time, which is that of the frame.
func leaseAck(m *lessorv1.LeaseAck, at *Times, a *lease.Answer) {
	*m = lessorv1.LeaseAck{
		Verdict: lessorv1.Verdict(a.Verdict), Reason: lessorv1.Reason(a.Reason), Detail: a.Detail,
		TaskState: lessorv1.TaskState(a.State), ShouldCancel: a.ShouldCancel, CancelReason: a.CancelReason,
		ExpiresAt: at.StampAt(a.ExpiresAt), ExpiresIn: at.Left(a.ExpiresAt),
		CurrentAttempt: a.CurrentAttempt,
	}
}

// CompleteResponse is the verdict on a Complete.
func CompleteResponse(now lease.Now, a *lease.Answer) *lessorv1.CompleteResponse {
	return &lessorv1.CompleteResponse{
		Verdict: lessorv1.Verdict(a.Verdict), Reason: lessorv1.Reason(a.Reason), Detail: a.Detail,
		TaskState: lessorv1.TaskState(a.State), CurrentAttempt: a.CurrentAttempt, RetryAt: Stamp(a.RetryAt),
		Replayed: a.Replayed, ServerTime: Stamp(now.Wall),
	}
}

// FailResponse is the verdict on a Fail.
func FailResponse(now lease.Now, a *lease.Answer) *lessorv1.FailResponse {
	return &lessorv1.FailResponse{
		Verdict: lessorv1.Verdict(a.Verdict), Reason: lessorv1.Reason(a.Reason), Detail: a.Detail,
		TaskState: lessorv1.TaskState(a.State), CurrentAttempt: a.CurrentAttempt, RetryAt: Stamp(a.RetryAt),
		Replayed: a.Replayed, ServerTime: Stamp(now.Wall),
	}
}

// ReleaseResponse is the verdict on a Release.
func ReleaseResponse(now lease.Now, a *lease.Answer) *lessorv1.ReleaseResponse {
	return &lessorv1.ReleaseResponse{
		Verdict: lessorv1.Verdict(a.Verdict), Reason: lessorv1.Reason(a.Reason), Detail: a.Detail,
		TaskState: lessorv1.TaskState(a.State), CurrentAttempt: a.CurrentAttempt, RetryAt: Stamp(a.RetryAt),
		Replayed: a.Replayed, ServerTime: Stamp(now.Wall),
	}
}

// reportVerdict leaves out the server's time, which is that of the frame.
func reportVerdict(m *lessorv1.ReportVerdict, at *Times, a *lease.Answer) {
	*m = lessorv1.ReportVerdict{
		Verdict: lessorv1.Verdict(a.Verdict), Reason: lessorv1.Reason(a.Reason), Detail: a.Detail,
		TaskState: lessorv1.TaskState(a.State), ShouldCancel: a.ShouldCancel, CancelReason: a.CancelReason,
		ExpiresAt: at.StampAt(a.ExpiresAt), ExpiresIn: at.Left(a.ExpiresAt),
		CurrentAttempt: a.CurrentAttempt, RetryAt: at.Stamp(a.RetryAt), Replayed: a.Replayed,
	}
}
