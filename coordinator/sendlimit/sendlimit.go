// Package sendlimit bounds the answers that gRPC keeps until their client reads them (X5).
//
// A handler returns as soon as gRPC has its answer. gRPC then keeps the answer in memory until flow
// control lets it send the answer. A client that never reads could make a thousand calls on each
// connection, and the coordinator would have to keep all the answers. So each connection has a
// fixed number of places for answers that can be large. A call that only reads takes a place before
// it reads the store, and so does an AwaitTasks before each answer. A Lease takes a place when it
// has granted tasks, see PlaceOf. The place is free again when gRPC has sent the whole answer.
package sendlimit

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/wire"
)

// maxAnswers is how many large answers a connection may have at a time, including those that are
// still being made.
var maxAnswers = 16

// answers holds the places of one connection: a semaphore.
type answers chan struct{}

// reads are the calls that only read, and whose answers can be large because they hold payloads or
// lists.
var reads = map[string]bool{
	lessorv1.TaskService_GetTask_FullMethodName:          true,
	lessorv1.TaskService_ListTasks_FullMethodName:        true,
	lessorv1.TaskService_ExplainTask_FullMethodName:      true,
	lessorv1.AdminService_GetStatus_FullMethodName:       true,
	lessorv1.AdminService_ListQueues_FullMethodName:      true,
	lessorv1.AdminService_GetQueue_FullMethodName:        true,
	lessorv1.AdminService_ListWorkers_FullMethodName:     true,
	lessorv1.AdminService_GetWorker_FullMethodName:       true,
	lessorv1.AdminService_ListAuditEvents_FullMethodName: true,
	lessorv1.AuthService_ListTokens_FullMethodName:       true,
	lessorv1.AuthService_ListKeys_FullMethodName:         true,
}

// largeAnswer is an answer that holds a place.
type largeAnswer struct {
	proto.Message
	sent func() // gives the place back
}

// Limiter is an interceptor that bounds the answers of each connection. UntilEnded is that of the
// gate.
type Limiter struct {
	UntilEnded func(context.Context) (in context.Context, done func())
}

// Unary delays a call while too many answers of its connection wait to be sent. A call from within
// the process has no connection and is not delayed.
func (l Limiter) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	places, _ := ctx.Value(answersKey{}).(answers)
	read, leases := reads[info.FullMethod], info.FullMethod == lessorv1.WorkerService_Lease_FullMethodName
	if places == nil || !read && !leases {
		return next(ctx, req)
	}
	p := &Place{of: places}
	if err := l.take(ctx, p); err != nil {
		return nil, refusal.Status(err)
	}
	// a client that does not read its answers gets no work, but a Lease that waits for work must
	// not hold a place
	if leases {
		p.free()
		ctx = context.WithValue(ctx, placeKey{}, p)
	}
	handed := false
	defer func() {
		if !handed {
			p.free()
		}
	}()
	m, err := next(ctx, req)
	if err != nil {
		return nil, err
	}
	handed = true
	return &largeAnswer{m.(proto.Message), p.free}, nil
}

// take takes a place. If it has to wait for one, it waits only until the credential of the call
// ends (X3).
func (l Limiter) take(ctx context.Context, p *Place) error {
	if ctx.Err() == nil && p.takeNow() {
		return nil
	}
	ctx, done := l.UntilEnded(ctx)
	defer done()
	return p.Take(ctx)
}

type (
	answersKey struct{}
	placeKey   struct{}
)

// Place is the place of one answer.
type Place struct {
	of   answers
	free func() // gives the place back; more than one call has no effect
}

// PlaceOf returns the place that the answer of a Lease must take; nil if it needs none.
func PlaceOf(ctx context.Context) *Place {
	p, _ := ctx.Value(placeKey{}).(*Place)
	return p
}

// OfStream returns a place for the next message of a stream; nil if it needs none.
func OfStream(ctx context.Context) *Place {
	places, _ := ctx.Value(answersKey{}).(answers)
	if places == nil {
		return nil
	}
	return &Place{of: places}
}

// Answer returns a message of a stream to send, whose place is free when gRPC has sent it.
func (p *Place) Answer(m proto.Message) any {
	if p == nil {
		return m
	}
	return &largeAnswer{m, p.free}
}

// Free gives back a place that was taken and is not needed. More than one call has no effect.
func (p *Place) Free() {
	if p != nil {
		p.free()
	}
}

// Take waits for a free place. It returns the cause if ctx ends before, or has ended already, even
// if the answer needs no place: the answer would not be received, and so the tasks of a Lease must
// be given back (W5).
func (p *Place) Take(ctx context.Context) error {
	if ctx.Err() != nil { // the select below would choose at random if a place is free, too
		return context.Cause(ctx)
	}
	if p == nil {
		return nil
	}
	select {
	case p.of <- struct{}{}:
		p.taken()
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// takeNow takes a place if one is free.
func (p *Place) takeNow() bool {
	select {
	case p.of <- struct{}{}:
		p.taken()
		return true
	default:
		return false
	}
}

func (p *Place) taken() { p.free = sync.OnceFunc(func() { <-p.of }) }

// Handler gives each new connection its answers.
type Handler struct{}

var _ stats.Handler = Handler{}

// TagConn puts the places of a new connection into its context.
func (Handler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, answersKey{}, make(answers, maxAnswers))
}

// HandleConn does nothing.
func (Handler) HandleConn(context.Context, stats.ConnStats) {}

// TagRPC does nothing.
func (Handler) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC does nothing.
func (Handler) HandleRPC(context.Context, stats.RPCStats) {}

// sentFrom is a buffer pool that calls sent when gRPC gives a buffer back, which it does after it
// has sent the buffer.
type sentFrom struct {
	mem.BufferPool
	sent func()
}

// Put returns a buffer to the pool and calls sent.
func (p sentFrom) Put(b *[]byte) {
	p.BufferPool.Put(b)
	p.sent()
}

// Encode encodes a message into a buffer. For a largeAnswer, the place becomes free when gRPC has
// sent the buffer.
func Encode(v any) (mem.BufferSlice, error) {
	m, pool, sent := v, wire.Buffers, func() {}
	if large, ok := v.(*largeAnswer); ok {
		m, sent = large.Message, large.sent
		pool = sentFrom{wire.Buffers, sent}
	}
	message := m.(proto.Message)
	size := wire.Size(message)
	if mem.IsBelowBufferPoolingThreshold(size) {
		defer sent() // gRPC does not return such a small buffer to the pool, and it need not be counted
	}
	return wire.Encode(message, size, pool)
}
