package session

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/worker"
)

// sdk is a worker of the SDK, whose handlers take random times and end in random ways.
type sdk struct {
	w     *world
	name  string
	slots int
	quit  context.CancelFunc
	ended chan error

	mu       sync.Mutex // guards the rest
	rng      *rand.Rand
	running  int
	handled  map[string]int // by attempt
	verdicts map[string]int // by attempt

	operations map[string]int // on packages
	operating  bool
	has        map[string]bool // packages
}

func newSDK(w *world, name string) *sdk {
	s := &sdk{
		w: w, name: name, slots: 1 + w.rng.IntN(4), ended: make(chan error, 1), rng: rand.New(rand.NewPCG(w.rng.Uint64(), 0)),
		handled: map[string]int{}, verdicts: map[string]int{}, operations: map[string]int{}, has: map[string]bool{"p@1": true},
	}
	sw, err := worker.New(conn{w, name}, []string{"a", "b", name}, worker.Config{
		Name: name, Tenant: home.Tenant, Concurrency: s.slots, Logger: slog.New(slog.DiscardHandler), MaxBackoff: 2 * time.Second,
		Packages: []worker.Package{{Name: "p", Version: "1"}}, Installer: s, InstallerTimeout: 8 * time.Second,
		Metrics: func(map[string]float64) map[string]float64 { return nil }, // a history is not about its machine
		Hooks:   worker.Hooks{OnVerdict: s.verdict, OnStop: s.stopped},
	})
	if err != nil {
		w.Error(err)
		return s
	}
	sw.HandleDefault(s.handle)
	ctx, quit := context.WithCancel(context.Background())
	s.quit = quit
	go func() { s.ended <- sw.Run(ctx) }()
	return s
}

// attempt identifies an attempt in the maps.
func attempt(t *worker.Task) string { return t.ID + "/" + time.Duration(t.Attempt).String() }

// handle checks that the attempt is new and has a live lease, and then takes its time.
func (s *sdk) handle(ctx context.Context, t *worker.Task) ([]byte, error) {
	s.mu.Lock()
	if s.handled[attempt(t)]++; s.handled[attempt(t)] > 1 {
		s.w.Errorf("%s: attempt %d of %s is handled twice", s.name, t.Attempt, t.ID)
	}
	if s.running++; s.running > s.slots {
		s.w.Errorf("%s: %d handlers run, and there are %d slots", s.name, s.running, s.slots)
	}
	span, how := time.Duration(s.rng.Int64N(int64(4*time.Second))), s.rng.IntN(20)
	if s.rng.IntN(5) == 0 {
		span *= 5
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running--
	}()
	s.checkLease(t)
	if how == 0 {
		t.Progress(0.5, "half", "middle")
	}
	stop := ctx.Done()
	if how == 5 {
		stop = nil // it finishes whatever happens to its lease
	}
	select {
	case <-time.After(span):
	case <-stop:
		return nil, context.Cause(ctx)
	}
	switch how {
	case 1:
		return nil, errors.New("broken")
	case 2:
		return nil, worker.Release(time.Second, "not now")
	case 3:
		if err := t.Confirm(ctx, 0); err == nil {
			s.checkLease(t)
		}
	case 4:
		_ = t.SaveCheckpoint(ctx, []byte("so far"))
	}
	return []byte("done"), nil
}

// checkLease checks that the lease of an attempt is live, or has ended a moment ago.
func (s *sdk) checkLease(t *worker.Task) {
	at := s.w.task(t.ID)
	if at == nil || at.Lease != nil && at.Lease.Attempt == t.Attempt {
		return
	}
	for _, e := range at.Events() {
		if e.Attempt == t.Attempt && e.Type == lease.EventLeaseEnded && time.Since(e.At.Time()) > 2*time.Second {
			s.w.Errorf("%s: attempt %d of %s begins at %v, and its lease has ended: %+v", s.name, t.Attempt, t.ID, time.Now(), e)
		}
	}
}

// verdict checks that each attempt has one verdict.
func (s *sdk) verdict(t *worker.Task, v *lessorv1.ReportVerdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.verdicts[attempt(t)]++; s.verdicts[attempt(t)] > 1 || v.GetVerdict() == lessorv1.Verdict_VERDICT_REJECTED {
		s.w.Errorf("%s: attempt %d of %s: %v", s.name, t.Attempt, t.ID, v)
	}
}

// stopped checks that a lease of which the coordinator has said that it is lost has ended.
func (s *sdk) stopped(t *worker.Task, err error) {
	if granted := s.w.grantOf(t); !granted.IsZero() && granted.After(s.w.calmSince()) {
		s.w.Errorf("%s: there are no faults since %v, and attempt %d of %s of %v is stopped: %v",
			s.name, s.w.calmSince(), t.Attempt, t.ID, granted, err)
	}
	var stop *worker.StopError
	if !errors.As(err, &stop) || !errors.Is(err, worker.ErrLeaseLost) || stop.Reason == lessorv1.Reason_REASON_UNSPECIFIED {
		return
	}
	if at := s.w.task(t.ID); at != nil && at.Lease != nil && at.Lease.Attempt == t.Attempt && stop.Reason != lessorv1.Reason_REASON_CANCEL_TIMEOUT {
		s.w.Errorf("%s: attempt %d of %s is live, and its handler is stopped: %v", s.name, t.Attempt, t.ID, err)
	}
}

// stop drains the worker. good: nothing may be left behind.
func (s *sdk) stop(good bool) {
	s.quit()
	if err := <-s.ended; err != nil && good {
		s.w.Errorf("%s ended with %v", s.name, err)
	}
}

// grantOf returns when an attempt was granted, if its task was not cancelled; else zero.
func (w *world) grantOf(t *worker.Task) (at time.Time) {
	task := w.task(t.ID)
	if task == nil || task.Cancel != nil {
		return at
	}
	for _, e := range task.Events() {
		if e.Attempt == t.Attempt && e.Type == lease.EventGranted {
			at = e.At.Time()
		}
	}
	return at
}

// calmSince returns since when there are no faults.
func (w *world) calmSince() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.healed.IsZero() {
		return time.Now().Add(time.Hour)
	}
	return w.healed
}
