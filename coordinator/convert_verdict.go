package coordinator

import (
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// A verdict has five forms on the wire, one per call, since every RPC answers with a message of its own, and two more as items of
// frames, which are written into memory that the frame makes at once. Each is one function of the answer and the reading of the clocks at which it
// leaves.

func startResponse(now lease.Now, a *lease.Answer) *lessorv1.StartResponse {
	return &lessorv1.StartResponse{
		Verdict: lessorv1.Verdict(a.Verdict), Reason: lessorv1.Reason(a.Reason), Detail: a.Detail,
		TaskState: lessorv1.TaskState(a.State), ShouldCancel: a.ShouldCancel, CancelReason: a.CancelReason,
		ExpiresAt: stampAt(now, a.ExpiresAt), ExpiresIn: left(now, a.ExpiresAt),
		CurrentAttempt: a.CurrentAttempt, ServerTime: stamp(now.Wall),
	}
}

func heartbeatResponse(now lease.Now, a *lease.Answer) *lessorv1.HeartbeatResponse {
	return &lessorv1.HeartbeatResponse{
		Verdict: lessorv1.Verdict(a.Verdict), Reason: lessorv1.Reason(a.Reason), Detail: a.Detail,
		TaskState: lessorv1.TaskState(a.State), ShouldCancel: a.ShouldCancel, CancelReason: a.CancelReason,
		ExpiresAt: stampAt(now, a.ExpiresAt), ExpiresIn: left(now, a.ExpiresAt),
		CurrentAttempt: a.CurrentAttempt, ServerTime: stamp(now.Wall),
	}
}

// leaseAck leaves out the server's time, which is that of the frame.
func leaseAck(m *lessorv1.LeaseAck, at *times, a *lease.Answer) {
	*m = lessorv1.LeaseAck{
		Verdict: lessorv1.Verdict(a.Verdict), Reason: lessorv1.Reason(a.Reason), Detail: a.Detail,
		TaskState: lessorv1.TaskState(a.State), ShouldCancel: a.ShouldCancel, CancelReason: a.CancelReason,
		ExpiresAt: at.stampAt(a.ExpiresAt), ExpiresIn: at.left(a.ExpiresAt),
		CurrentAttempt: a.CurrentAttempt,
	}
}

func completeResponse(now lease.Now, a *lease.Answer) *lessorv1.CompleteResponse {
	return &lessorv1.CompleteResponse{
		Verdict: lessorv1.Verdict(a.Verdict), Reason: lessorv1.Reason(a.Reason), Detail: a.Detail,
		TaskState: lessorv1.TaskState(a.State), CurrentAttempt: a.CurrentAttempt, RetryAt: stamp(a.RetryAt),
		Replayed: a.Replayed, ServerTime: stamp(now.Wall),
	}
}

func failResponse(now lease.Now, a *lease.Answer) *lessorv1.FailResponse {
	return &lessorv1.FailResponse{
		Verdict: lessorv1.Verdict(a.Verdict), Reason: lessorv1.Reason(a.Reason), Detail: a.Detail,
		TaskState: lessorv1.TaskState(a.State), CurrentAttempt: a.CurrentAttempt, RetryAt: stamp(a.RetryAt),
		Replayed: a.Replayed, ServerTime: stamp(now.Wall),
	}
}

func releaseResponse(now lease.Now, a *lease.Answer) *lessorv1.ReleaseResponse {
	return &lessorv1.ReleaseResponse{
		Verdict: lessorv1.Verdict(a.Verdict), Reason: lessorv1.Reason(a.Reason), Detail: a.Detail,
		TaskState: lessorv1.TaskState(a.State), CurrentAttempt: a.CurrentAttempt, RetryAt: stamp(a.RetryAt),
		Replayed: a.Replayed, ServerTime: stamp(now.Wall),
	}
}
