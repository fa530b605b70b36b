package producer

import (
	"context"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
)

// contextEnded returns the status of a call whose ctx has ended. If err is not nil, it says what was wrong until then, because a call that is only retried
// has no error of its own; what says what failed.
func contextEnded(ctx context.Context, what string, err error) error {
	st := status.FromContextError(ctx.Err())
	if err == nil {
		return st.Err()
	}
	return status.Errorf(st.Code(), "%s; %s failed: %s", st.Message(), what, status.Convert(err).Message())
}

// outcomeUnknown returns the error for calls that were in progress when err came: it is unknown whether their tasks were created. Codes
// that already mean this stay as they are.
func outcomeUnknown(err error) error {
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return err
	}
	return status.Errorf(codes.Unavailable, "it is unknown whether the task was created: %v", status.Convert(err).Message())
}

// withoutReason returns UNAVAILABLE without its details, and any other error as it is: COORDINATOR_STOPPING would say that no task was created.
func withoutReason(err error) error {
	if st := status.Convert(err); st.Code() == codes.Unavailable {
		return status.Error(st.Code(), st.Message())
	}
	return err
}

// replyOf turns a result into what Submit returns.
func replyOf(r *lessorv1.SubmitResult) reply {
	if r.GetError() == nil {
		return reply{result: r}
	}
	return reply{err: statusOf(r.GetError(), r.GetError().GetField())}
}

// itemError is the error of one item of a frame.
type itemError interface {
	GetStatus() int32
	GetCode() string
	GetMessage() string
	GetRetryAfter() *durationpb.Duration
}

// statusOf returns the status that a call of the item alone would have returned, with the same details. field is the bad one, or empty.
func statusOf(e itemError, field string) error {
	st := status.New(codes.Code(e.GetStatus()), e.GetMessage())
	details := []protoadapt.MessageV1{detail.ErrorInfo(e.GetCode())}
	if field != "" {
		details = append(details, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: field, Description: strings.TrimPrefix(e.GetMessage(), field+": ")},
		}})
	}
	if e.GetRetryAfter() != nil {
		details = append(details, &errdetails.RetryInfo{RetryDelay: e.GetRetryAfter()})
	}
	if detailed, err := st.WithDetails(details...); err == nil {
		st = detailed
	}
	return st.Err()
}
