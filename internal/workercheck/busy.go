package workercheck

import (
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
)

// The codes with which a coordinator refuses for some time: calls, sessions, and items of frames.
const (
	codeCalls      = "E.QUOTA.CALLS"
	codeSession    = "E.COORDINATOR.STOPPING"
	codeOverloaded = "E.COORDINATOR.OVERLOADED"
)

// codeTimeout is the code of a reset for want of heartbeats.
const codeTimeout = "E.TIMEOUT"

// busyStatus refuses a call for some time.
func busyStatus(wait time.Duration) error {
	st := status.New(codes.ResourceExhausted, "too many calls; try again later")
	if told, err := st.WithDetails(detail.ErrorInfo(codeCalls), &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)}); err == nil {
		st = told
	}
	return st.Err()
}

// busyReset refuses a session for some time.
func busyReset(handshake *lessorv1.SessionRequest, wait time.Duration) *lessorv1.SessionResponse {
	return &lessorv1.SessionResponse{
		Id:     "busy",
		Ts:     timestamppb.Now(),
		Corr:   handshake.GetId(),
		Tenant: handshake.GetTenant(),
		Sender: &lessorv1.Sender{Role: "coordinator", Id: "coordinator"},
		Payload: &lessorv1.SessionResponse_Reset_{Reset_: &lessorv1.Reset{
			Code: codeSession, Reason: "come back later", RetryAfter: durationpb.New(wait),
		}},
	}
}
