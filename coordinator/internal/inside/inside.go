// Package inside lets the tests of a whole coordinator look at its parts, without an exported name
// in package coordinator that users would see.
package inside

import (
	"context"
	"net/http"

	"google.golang.org/grpc"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/service"
	"github.com/lessor-dev/lessor/coordinator/session"
	"github.com/lessor-dev/lessor/coordinator/submitlimit"
)

// Parts are the parts of a coordinator that tests use.
type Parts struct {
	Engine        *engine.Engine
	Gate          *gate.Gate
	Quotas        *quota.Book
	Services      *service.Services
	Sessions      *session.Registry
	SubmitLimiter *submitlimit.Limiter
	GRPC          *grpc.Server
	HTTP          *http.Server
	EndCalls      context.CancelFunc     // ends streams and waits, as a stop does
	Idle          func() <-chan struct{} // closed when no call is under way
}

// Of returns the parts of a *coordinator.Coordinator. Package coordinator, which this package
// cannot import, sets it.
var Of func(coordinator any) Parts
