package gate

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/audit"
	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/preauth"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/turn"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// Deps is what the gate needs from the coordinator behind it.
type Deps struct {
	Auth  *Auth       // nil: no credentials are required
	Store store.Store // holds the credentials that were issued
	Keep  auth.Keeper // writes changes of the credentials
	// Host is the tenant whose operators run the coordinator itself, and which alone may make calls
	// about all tenants; empty: none.
	Host   string
	Quotas *quota.Book
	Trail  *audit.Trail // takes the audit entries
	// OpenToken opens task tokens.
	OpenToken TokenOpener
}

// TokenOpener opens the task token of a call (H1). It returns what the token says, and a context
// that carries what the handler needs of it. ok is false if the token is not valid.
type TokenOpener func(ctx context.Context, token string) (in context.Context, said TaskToken, ok bool)

// TaskToken is what the gate needs of a task token.
type TaskToken struct {
	Tenant     string
	Task       lease.TaskID
	Credential string // under which the worker holds the lease; empty: none
}

// Gate lets calls in, within their quotas, and ends calls under way when their credential ends. It
// is safe for concurrent use.
type Gate struct {
	keyring   *auth.Keyring // nil: no credentials are required
	rules     Auth
	host      string // see Deps.Host
	openToken TokenOpener
	attempts  preauth.Attempts       // paces the refusals of credentials
	refused   *prometheus.CounterVec // counts the refused credentials
	refusals  quota.Rejects          // paces the refusals by quotas
	calls     *activeCalls
	trail     *audit.Trail
	quotas    *quota.Book
}

// New returns a gate. If Deps.Auth is set, it reads the issued credentials from the store.
func New(d Deps) (*Gate, error) {
	g := &Gate{
		host:      d.Host,
		openToken: d.OpenToken,
		attempts:  preauth.NewAttempts(),
		refused:   newRefused(),
		refusals:  quota.NewRejects(),
		trail:     d.Trail,
		quotas:    d.Quotas,
	}
	g.calls = newActiveCalls(g.recheck)
	if d.Auth == nil {
		return g, nil
	}
	g.rules = *d.Auth
	var err error
	if g.keyring, err = auth.Open(d.Store, d.Auth.Audience, g.keeper(d.Keep), g.calls.recheckOf); err != nil {
		return nil, err // a gate without a keyring would admit every caller
	}
	return g, nil
}

// keeper returns a Keeper that refuses a change whose caller's credential has ended while the
// change waited for earlier ones, which may have revoked it. Otherwise whoever holds a stolen
// credential could issue tokens that survive its revocation (X3).
func (g *Gate) keeper(keep auth.Keeper) auth.Keeper {
	return func(ctx context.Context, tenant, about string, put func(*store.Batch)) error {
		if who := Identify(ctx); who.Credential != "" {
			if _, err := g.recheck(who); err != nil {
				return err
			}
		}
		return keep(ctx, tenant, about, put)
	}
}

// UntilEnded returns a context that also ends with the credential of an admitted call, for a call
// that has to wait. done must be called when it waits no more.
func (g *Gate) UntilEnded(ctx context.Context) (in context.Context, done func()) {
	return g.calls.track(ctx, Identify(ctx))
}

// Keyring returns the keyring, which issues and revokes credentials, or nil if no credentials are
// required.
func (g *Gate) Keyring() *auth.Keyring { return g.keyring }

// FirstEnd returns when the first of the credentials ends with which the streams and waiting
// requests under way came; the zero Time if there is none. A client that reads its credential from
// a file shows a new one when it opens its stream again, which connections make it do about once an
// hour.
func (g *Gate) FirstEnd() time.Time { return g.calls.firstEnd() }

// Start starts a goroutine that checks the credentials of all calls under way again whenever the
// wall clock has jumped. The calls' timers do not notice such a jump. stop ends the goroutine and
// waits for its end.
func (g *Gate) Start() (stop func()) { return g.calls.start(time.Now) }

// endWithCredential lists the unary calls that may take long: a Lease waits for work, and the bulk
// verbs take many steps. The others do not, or use UntilEnded.
var endWithCredential = map[string]bool{
	lessorv1.WorkerService_Lease_FullMethodName:          true,
	lessorv1.TaskService_BatchCancelTasks_FullMethodName: true,
	lessorv1.TaskService_BatchRetryTasks_FullMethodName:  true,
	lessorv1.TaskService_BatchDeleteTasks_FullMethodName: true,
	lessorv1.AdminService_PurgeQueue_FullMethodName:      true,
}

// Unary is the interceptor of unary calls. It ends a call that may take long when its credential
// ends.
func (g *Gate) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	in, who, err := g.admit(ctx, info.FullMethod)
	if err != nil {
		return nil, g.turnAway(ctx, who, info.FullMethod, req, err)
	}
	end, err := g.count(in, who, info.FullMethod)
	if err != nil {
		return nil, g.refuseByQuota(in, who, info.FullMethod, req, err)
	}
	defer end()
	if endWithCredential[info.FullMethod] {
		var done func()
		in, done = g.calls.track(in, who)
		defer done()
	}
	return g.audit(in, req, info, next)
}

// Stream is the interceptor of streams. It ends a stream when its credential ends.
func (g *Gate) Stream(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler,
) (err error) {
	ctx, who, err := g.admit(stream.Context(), info.FullMethod)
	if err != nil {
		return g.turnAway(stream.Context(), who, info.FullMethod, nil, err)
	}
	end, err := g.count(ctx, who, info.FullMethod)
	if err != nil {
		return g.refuseByQuota(ctx, who, info.FullMethod, nil, err)
	}
	defer end()
	ctx, done := g.calls.track(ctx, who)
	defer done()
	in := &admitted{ServerStream: stream, ctx: ctx, perTurn: perTurn(info)}
	if audited[info.FullMethod] {
		entry := newEntry(ctx, who, info.FullMethod, nil)
		in.first = func() error { return refusal.Status(g.trail.Record(entry)) }
		// the commit of the entry may wait for this very standby
		if info.FullMethod == lessorv1.AdminService_FollowStore_FullMethodName {
			in.first = func() error { go g.recordSoon(entry); return nil }
		}
		defer func() {
			if err != nil && !in.told.Load() {
				g.recordRefusal(entry, err)
			}
		}()
	}
	if info.FullMethod == lessorv1.WorkerService_Session_FullMethodName { // package session handles slow clients itself
		err = next(srv, in)
	} else {
		err = runUntilRevoked(ctx, func() error { return next(srv, in) })
	}
	// unless the handler has said so itself, and perhaps more
	if ended := auth.Ended(ctx); ended != nil && status.Code(err) != codes.Unauthenticated {
		err = refusal.Status(ended)
	}
	return err
}

// handlerGrace is how long a handler may still take after the credential of its call has ended.
const handlerGrace = 500 * time.Millisecond

// runUntilRevoked runs a handler and waits for it. After the credential of the call has ended, it
// waits only for handlerGrace (X3): the handler may be blocked in a send to a client that does not
// read, and such a send returns only when the call ends.
func runUntilRevoked(ctx context.Context, handle func() error) error {
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
		return rethrow(err)
	case <-ctx.Done():
	}
	if auth.Ended(ctx) == nil {
		return rethrow(<-ended)
	}
	select {
	case err := <-ended:
		return rethrow(err)
	case <-time.After(handlerGrace):
		return context.Cause(ctx)
	}
}

// panicked carries a panic from the goroutine of the handler to the goroutine that waits for the
// handler.
type panicked struct {
	with  any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("%v, at\n%s", p.with, p.stack) }

// rethrow panics if err is a panicked, else it returns err.
func rethrow(err error) error {
	if p, ok := errors.AsType[*panicked](err); ok {
		panic(p.Error())
	}
	return err
}

// admitted is a stream that was let in.
type admitted struct {
	grpc.ServerStream
	ctx   context.Context //nolint:containedctx // Context returns it, see grpc.ServerStream
	first func() error    // runs before the first message is sent; may be nil
	told  atomic.Bool     // first has run without an error

	perTurn        int // after how many messages, in each direction, the stream gives up the processor
	sent, received turn.Counter
}

// perTurn returns admitted.perTurn. A stream whose client always has another message ready waits
// for nothing by itself, and of many such streams each would keep its processor for 10 ms (package
// turn). Thousands of watches become ready with the same commit. The other streams carry what
// others wait for: they give up the processor less often.
func perTurn(info *grpc.StreamServerInfo) int {
	if watch := !info.IsClientStream || info.FullMethod == lessorv1.TaskService_AwaitTasks_FullMethodName; watch {
		return 1
	}
	return 16
}

// SendMsg sends nothing until first has succeeded.
func (s *admitted) SendMsg(m any) error {
	defer s.sent.Every(s.perTurn)
	if s.first != nil && !s.told.Load() {
		if err := s.first(); err != nil {
			return err
		}
		s.told.Store(true)
	}
	return s.ServerStream.SendMsg(m)
}

// Context returns a context that ends with the stream, or earlier with its credential.
func (s *admitted) Context() context.Context { return s.ctx }

// RecvMsg returns an error instead of a message that arrives after the end of the credential (X3).
func (s *admitted) RecvMsg(m any) error {
	s.received.Every(s.perTurn)
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if ended := auth.Ended(s.ctx); ended != nil {
		return refusal.Status(ended)
	}
	return nil
}
