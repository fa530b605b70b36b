package session

import (
	"sync"
	"time"

	"github.com/lessor-dev/lessor/coordinator/quota"
)

// Each refused frame or report costs its stream a fine: a span of time. The fines of a stream add
// up, and pass as time passes. If more than maxFinesAhead are left, the reader waits before the
// next frame. So a flood of bad frames slows only its own stream (X5), and a worker that makes a
// mistake now and then notices nothing.
const (
	fineCost      = time.Millisecond
	maxFinesAhead = 2 * time.Second
)

// fines are the fines of one stream.
type fines struct {
	mu  sync.Mutex
	due quota.Debt
}

func (f *fines) add(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.due = f.due.Plus(time.Duration(n)*fineCost, time.Now())
}

// wait returns how long the reader must wait before the next frame. If it is 0 or less, the reader
// need not wait.
func (f *fines) wait() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.due.Owed(time.Now()) - maxFinesAhead
}

// payFines waits until at most maxFinesAhead of the fines are left. It returns false if the stream
// ends. Only the reader calls it.
func (ss *Session) payFines() bool {
	wait := ss.fines.wait()
	if wait <= 0 {
		return true
	}
	select {
	case <-time.After(wait):
		return true
	case <-ss.stream.Context().Done():
		return false
	}
}
