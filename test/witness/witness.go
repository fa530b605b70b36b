package witness

import (
	"sync"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Attempt identifies an attempt.
type Attempt struct {
	Task   string
	Number uint32
}

// Witness holds what was seen. It may be used by several goroutines.
type Witness struct {
	mu            sync.Mutex
	seen          map[Attempt]*attemptSeen
	verdictCounts map[lessorv1.Reason]int // verdicts by reason
}

// attemptSeen is what was seen of an attempt.
type attemptSeen struct {
	process  string // in which the handler began
	starts   []time.Time
	stops    []string
	verdicts []lessorv1.Verdict
}

// New makes a witness that has seen nothing.
func New() *Witness {
	return &Witness{seen: map[Attempt]*attemptSeen{}, verdictCounts: map[lessorv1.Reason]int{}}
}

func (w *Witness) see(a Attempt, note func(*attemptSeen)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.seen[a]
	if s == nil {
		s = &attemptSeen{}
		w.seen[a] = s
	}
	note(s)
}

// Start notes that a handler began in a process, at a time of the wall clock, which the coordinator
// shares.
func (w *Witness) Start(process string, a Attempt, at time.Time) {
	w.see(a, func(s *attemptSeen) { s.process, s.starts = process, append(s.starts, at) })
}

// Stop notes that the context of a handler ended early.
func (w *Witness) Stop(a Attempt, cause string) {
	w.see(a, func(s *attemptSeen) { s.stops = append(s.stops, cause) })
}

// Verdict notes the verdict that the worker was told.
func (w *Witness) Verdict(a Attempt, v lessorv1.Verdict, r lessorv1.Reason) {
	w.see(a, func(s *attemptSeen) {
		s.verdicts = append(s.verdicts, v)
		w.verdictCounts[r]++
	})
}

// Open counts the attempts that began in a process and got no verdict.
func (w *Witness) Open(process string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.seen {
		if s.process == process && len(s.verdicts) == 0 {
			n++
		}
	}
	return n
}
