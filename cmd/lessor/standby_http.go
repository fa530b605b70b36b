package main

import (
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lessor-dev/lessor/internal/words"
	"github.com/lessor-dev/lessor/lease"
)

// copyState is what a standby tells of itself over HTTP. Its zero value is that of one that has not
// tried yet.
type copyState struct {
	mu       sync.Mutex
	follows  bool       // a coordinator has accepted the standby
	complete bool       // the copy is complete and follows
	copying  int64      // size of the store that is being copied; 0: none is
	received int64      // bytes of this copy
	problem  string     // why the standby does not follow; empty: it does, or has not tried
	written  lease.Wall // when the coordinator wrote the newest commit of the complete copy; 0: there is none

	copies, bytes int64 // since the start: stores that were sent, and all that was received
}

func (s *copyState) set(change func(*copyState)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// found notes of when the complete copy is that is there before a stream; 0: not known.
func (s *copyState) found(written lease.Wall) {
	if written != 0 {
		s.set(func(s *copyState) { s.written = written })
	}
}

// begin notes the begin of a stream. The one before may have ended by its age only, and then the
// copy that was complete still is.
func (s *copyState) begin(isCopy bool, size int64) {
	s.set(func(s *copyState) {
		s.follows, s.problem = true, ""
		if isCopy {
			s.complete, s.copying, s.received = false, max(size, 1), 0
			s.copies++
		}
	})
}

func (s *copyState) receive(n int64) {
	s.set(func(s *copyState) {
		s.bytes += n
		s.received += n
	})
}

// acknowledge notes that everything up to a commit is durable, which the coordinator wrote at that
// time. It may have come with a stream that has ended since.
func (s *copyState) acknowledge(written lease.Wall) {
	s.set(func(s *copyState) { s.complete, s.copying, s.written = s.follows, 0, written })
}

// lose notes why the standby does not follow any more.
func (s *copyState) lose(problem string) {
	s.set(func(s *copyState) { s.follows, s.complete, s.problem = false, false, problem })
}

// readiness returns the HTTP status of /readyz and a text for people. A standby is ready once the
// copy is complete and follows.
func (s *copyState) readiness() (code int, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.complete:
		return http.StatusOK, "ready: the copy is complete and follows; its last commit came at " + s.written.Time().Format(lastCommitForm)
	case s.problem != "":
		text = s.problem
	case s.copying > 0:
		text = fmt.Sprintf("the store is being copied; %s of about %s have come",
			words.Bytes(uint64(s.received)), words.Bytes(uint64(s.copying)))
	case s.follows:
		text = "the copy catches up"
	default:
		text = "it does not follow yet"
	}
	return http.StatusServiceUnavailable, "not ready: " + text
}

// gauges returns the metrics of a standby.
func (s *copyState) gauges() []prometheus.Collector {
	locked := func(read func() float64) func() float64 {
		return func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return read()
		}
	}
	gauge := func(name, help string, read func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, locked(read))
	}
	counter := func(name, help string, n *int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help},
			locked(func() float64 { return float64(*n) }))
	}
	return []prometheus.Collector{
		gauge("lessor_standby_complete", "1 while the copy is complete and follows.", func() float64 {
			if s.complete {
				return 1
			}
			return 0
		}),
		gauge("lessor_standby_last_commit_timestamp_seconds", "When the coordinator wrote the newest commit of the complete copy.", func() float64 {
			if s.written == 0 {
				return math.NaN()
			}
			return float64(s.written) / float64(time.Second)
		}),
		counter("lessor_standby_copies_total", "How often the coordinator began to send the whole store.", &s.copies),
		counter("lessor_standby_received_bytes_total", "Bytes of the records that the coordinator sent.", &s.bytes),
	}
}

// pages serves /metrics, /healthz (is the process alive?) and /readyz (is the copy complete, and
// does it follow?).
func (s *copyState) pages() http.Handler {
	mux := monitoringPages(s.gauges()...)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		code, text := s.readiness()
		answerText(w, code, text)
	})
	return mux
}
