//go:build faults

package crash

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
)

// streams are workers with sessions, made of the Go SDK. They go on through all kills.
type streams struct {
	b *book

	stop    context.CancelFunc
	running sync.WaitGroup

	mu          sync.Mutex
	round       int
	restart     chan struct{}  // closed at the next start of the coordinator
	noMoreKills bool           // there will be no other kill
	begun       map[string]int // the round in which an attempt began, by its id
}

// startStreams starts n workers.
func startStreams(t *testing.T, b *book, conn grpc.ClientConnInterface, n int) *streams {
	t.Helper()
	s := &streams{b: b, restart: make(chan struct{}), begun: map[string]int{}}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	for i := range n {
		w, err := worker.New(conn, []string{streamQueue}, worker.Config{
			Name:        fmt.Sprintf("stream-%d", i),
			Concurrency: 16,
			MinBackoff:  10 * time.Millisecond,
			MaxBackoff:  100 * time.Millisecond,
			Logger:      slog.New(slog.DiscardHandler),
			Hooks:       worker.Hooks{OnVerdict: s.recordVerdict},
		})
		if err != nil {
			t.Fatal(err)
		}
		w.HandleDefault(s.handle)
		s.running.Go(func() {
			if err := w.Run(ctx); err != nil {
				t.Errorf("stream worker: %v", err)
			}
		})
	}
	return s
}

// drain ends the workers in order.
func (s *streams) drain() {
	s.releaseHandlers()
	s.stop()
	s.running.Wait()
}

// restarted lets those handlers go on that waited for a kill.
func (s *streams) restarted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.round++
	close(s.restart)
	s.restart = make(chan struct{})
}

// releaseHandlers lets all handlers go on; it is called after the last kill.
func (s *streams) releaseHandlers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.noMoreKills {
		s.noMoreKills = true
		close(s.restart)
	}
}

// handle holds tasks of holdType until the coordinator was killed and is back; it completes the
// others at once.
func (s *streams) handle(ctx context.Context, t *worker.Task) ([]byte, error) {
	restart := s.begin(t)
	if t.Type == holdType {
		select {
		case <-restart:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return []byte(output(t.ID, t.Attempt)), nil
}

func (s *streams) begin(t *worker.Task) (restart <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun[t.AttemptID] = s.round
	return s.restart
}

// outlivedKill reports whether an attempt began before the last kill.
func (s *streams) outlivedKill(t *worker.Task) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun[t.AttemptID] < s.round
}

// recordVerdict enters a verdict. A lease on streamQueue ends only by its holder's report, unless a
// producer has tried to cancel or delete the task.
func (s *streams) recordVerdict(w *worker.Task, v *lessorv1.ReportVerdict) {
	b, got, outlivedKill := s.b, answerOf(v), s.outlivedKill(w)
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.touchLocked(w.ID)
	b.counts.streamed++
	t.streamed[w.Attempt] = got
	switch {
	case got.verdict == committed:
		if got.final() {
			b.decidedLocked(t, w.Attempt)
		}
		b.endedLocked(t, got.state)
		if outlivedKill {
			b.counts.outlivedKill++
		}
	case got.verdict != cancelled || !t.interfered:
		b.violated("A9", t, "attempt %d on a stream, begun before the kill: %v, is %v", w.Attempt, outlivedKill, got)
	}
}
