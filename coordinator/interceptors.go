package coordinator

import (
	"context"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/selector"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// chain holds the interceptors of every call, outermost first.
type chain struct {
	unary  []grpc.UnaryServerInterceptor
	stream []grpc.StreamServerInterceptor
}

// newChain returns the interceptors of every call, over gRPC or from within the process. The log comes before the recovery from panics, so that it shows
// a panic as the error that the caller gets. The log also comes before the gate, so that calls which the gate refuses are logged too. Calls of other
// services (health, reflection) are not logged, and sessions write their own lines.
func newChain(log *slog.Logger, underWay *calls, g *gate.Gate) chain {
	ours := selector.MatchFunc(func(_ context.Context, c interceptors.CallMeta) bool {
		return strings.HasPrefix(c.Service, "lessor.") && c.FullMethod() != lessorv1.WorkerService_Session_FullMethodName
	})
	caught := recovery.WithRecoveryHandlerContext(func(ctx context.Context, p any) error {
		log.ErrorContext(ctx, "panic in a handler", "panic", p, "stack", string(debug.Stack()))
		return refusal.New(codes.Internal, refusal.CodeInternal, "internal error", nil)
	})
	lines, opts := callLogger(log), callLogOptions()
	return chain{
		unary: []grpc.UnaryServerInterceptor{
			underWay.unary,
			selector.UnaryServerInterceptor(logging.UnaryServerInterceptor(lines, opts...), ours),
			recovery.UnaryServerInterceptor(caught),
			g.Unary,
			limitUnread,
		},
		stream: []grpc.StreamServerInterceptor{
			underWay.stream,
			selector.StreamServerInterceptor(logging.StreamServerInterceptor(lines, opts...), ours),
			recovery.StreamServerInterceptor(caught),
			g.Stream,
		},
	}
}

// callLogger returns a logger that writes to slog. Both libraries use the same numbers for levels.
func callLogger(log *slog.Logger) logging.Logger {
	return logging.LoggerFunc(func(ctx context.Context, level logging.Level, msg string, fields ...any) {
		if loggedElsewhere(fields) {
			level = logging.LevelDebug
		}
		log.Log(ctx, slog.Level(level), msg, fields...)
	})
}

// loggedElsewhere reports whether a call was refused for a cause that the log reports elsewhere: a quota that is used up (newQuotas), a full disk
// (store/reserve), or the stop of the coordinator (Serve). A flood of such calls would fill the log, and then the disk.
func loggedElsewhere(fields []any) bool {
	i := slices.Index(fields, any("code"))
	if i < 0 || i+1 == len(fields) {
		return false
	}
	code, _ := fields[i+1].(string)
	return refusal.IsQuotaCode(code) || code == refusal.CodeDiskFull || code == refusal.CodeStopping
}

// callLogOptions gives every call one log line, with its tenant, type and code. Handlers add fields with logFields. The line never holds a payload: no
// handler adds one, and errors name fields but do not quote their content.
func callLogOptions() []logging.Option {
	return []logging.Option{
		logging.WithLogOnEvents(logging.FinishCall),
		logging.WithLevels(levelOf),
		logging.WithDisableLoggingFields(logging.SystemTag[0], logging.ComponentFieldKey, logging.ServiceFieldKey,
			logging.MethodFieldKey, logging.MethodTypeFieldKey),
		logging.WithFieldsFromContextAndCallMeta(func(_ context.Context, c interceptors.CallMeta) logging.Fields {
			return logging.Fields{"type", c.Method}
		}),
		logging.WithErrorFields(func(err error) logging.Fields { return logging.Fields{"code", refusal.CodeOf(err)} }),
	}
}

// levelOf returns the level of a call's log line. The level is low if the call succeeded or if its error is the caller's own fault.
func levelOf(c codes.Code) logging.Level {
	switch c {
	case codes.OK, codes.Canceled:
		return logging.LevelDebug
	case codes.Unavailable, codes.ResourceExhausted, codes.DeadlineExceeded:
		return logging.LevelWarn
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return logging.LevelError
	}
	return logging.LevelInfo
}
