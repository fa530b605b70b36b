package session

import (
	"sync"
	"time"
)

// What is wrong costs time: each frame and each report of a session that is refused takes some that must pass before more is read of its stream. So a
// flood of them stands still in its own stream (X5); who errs now and then does not notice.
const (
	fineTakes  = time.Millisecond
	finesAhead = 2 * time.Second // that fines may take before later frames wait for it to pass
)

// fines are those of a stream.
type fines struct {
	mu    sync.Mutex
	until time.Time // when all of them have passed
}

func (f *fines) add(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); f.until.Before(now) {
		f.until = now
	}
	f.until = f.until.Add(time.Duration(n) * fineTakes)
}

// wait is how long the next frame has to wait.
func (f *fines) wait() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(time.Until(f.until), 0) - finesAhead
}

// atone waits until the fines have passed; false means that the stream is ending. Only the reader waits here.
func (ss *Session) atone() bool {
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

// fail answers a bad frame, or a bad item of one, which changed nothing.
func (ss *Session) fail(corr, code, message, remediation string) {
	ss.fines.add(1)
	ss.out.fail(corr, code, message, remediation)
}
