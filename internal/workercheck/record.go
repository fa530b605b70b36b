package workercheck

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// way is how the worker speaks.
type way string

const (
	stream way = "the session stream"
	calls  way = "gRPC calls"
	web    way = "HTTP"
)

// record is what the worker said, and what it was told. Its methods may be called by several
// goroutines.
type record struct {
	began time.Time

	mu       sync.Mutex
	way      way
	attempts []*attempt
	leases   map[string]*attempt
	asked    []time.Time              // when it asked for work, or opened a stream
	streams  int                      // that are open, and on which it has not said goodbye
	hello    *lessorv1.SessionRequest // its newest handshake; nil: none
	known    map[string]bool          // the instances of its handshakes
	queues   []string                 // from which it has last asked for work
	refusal  string                   // the last error that it was told
	resets   []string                 // the codes with which its sessions were ended
	lines    []string
	changed  chan struct{} // closed with the next change
}

func newRecord() *record {
	return &record{began: time.Now(), leases: map[string]*attempt{}, known: map[string]bool{}, changed: make(chan struct{})}
}

// note adds a line to the transcript.
func (r *record) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(format, args...)
}

// add is note for those who hold the lock. Every change of the record has its line, so that waiters
// look at all of them.
func (r *record) add(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf("%7.3f  %s", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...)))
	close(r.changed)
	r.changed = make(chan struct{})
}

// transcript returns the lines so far.
func (r *record) transcript() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

// ask: the worker asks for work.
func (r *record) ask(by way, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.way = cmp.Or(r.way, by)
	r.asked = append(r.asked, time.Now())
	r.add("worker: %s", what)
}

// grant: the worker is told of an attempt. One that it knows is not granted again.
func (r *record) grant(task, lease string, number uint32) *attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.leases[lease]; known != nil {
		r.add("coordinator: %s, once more", known)
		return known
	}
	a := &attempt{task: task, number: number, granted: time.Now()}
	r.attempts = append(r.attempts, a)
	r.leases[lease] = a
	r.add("coordinator: here is %s", a)
	return a
}

// ack: the worker acknowledges the dispatch of attempts.
func (r *record) ack(of []*attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range of {
		a.acked = true
		r.add("worker: ack of %v", a)
	}
}

// opens: the worker opens a stream.
func (r *record) opens() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams++
	r.add("worker: opens a stream")
}

// leaves: a stream is over, for the worker at least.
func (r *record) leaves() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams--
	r.add("(open streams: %d)", r.streams)
}

// say: the worker says something about an attempt. The lease may be empty if the number is not 0.
// It returns nil if it knows no such attempt.
func (r *record) say(k kind, task, lease string, number uint32, content, category string) *word {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.leases[lease]
	if lease == "" {
		if i := slices.IndexFunc(r.attempts, func(a *attempt) bool { return a.task == task && a.number == number }); i >= 0 {
			a = r.attempts[i]
		}
	}
	if a == nil {
		r.add("worker: %s of %s, of which it was not told", k, task)
		return nil
	}
	w := &word{kind: k, attempt: a, at: time.Now(), content: content, category: category}
	a.words = append(a.words, w)
	r.add("worker: %v", w)
	return w
}

// unanswered returns what the worker said that a verdict on a stream is about: the oldest word
// without an answer, or else the newest one whose answer was lost, because the coordinator sends it
// again on the next stream. It returns nil if there is none.
func (r *record) unanswered(lease string, k kind) *word {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.leases[lease]
	if a == nil {
		return nil
	}
	var lost *word
	for _, w := range a.words {
		switch {
		case w.kind != k:
		case w.verdict == lessorv1.Verdict_VERDICT_UNSPECIFIED && !w.lost:
			return w
		case w.lost:
			lost = w
		}
	}
	return lost
}

// answer: the worker is told a verdict, or would be, if the answer was not lost. Without a verdict:
// why there is none.
func (r *record) answer(w *word, v lessorv1.Verdict, reason, lost string) {
	if w == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w.verdict, w.reason, w.told, w.lost = v, reason, time.Now(), lost != ""
	said := strings.TrimPrefix(v.String(), "VERDICT_")
	if v == lessorv1.Verdict_VERDICT_UNSPECIFIED {
		said = "no verdict"
	}
	if reason != "" && reason != "NONE" {
		said += " " + reason
	}
	if lost != "" {
		said += ": " + lost
	} else if v == lessorv1.Verdict_VERDICT_CANCELLED {
		w.attempt.lose()
	}
	r.add("coordinator: %v: %s", w, said)
}

// cancel: the worker is told without having asked that it lost a lease.
func (r *record) cancel(lease, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.leases[lease]; a != nil {
		a.lose()
		r.add("coordinator: cancel of %s: %s", a, reason)
	}
}

// stop: the worker is told to stop within a grace. The attempt may be nil: one that it does not
// know.
func (r *record) stop(a *attempt, grace time.Duration) {
	if a == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.stopping.IsZero() {
		a.stopping = time.Now()
	}
	r.add("coordinator: cancel of %v, grace %v", a, grace)
}

// reset: the worker is told that its session ends.
func (r *record) reset(code, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resets = append(r.resets, code)
	r.add("coordinator: reset %s: %s", code, reason)
}

// kick: the worker is told that all its leases have ended.
func (r *record) kick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.attempts {
		a.lose()
	}
	r.add("coordinator: all leases have ended")
}

// handshake: the worker begins a session.
func (r *record) handshake(m *lessorv1.SessionRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hello = proto.CloneOf(m)
	instance := m.GetHandshake().GetWorker().GetInstanceId()
	switch {
	case instance != "":
	case m.GetHandshake().GetResume() != nil:
		return // that of the session
	default: // each of them is another one
		instance = fmt.Sprintf("without an id, %d", len(r.known))
	}
	r.known[instance] = true
}

// takesFrom: the worker asks for work from the queues.
func (r *record) takesFrom(queues []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queues = queues
}

// refuse: the worker is told an error.
func (r *record) refuse(of string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusal = fmt.Sprintf("%s: %v", of, err)
	r.add("coordinator: %s", r.refusal)
}

// ofLease returns the attempt with the lease; nil: the worker was told of none.
func (r *record) ofLease(lease string) (a *attempt) {
	r.look(func() { a = r.leases[lease] })
	return a
}

// any reports whether the worker was told of an attempt that is so.
func (r *record) any(so func(*attempt) bool) (is bool) {
	r.look(func() { is = slices.ContainsFunc(r.attempts, so) })
	return is
}

// heard reports whether the worker has said a thing of the kind.
func (r *record) heard(k kind) (is bool) {
	r.look(func() {
		is = slices.ContainsFunc(r.attempts,
			func(a *attempt) bool { return slices.ContainsFunc(a.words, func(w *word) bool { return w.kind == k }) })
	})
	return is
}

// toldOf returns when the worker was told the verdict of a word.
func (r *record) toldOf(w *word) (at time.Time) {
	r.look(func() { at = w.told })
	return at
}

// gone returns when the worker was told that a lease is lost.
func (r *record) gone(a *attempt) (at time.Time) {
	r.look(func() { at = a.lost })
	return at
}

// spoken returns how the worker speaks.
func (r *record) spoken() (by way) {
	r.look(func() { by = r.way })
	return by
}

// look calls see while nothing changes.
func (r *record) look(see func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	see()
}

// of returns the attempts of a task. The caller is within look.
func (r *record) of(task string) []*attempt {
	return slices.DeleteFunc(slices.Clone(r.attempts), func(a *attempt) bool { return a.task != task })
}

// until waits until done returns true, which is called while nothing changes, and returns true; or
// false when stop is closed.
func (r *record) until(stop <-chan struct{}, done func() bool) bool {
	for {
		r.mu.Lock()
		is, changed := done(), r.changed
		r.mu.Unlock()
		if is {
			return true
		}
		select {
		case <-changed:
		case <-stop:
			return false
		}
	}
}
