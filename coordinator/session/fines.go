package session

import (
	"sync"
	"time"
)

// Errors cost time: for each refused frame or report, the stream is charged a fine, which is a span of time. Once the sum of the fines is finesAhead
// in the future, the next frames are read only as time passes. So a flood of bad frames stands still in its own stream (X5), and a worker that errs now
// and then does not notice.
const (
	fineTakes  = time.Millisecond
	finesAhead = 2 * time.Second
)

// fines are the fines of one stream.
type fines struct {
	mu    sync.Mutex
	until time.Time // when the time of all fines so far has passed
}

func (f *fines) add(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); f.until.Before(now) {
		f.until = now
	}
	f.until = f.until.Add(time.Duration(n) * fineTakes)
}

// wait returns how long the next frame has to wait; not positive: it need not.
func (f *fines) wait() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(time.Until(f.until), 0) - finesAhead
}

// payFines waits until the fines have passed; false means that the stream is ending. Only the reader waits here.
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

// fail answers a bad frame, or a bad item of one, and charges the fine. The frame or item has changed nothing.
func (ss *Session) fail(corr, code, message, remediation string) {
	ss.fines.add(1)
	ss.out.fail(corr, code, message, remediation)
}
