package gate

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/lessor-dev/lessor/coordinator/audit"
	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/porch"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// Deps is what the gate needs of the coordinator behind it.
type Deps struct {
	Auth   *Auth       // nil: no credentials are asked for
	Store  store.Store // has the credentials that were issued
	Keep   auth.Keeper // writes them
	Owner  string      // tenant that may have what is every tenant's
	Quotas *quota.Book
	Trail  *audit.Trail // keeps the audit
	// Holder tells who holds a task by the task token that was shown (H1), and what the call should know of it.
	Holder func(ctx context.Context, token string) (in context.Context, tenant string, task lease.TaskID, ok bool)
}

// Gate lets calls in, within their quotas, and ends those under way whose credential ends. It is safe for concurrent use.
type Gate struct {
	authenticator
	vigil    *vigil
	trail    *audit.Trail
	quotas   *quota.Book
	refusals quota.Rejects // by quotas
	holder   func(ctx context.Context, token string) (in context.Context, tenant string, task lease.TaskID, ok bool)
}

// New makes a gate. With Deps.Auth it reads the credentials that were issued.
func New(d Deps) (*Gate, error) {
	g := &Gate{
		authenticator: authenticator{attempts: porch.NewAttempts(), owner: d.Owner},
		trail:         d.Trail, quotas: d.Quotas, refusals: quota.NewRejects(), holder: d.Holder,
	}
	g.vigil = newVigil(g.recheck)
	if d.Auth == nil {
		return g, nil
	}
	g.rules = *d.Auth
	var err error
	if g.keyring, err = auth.Open(d.Store, d.Auth.Audience, d.Keep, g.vigil.changed); err != nil {
		return nil, err // one without a keyring would be open
	}
	return g, nil
}

// Keyring issues credentials and takes them back; nil where none are asked for.
func (g *Gate) Keyring() *auth.Keyring { return g.keyring }

// Start looks after calls whose credential ends although no timer tells, since the wall clock has jumped. stop returns when that has ended.
func (g *Gate) Start() (stop func()) { return g.vigil.start(time.Now) }

// Unary lets a call in. Of these only Lease waits for long.
func (g *Gate) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	admitted, who, err := g.admit(ctx, info.FullMethod)
	if err != nil {
		return nil, g.turnAway(ctx, who, info.FullMethod, req, err)
	}
	ctx = admitted
	end, err := g.count(ctx, who, info.FullMethod)
	if err != nil {
		return nil, g.overdrawn(ctx, who, info.FullMethod, req, err)
	}
	defer end()
	if info.FullMethod == lessorv1.WorkerService_Lease_FullMethodName {
		var done func()
		ctx, done = g.vigil.watch(ctx, who)
		defer done()
	}
	return g.audit(ctx, req, info, next)
}

// Stream lets a stream in, and ends it with its credential.
func (g *Gate) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	ctx, who, err := g.admit(stream.Context(), info.FullMethod)
	if err != nil {
		return g.turnAway(stream.Context(), who, info.FullMethod, nil, err)
	}
	end, err := g.count(ctx, who, info.FullMethod)
	if err != nil {
		return g.overdrawn(ctx, who, info.FullMethod, nil, err)
	}
	defer end()
	ctx, done := g.vigil.watch(ctx, who)
	defer done()
	in := &admitted{ServerStream: stream, ctx: ctx}
	if audited[info.FullMethod] {
		entry := newEntry(ctx, who, info.FullMethod, nil)
		in.first = func() error { return refusal.Status(g.trail.Record(entry)) }
		defer func() {
			if err != nil && !in.told.Load() {
				g.refused(entry, err)
			}
		}()
	}
	if info.FullMethod == lessorv1.WorkerService_Session_FullMethodName { // it sees to slow readers itself
		err = next(srv, in)
	} else {
		err = leaveBehind(ctx, func() error { return next(srv, in) })
	}
	if ended := auth.Ended(ctx); ended != nil {
		err = refusal.Status(ended)
	}
	return err
}

// lastWords are those of a handler whose call has no credential any more.
const lastWords = 500 * time.Millisecond

// leaveBehind waits for a handler, but not for long once the credential of its call has ended (X3): a send to a reader that does not read ends with
// the call itself, and not before.
func leaveBehind(ctx context.Context, handle func() error) error {
	ended := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				ended <- &panicked{p, debug.Stack()}
			}
		}()
		ended <- handle()
	}()
	select {
	case err := <-ended:
		return again(err)
	case <-ctx.Done():
	}
	if auth.Ended(ctx) == nil {
		return again(<-ended)
	}
	select {
	case err := <-ended:
		return again(err)
	case <-time.After(lastWords):
		return context.Cause(ctx)
	}
}

// panicked is a panic on its way to another goroutine.
type panicked struct {
	with  any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("%v, at\n%s", p.with, p.stack) }

// again panics where err is a panic.
func again(err error) error {
	if p := (*panicked)(nil); errors.As(err, &p) {
		panic(p.Error())
	}
	return err
}

// admitted is a stream that was let in.
type admitted struct {
	grpc.ServerStream
	ctx   context.Context //nolint:containedctx // a grpc.ServerStream has one
	first func() error    // comes before the first message that goes out; may be nil
	told  atomic.Bool     // it came
}

// SendMsg lets nothing out before first has come.
func (s *admitted) SendMsg(m any) error {
	if s.first != nil && !s.told.Load() {
		if err := s.first(); err != nil {
			return err
		}
		s.told.Store(true)
	}
	return s.ServerStream.SendMsg(m)
}

// Context ends with the stream, or with its credential.
func (s *admitted) Context() context.Context { return s.ctx }

// RecvMsg hands on nothing that comes after the end of the credential (X3).
func (s *admitted) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if ended := auth.Ended(s.ctx); ended != nil {
		return refusal.Status(ended)
	}
	return nil
}
