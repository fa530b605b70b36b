package producer

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/worker/internal/connecting"
	"github.com/lessor-dev/lessor/worker/internal/refused"
)

// contextEnded returns the status of a call whose ctx has ended. If err is not nil, it says what
// was wrong until then, because a call that is only retried has no error of its own; what says what
// failed.
func contextEnded(ctx context.Context, what string, err error) error {
	st := status.FromContextError(ctx.Err())
	if err == nil {
		return st.Err()
	}
	return status.Errorf(st.Code(), "%s; %s failed: %s", st.Message(), what,
		connecting.Why(status.Convert(err).Message()))
}

// outcomeUnknown returns the error for calls that were in progress when err came: it is unknown
// whether their tasks were created. Codes that already mean this stay as they are.
func outcomeUnknown(err error) error {
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return err
	}
	return status.Errorf(codes.Unavailable, "it is unknown whether the task was created: %v",
		status.Convert(err).Message())
}

// takesNone reports whether err says that the coordinator takes no submits at present, so that no
// task was created: it stops, or has lost its store.
func takesNone(err error) bool {
	return refused.Stopping(err) || refused.Because(err, "STORE_GONE")
}

// withoutReason returns UNAVAILABLE without its details, and any other error as it is:
// COORDINATOR_STOPPING would say that no task was created.
func withoutReason(err error) error {
	if st := status.Convert(err); st.Code() == codes.Unavailable {
		return status.Error(st.Code(), st.Message())
	}
	return err
}

// replyOf turns a result into what Submit returns.
func replyOf(r *lessorv1.SubmitResult) reply {
	e := r.GetError()
	if e == nil {
		return reply{result: r}
	}
	field, message := e.GetField(), e.GetMessage()
	if field != "" && field != itself { // it is a path within the spec
		field = itself + "." + field
		if strings.HasPrefix(message, e.GetField()+": ") {
			message = itself + "." + message
		}
	}
	return reply{err: statusOf(e, message, field, e.GetMetadata())}
}

// itself is the path of the whole spec in a SubmitTaskRequest.
const itself = "task"

// itemError is the error of one item of a frame.
type itemError interface {
	GetStatus() int32
	GetCode() string
	GetMessage() string
	GetRetryAfter() *durationpb.Duration
}

// statusOf returns the status that a call of the item alone would have returned, with the same
// details. field is the bad one, or empty.
func statusOf(e itemError, message, field string, metadata map[string]string) error {
	info := detail.ErrorInfo(e.GetCode())
	maps.Copy(info.GetMetadata(), metadata)
	details := []protoadapt.MessageV1{info}
	switch {
	case field == "":
	case codes.Code(e.GetStatus()) == codes.InvalidArgument:
		details = append(details, violation(message, field))
	default:
		info.Metadata["field"] = field
	}
	if e.GetRetryAfter() != nil {
		details = append(details, &errdetails.RetryInfo{RetryDelay: e.GetRetryAfter()})
	}
	return withDetails(status.New(codes.Code(e.GetStatus()), message), details...)
}

// invalid returns the status with which a coordinator refuses a field.
func invalid(field, format string, args ...any) error {
	message := field + ": " + fmt.Sprintf(format, args...)
	return withDetails(status.New(codes.InvalidArgument, message), detail.ErrorInfo(codeInvalid),
		violation(message, field))
}

// codeInvalid is the code of a request with a wrong field.
const codeInvalid = "E.REQUEST.INVALID"

// violation is the detail about the field with which a message begins.
func violation(message, field string) *errdetails.BadRequest {
	return &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
		{Field: field, Description: strings.TrimPrefix(message, field+": ")},
	}}
}

func withDetails(st *status.Status, details ...protoadapt.MessageV1) error {
	if detailed, err := st.WithDetails(details...); err == nil {
		st = detailed
	}
	return st.Err()
}

// notUTF8 returns the path of a string of the spec that is not valid UTF-8, with that of the spec
// itself.
func notUTF8(spec *lessorv1.TaskSpec) string {
	path := itself
	_ = protorange.Range(spec.ProtoReflect(), func(p protopath.Values) error {
		value, text := p.Index(-1).Value.Interface().(string)
		key, entry := p.Path.Index(-1).MapIndex().Interface().(string)
		if text && !utf8.ValidString(value) || entry && !utf8.ValidString(key) {
			path, _, _ = strings.Cut(itself+p.Path[1:].String(), `["`) // an entry of a map has no path of its own
			return protorange.Terminate
		}
		return nil
	})
	return path
}
