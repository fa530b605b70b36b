package limits

import (
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// ruledQueue is a queue whose settings were changed.
type ruledQueue struct {
	placeOf
	name string
}

// rules has what was set on a queue, and when.
type rules struct {
	paused, inflight setting
}

// setting is a setting of a queue, or what an operator has asked of a worker, or it of itself.
type setting struct {
	changes int // calls that change it, since the beginning
	open    int // those without an answer
	now     uint32
	since   time.Time // from when on it surely has the value now; zero: it may have any
	spans   []span
}

// span is a time in which a setting had a value for certain.
type span struct {
	from, to time.Time
	value    uint32
}

// ruling notes that a call changes settings of a queue. answered must be called with its answer.
func (b *book) ruling(place placeOf, req *lessorv1.UpdateQueueRequest) (answered func(error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := ruledQueue{place, req.GetName()}
	if b.ruled[q] == nil {
		b.ruled[q] = &rules{}
	}
	paused, inflight := func(error) {}, func(error) {}
	if req.Paused != nil {
		value := uint32(0)
		if req.GetPaused() {
			value = 1
		}
		paused = b.ruled[q].paused.change(value)
	}
	if req.MaxInflight != nil {
		inflight = b.ruled[q].inflight.change(req.GetMaxInflight())
	}
	return func(err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		paused(err)
		inflight(err)
	}
}

// change begins a change to a value.
func (s *setting) change(value uint32) (answered func(error)) {
	s.end()
	s.open++
	s.changes++
	n := s.changes
	return func(err error) {
		if s.open--; err == nil && s.open == 0 && n == s.changes {
			s.now, s.since = value, time.Now()
		}
	}
}

// is notes that the setting surely has a value from now on.
func (s *setting) is(value uint32) {
	s.end()
	s.now, s.since = value, time.Now()
}

// end notes that the setting may have any value from now on.
func (s *setting) end() {
	if !s.since.IsZero() {
		s.spans = append(s.spans, span{s.since, time.Now(), s.now})
	}
	s.since = time.Time{}
	s.changes++
}

// at returns the value at a time; ok is false if it is not known.
func (s *setting) at(t time.Time) (value uint32, ok bool) {
	for _, p := range s.spans {
		if t.After(p.from) && t.Before(p.to) {
			return p.value, true
		}
	}
	return s.now, !s.since.IsZero() && t.After(s.since)
}

// checkRules checks a grant against what was set on its queue: it is not paused, and has no more
// than max_inflight live leases, inflight with this one (T13).
func (b *book) checkRules(place placeOf, t *lessorv1.Task, e *lessorv1.HistoryEvent, inflight int) {
	r := b.ruled[ruledQueue{place, t.GetSpec().GetQueue()}]
	if r == nil {
		return
	}
	at := e.GetAt().AsTime()
	if paused, ok := r.paused.at(at); ok && paused == 1 {
		b.w.problem("T13: attempt %d of %s was granted at %v, while its queue was paused", e.GetAttempt(), t.GetTaskId(), at)
	}
	if most, ok := r.inflight.at(at); ok && most > 0 && inflight > int(most) {
		b.w.problem("T13: attempt %d of %s was granted at %v, and then %d leases of its queue lived; max_inflight was %d",
			e.GetAttempt(), t.GetTaskId(), at, inflight, most)
	}
}
