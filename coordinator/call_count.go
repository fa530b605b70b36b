package coordinator

import (
	"context"
	"strings"
	"sync"

	"google.golang.org/grpc"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// calls counts the calls of Lessor's own services that are under way. A stop waits for these calls,
// but not for a stream of the reflection or health service that some tool keeps open, nor yet for
// standbys, which get what the others have changed.
type calls struct {
	mu    sync.Mutex
	n     int
	empty chan struct{} // closed while n is 0
}

func newCalls() *calls {
	c := &calls{empty: make(chan struct{})}
	close(c.empty)
	return c
}

// ours reports whether a method belongs to a service of Lessor.
func ours(method string) bool { return strings.HasPrefix(method, "/lessor.") }

// begin counts a call as under way until end is called.
func (c *calls) begin(method string) (end func()) {
	if !ours(method) || method == lessorv1.AdminService_FollowStore_FullMethodName {
		return func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == 0 {
		c.empty = make(chan struct{})
	}
	c.n++
	return c.end
}

func (c *calls) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 {
		close(c.empty)
	}
}

// none returns a channel that is closed when no call is under way.
func (c *calls) none() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.empty
}

func (c *calls) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	defer c.begin(info.FullMethod)()
	return next(ctx, req)
}

func (c *calls) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	defer c.begin(info.FullMethod)()
	return next(srv, stream)
}
