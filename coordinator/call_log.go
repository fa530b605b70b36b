package coordinator

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"time"

	middleware "github.com/grpc-ecosystem/go-grpc-middleware/v2"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// callLog writes a line at the end of every call, with its tenant, type and code. Handlers add
// fields with logFields. The line never holds a payload: no handler adds one, and errors name
// fields but do not quote their content. Calls of other services (health, reflection) have no line.
// A session that the gate has let in writes its own lines.
type callLog struct{ *slog.Logger }

func logged(method string) bool {
	return ours(method) && method != lessorv1.WorkerService_Session_FullMethodName
}

func (l callLog) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if !logged(info.FullMethod) {
		return next(ctx, req)
	}
	begin := time.Now()
	ctx = logging.InjectFields(ctx, nil)
	res, err := next(ctx, req)
	l.end(ctx, info.FullMethod, begin, err)
	return res, err
}

func (l callLog) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if !logged(info.FullMethod) {
		return next(srv, stream)
	}
	begin := time.Now()
	ctx := logging.InjectFields(stream.Context(), nil)
	err := next(srv, &middleware.WrappedServerStream{ServerStream: stream, WrappedContext: ctx})
	l.end(ctx, info.FullMethod, begin, err)
	return err
}

// refusedSessions returns the gate, which then also writes the line of a session that it refuses.
func (l callLog) refusedSessions(gate grpc.StreamServerInterceptor) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		if info.FullMethod != lessorv1.WorkerService_Session_FullMethodName {
			return gate(srv, stream, info, next)
		}
		begin, letIn := time.Now(), false
		ctx := logging.InjectFields(stream.Context(), nil)
		err := gate(srv, &middleware.WrappedServerStream{ServerStream: stream, WrappedContext: ctx}, info, func(srv any, stream grpc.ServerStream) error {
			letIn = true
			return next(srv, stream)
		})
		if !letIn {
			l.end(ctx, info.FullMethod, begin, err)
		}
		return err
	}
}

// end writes the line of a call. Most lines are below the level of the log, so their fields are not
// put together.
func (l callLog) end(ctx context.Context, method string, begin time.Time, err error) {
	took, result := time.Since(begin), status.Code(err)
	level, code := levelOf(result), ""
	if err != nil {
		if code = refusal.CodeOf(err); loggedElsewhere(code) {
			level = slog.LevelDebug
		}
	}
	if !l.Enabled(ctx, level) {
		return
	}
	fields := append([]any{"type", path.Base(method)}, logging.ExtractFields(ctx)...)
	if p, ok := peer.FromContext(ctx); ok {
		fields = append(fields, "peer.address", p.Addr.String())
	}
	fields = append(fields, "grpc.start_time", begin.Format(time.RFC3339))
	if d, ok := ctx.Deadline(); ok {
		fields = append(fields, "grpc.request.deadline", d.Format(time.RFC3339))
	}
	fields = append(fields, "grpc.code", result.String())
	if err != nil {
		fields = append(fields, "grpc.error", err.Error(), "code", code)
	}
	l.Log(ctx, level, "finished call", append(fields, "grpc.time_ms", fmt.Sprint(float32(took.Microseconds())/1000))...)
}

// loggedElsewhere reports whether a call was refused with a code for a cause that the log reports
// elsewhere: a quota that is used up (newQuotas), a full disk (store/reserve), a store that is gone
// (storeFile), or the stop of the coordinator (Serve). A flood of such calls would fill the log,
// and then the disk.
func loggedElsewhere(code string) bool {
	return refusal.IsQuotaCode(code) || code == refusal.CodeDiskFull || code == refusal.CodeStoreGone ||
		code == refusal.CodeStopping
}

// levelOf returns the level of a call's log line. The level is low if the call succeeded or if its
// error is the caller's own fault.
func levelOf(c codes.Code) slog.Level {
	switch c {
	case codes.OK, codes.Canceled:
		return slog.LevelDebug
	case codes.Unavailable, codes.ResourceExhausted, codes.DeadlineExceeded:
		return slog.LevelWarn
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return slog.LevelError
	}
	return slog.LevelInfo
}
