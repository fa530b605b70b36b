package preauth

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Why TLS handshakes fail, as far as it is told apart.
const (
	badClientCertificate = "client_certificate" // it is missing, or its authority is not one of those that are trusted, or it has expired
	otherFailure         = "other"
)

// handshakeLogInterval is how often the log tells of failed handshakes of one reason. Anybody can cause them at any rate.
const handshakeLogInterval = 10 * time.Second

// tlsFailures counts the TLS handshakes that fail, and logs some of them: the caller may see only that its connection ends, and no call of it is ever counted.
type tlsFailures struct {
	total *prometheus.CounterVec
	log   *slog.Logger

	mu   sync.Mutex
	told map[string]toldFailure // by reason
}

type toldFailure struct {
	at      time.Time
	leftOut uint64 // since then
}

func newTLSFailures(log *slog.Logger) *tlsFailures {
	total := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lessor_tls_handshakes_failed_total", Help: "TLS handshakes that failed, by what is wrong: client_certificate, or other.",
	}, []string{"reason"})
	for _, reason := range []string{badClientCertificate, otherFailure} { // rate() needs a first sample of 0
		total.WithLabelValues(reason)
	}
	return &tlsFailures{total: total, log: log, told: map[string]toldFailure{}}
}

// HandshakesFailed returns the metric of the TLS handshakes that failed.
func (lim *ConnLimiter) HandshakesFailed() prometheus.Collector { return lim.failures.total }

// HandshakeFailed is called when a TLS handshake has failed, with the address and the text of the error.
func (lim *ConnLimiter) HandshakeFailed(from, problem string) { lim.failures.add(from, problem) }

func (f *tlsFailures) add(from, problem string) {
	if problem == "EOF" { // a probe of the port
		return
	}
	reason, level := otherFailure, slog.LevelInfo
	if strings.Contains(problem, "tls: failed to verify certificate") || strings.Contains(problem, "tls: client didn't provide a certificate") {
		reason, level = badClientCertificate, slog.LevelWarn
	}
	f.total.WithLabelValues(reason).Inc()
	leftOut, tell := f.turn(reason)
	if !tell {
		level = slog.LevelDebug
	}
	attrs := []slog.Attr{slog.String("peer.address", from), slog.String("reason", reason), slog.String("error", problem)}
	if tell && leftOut > 0 {
		attrs = append(attrs, slog.Uint64("left_out", leftOut))
	}
	f.log.LogAttrs(context.Background(), level, "TLS handshake failed", attrs...)
}

// turn reports whether the log should tell of a failure, and how many before it were left out.
func (f *tlsFailures) turn(reason string) (leftOut uint64, tell bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.told[reason]
	now := time.Now()
	if !last.at.IsZero() && now.Sub(last.at) < handshakeLogInterval {
		last.leftOut++
		f.told[reason] = last
		return 0, false
	}
	f.told[reason] = toldFailure{at: now}
	return last.leftOut, true
}
