package refusal

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
)

// The errors of single items of a request or frame, of which other items may have succeeded.

// ItemError returns the error of an item that got no verdict, with the same code and message as the
// status of a call that fails so, and with the wait after which to repeat the item. It returns nil
// if err is nil.
func ItemError(err error) *lessorv1.ItemError {
	if err == nil {
		return nil
	}
	st := status.Convert(Status(err))
	return &lessorv1.ItemError{Code: CodeOf(st.Err()), RetryAfter: WaitOf(st.Err()), Message: st.Message()}
}

// SubmitError returns the error for one spec, with the same code, message and metadata as the
// status of a SubmitTask with that spec.
func SubmitError(err error) *lessorv1.SubmitError {
	st := status.Convert(Status(err))
	field, _ := detail.Field(st)
	about := detail.Of[*errdetails.ErrorInfo](st).GetMetadata()
	delete(about, "code") // has a field of its own, as the next
	delete(about, "field")
	return &lessorv1.SubmitError{
		Status: int32(st.Code()), Code: CodeOf(st.Err()), Message: st.Message(), Field: field,
		RetryAfter: WaitOf(st.Err()), Metadata: about,
	}
}

// AwaitError returns the error for one task of an AwaitTasks, with the same code and message as the
// status of a GetTask of that task.
func AwaitError(err error) *lessorv1.AwaitError {
	st := status.Convert(Status(err))
	return &lessorv1.AwaitError{
		Status:     int32(st.Code()),
		Code:       CodeOf(st.Err()),
		Message:    st.Message(),
		RetryAfter: WaitOf(st.Err()),
	}
}

// WaitOf returns the wait in the RetryInfo of a status, or nil if the status has none.
func WaitOf(err error) *durationpb.Duration {
	return detail.Of[*errdetails.RetryInfo](status.Convert(err)).GetRetryDelay()
}
