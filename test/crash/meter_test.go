//go:build faults

package crash

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// meter is a connection that counts the calls on it. It tells when to kill, and afterwards what the kill hit.
type meter struct {
	grpc.ClientConnInterface
	born time.Time
	// enough is closed when as many calls were answered as the round wants.
	enough   chan struct{}
	want     int64
	answered atomic.Int64
	// killedAt is the instant of the kill, as the time since born; 0 before.
	killedAt atomic.Int64
	// cut counts calls that began before the kill and got no answer; early those that failed like this before it.
	cut, early atomic.Int64
}

func newMeter(conn grpc.ClientConnInterface, want int64) *meter {
	return &meter{ClientConnInterface: conn, born: time.Now(), enough: make(chan struct{}), want: want}
}

// Invoke makes a unary call.
func (m *meter) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	began := m.clock()
	err := m.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
	switch killed := m.killedAt.Load(); {
	case !unanswered(err):
		if m.answered.Add(1) == m.want {
			close(m.enough)
		}
	case killed == 0:
		m.early.Add(1)
	case began < killed:
		m.cut.Add(1)
	}
	return err
}

// killing notes that the kill is next.
func (m *meter) killing() { m.killedAt.Store(m.clock()) }

func (m *meter) clock() int64 { return int64(time.Since(m.born)) + 1 }

// unanswered reports whether err says that there was no answer. Any other error is one.
func unanswered(err error) bool { return status.Code(err) == codes.Unavailable }
