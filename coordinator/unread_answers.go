package coordinator

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/wire"
)

// A handler is done once gRPC has its answer, and gRPC keeps the answer until the caller makes room for it (X5). A caller that never reads could make a
// thousand calls on each connection, and have the coordinator keep all the answers. So a connection has a number of places for answers that can be large.
// A call that only reads takes a place before it reads, a Lease takes one when it has something; the place is free again once the whole answer was sent.

// maxUnread is how many large answers of one connection may be under way: being made, or waiting to be sent.
const maxUnread = 16

// unreadAnswers are the places of one connection.
type unreadAnswers chan struct{}

// take waits for a place. free may be called more than once.
func (u unreadAnswers) take(ctx context.Context) (free func(), err error) {
	select {
	case u <- struct{}{}:
		return sync.OnceFunc(func() { <-u }), nil
	case <-ctx.Done():
		return nil, asStatus(ctx.Err())
	}
}

// reads are the calls that change nothing, and whose answers have payloads or are lists.
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

// limitUnread delays a call while too many answers of its connection wait to be sent. Calls from within have no connection and pass.
func limitUnread(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	places, _ := ctx.Value(unreadKey{}).(unreadAnswers)
	read, leases := reads[info.FullMethod], info.FullMethod == lessorv1.WorkerService_Lease_FullMethodName
	if places == nil || !read && !leases {
		return next(ctx, req)
	}
	free, err := places.take(ctx)
	if err != nil {
		return nil, err
	}
	if leases { // a caller that does not read gets no work; a Lease holds no place while it waits for work
		free()
	}
	handed := false
	defer func() {
		if !handed {
			free()
		}
	}()
	m, err := next(ctx, req)
	if err != nil {
		return nil, err
	}
	if leases {
		again, err := places.take(ctx)
		if err != nil {
			return nil, err
		}
		free = again
	}
	handed = true
	return &largeAnswer{m.(proto.Message), free}, nil
}

type unreadKey struct{}

// unreadHandler gives each connection its unreadAnswers.
type unreadHandler struct{}

var _ stats.Handler = unreadHandler{}

// TagConn makes the places of a new connection.
func (unreadHandler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, unreadKey{}, make(unreadAnswers, maxUnread))
}

// HandleConn does nothing.
func (unreadHandler) HandleConn(context.Context, stats.ConnStats) {}

// TagRPC does nothing.
func (unreadHandler) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC does nothing.
func (unreadHandler) HandleRPC(context.Context, stats.RPCStats) {}

// sentFrom is a buffer pool that calls sent when a buffer comes back, which is when it was sent.
type sentFrom struct {
	mem.BufferPool
	sent func()
}

// Put gives a buffer back.
func (p sentFrom) Put(b *[]byte) {
	p.BufferPool.Put(b)
	p.sent()
}

// encode writes a message into a buffer. For a largeAnswer it gives the place back when the buffer was sent.
func encode(v any) (mem.BufferSlice, error) {
	m, pool, sent := v, wire.Buffers, func() {}
	if large, ok := v.(*largeAnswer); ok {
		m, sent = large.Message, large.sent
		pool = sentFrom{wire.Buffers, sent}
	}
	message := m.(proto.Message)
	size := wire.Size(message)
	if mem.IsBelowBufferPoolingThreshold(size) {
		defer sent() // too small for the pool, and to count
	}
	return wire.Encode(message, size, pool)
}
