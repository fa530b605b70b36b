package preauth

import (
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Why TLS handshakes fail, as far as it is told apart.
const (
	// it is missing, or its authority is not one of those that are trusted, or it has expired
	badClientCertificate = "client_certificate"
	otherFailure         = "other"
)

// tlsFailures counts the TLS handshakes that fail, and logs some of them: the caller may see only
// that its connection ends, and no call of it is ever counted.
type tlsFailures struct {
	total *prometheus.CounterVec
	log   *pacedLog
}

func newTLSFailures(log *pacedLog) *tlsFailures {
	total := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lessor_tls_handshakes_failed_total",
		Help: "TLS handshakes that failed, by what is wrong: client_certificate, or other.",
	}, []string{"reason"})
	for _, reason := range []string{badClientCertificate, otherFailure} { // rate() needs a first sample of 0
		total.WithLabelValues(reason)
	}
	return &tlsFailures{total: total, log: log}
}

// HandshakesFailed returns the metric of the TLS handshakes that failed.
func (lim *ConnLimiter) HandshakesFailed() prometheus.Collector { return lim.failures.total }

// HandshakeFailed is called when a TLS handshake has failed, with the address and the text of the
// error.
func (lim *ConnLimiter) HandshakeFailed(from, problem string) { lim.failures.add(from, problem) }

func (f *tlsFailures) add(from, problem string) {
	if problem == "EOF" { // a probe of the port
		return
	}
	reason, level := otherFailure, slog.LevelInfo
	if strings.Contains(problem, "tls: failed to verify certificate") ||
		strings.Contains(problem, "tls: client didn't provide a certificate") {
		reason, level = badClientCertificate, slog.LevelWarn
	}
	f.total.WithLabelValues(reason).Inc()
	f.log.tell(level, "TLS handshake failed",
		reason, slog.String("peer.address", from), slog.String("reason", reason), slog.String("error", problem))
}
