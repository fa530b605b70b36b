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

// meter is a connection that counts its calls. It says when enough were answered for a kill, and
// afterwards what the kill cut off.
type meter struct {
	grpc.ClientConnInterface
	born time.Time
	// enough is closed when want calls were answered.
	enough   chan struct{}
	want     int64
	answered atomic.Int64
	// killedAt is the time of the kill, since born; 0 before it.
	killedAt atomic.Int64
	// cut counts calls that began before the kill and got no answer. early counts calls that got no
	// answer although there was no kill yet.
	cut, early atomic.Int64
}

func newMeter(conn grpc.ClientConnInterface, want int64) *meter {
	return &meter{ClientConnInterface: conn, born: time.Now(), enough: make(chan struct{}), want: want}
}

// Invoke makes a unary call and counts it.
func (m *meter) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	began := m.clock()
	err := m.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
	switch killed := m.killedAt.Load(); {
	case !noAnswer(err):
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

// killIsNext notes that the kill comes next.
func (m *meter) killIsNext() { m.killedAt.Store(m.clock()) }

func (m *meter) clock() int64 { return int64(time.Since(m.born)) + 1 }

// noAnswer reports whether err means that there was no answer. Any other error is an answer.
func noAnswer(err error) bool { return status.Code(err) == codes.Unavailable }
