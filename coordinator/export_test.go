package coordinator

import (
	"context"
	"log/slog"
	"net"
	"net/http"

	"google.golang.org/grpc"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/gate"
)

// What the tests of the whole process need of its inside; they are in package coordinator_test,
// because package wiretest imports this one.
const (
	GracefulStop       = gracefulStop
	LastWords          = lastWords
	MaxStreams         = maxStreams
	MostWorkspaces     = mostWorkspaces
	StoreCheckInterval = storeCheckInterval
	StoreGone          = storeGone
)

// Bounds that tests make small.
var (
	MostMeasured    = &mostMeasured
	MostRecvBytes   = &mostRecvBytes
	MostSubmitBytes = &mostSubmitBytes
)

// NewCodec is newCodec.
var NewCodec = newCodec

// At is at of the settings with their defaults.
func (c Callbacks) At(listening net.Listener, scheme string) string {
	c.fill()
	return c.at(listening, scheme)
}

// CallThrough makes a unary call through the interceptors of every call.
func CallThrough(
	ctx context.Context, g *gate.Gate, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	return newChain(slog.New(slog.DiscardHandler), newCalls(), newCallMetrics(), g).callUnary(ctx, request, info, handle)
}

// RequireRole returns the handler of a page of the operators.
func RequireRole(g *gate.Gate, asks auth.Role, page http.Handler) http.Handler {
	return roleCheck{gate: g, log: slog.New(slog.DiscardHandler)}.require(asks, page)
}
