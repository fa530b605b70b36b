// Package detail makes and reads the details of statuses: what a coordinator says for programs
// about an error (S4).
package detail

import (
	"context"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Domain is the domain of every ErrorInfo of a coordinator.
const Domain = "lessor"

// Unanswered is the key, and NotTaken the value, with which the metadata of an ErrorInfo says that
// messages without an answer have had no effect.
const (
	Unanswered = "unanswered"
	NotTaken   = "not_taken"
)

// ErrorInfo returns the detail that tells programs the code of an error.
func ErrorInfo(code string) *errdetails.ErrorInfo {
	return &errdetails.ErrorInfo{Reason: Reason(code), Domain: Domain, Metadata: map[string]string{"code": code}}
}

// Reason returns the reason that belongs to a code: AUTH_FORBIDDEN for E.AUTH.FORBIDDEN.
func Reason(code string) string { return strings.ReplaceAll(strings.TrimPrefix(code, "E."), ".", "_") }

// ReasonOf returns the reason that a coordinator gives for an error, such as QUOTA_TASKS, or "" if
// the error is from somebody else.
func ReasonOf(st *status.Status) string {
	if info := Of[*errdetails.ErrorInfo](st); info.GetDomain() == Domain {
		return info.GetReason()
	}
	return ""
}

// Of returns the first detail of type T, or nil if there is none.
func Of[T any](st *status.Status) (found T) {
	for _, d := range st.Details() {
		if t, ok := d.(T); ok {
			return t
		}
	}
	return found
}

// Field returns the path of the field because of which a request was refused, and what is wrong
// with it. The path is "" if the reason is not a field. If several fields are named, Field returns
// the first.
func Field(st *status.Status) (path, problem string) {
	if bad := Of[*errdetails.BadRequest](st).GetFieldViolations(); len(bad) > 0 {
		return bad[0].GetField(), bad[0].GetDescription()
	}
	path = Of[*errdetails.ErrorInfo](st).GetMetadata()["field"] // an idempotency key that another spec has
	return path, strings.TrimPrefix(st.Message(), path+": ")
}

// Cut reports whether err, with which a stream that had begun has ended, may be of something on the
// way to the coordinator, such as a proxy, so that another stream may go on. Each error of a
// coordinator has an ErrorInfo. After the end of ctx, that of the stream, the error says only that.
func Cut(ctx context.Context, err error) bool {
	switch st := status.Convert(err); st.Code() {
	case codes.Internal, codes.Canceled, codes.Unknown:
		return ctx.Err() == nil && Of[*errdetails.ErrorInfo](st) == nil
	default:
		return false
	}
}

// ClosedByAge reports whether the coordinator closed the connection because of its age. That
// happens to every client with a long stream from time to time and is no reason for an alarm. gRPC
// reports the reason only as a word in its message.
func ClosedByAge(err error) bool {
	return status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), `"max_age"`)
}

// Untaken reports whether the coordinator has ended a stream in order because its credential has
// expired: it has answered all that it has taken, and the rest, which has had no effect, can be
// sent again with another credential.
func Untaken(err error) bool {
	info := Of[*errdetails.ErrorInfo](status.Convert(err))
	return info.GetDomain() == Domain && info.GetMetadata()[Unanswered] == NotTaken
}
