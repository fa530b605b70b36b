package gate

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/refusal"
)

// Reasons for which a credential is refused beside the problems of package auth.
const (
	noCertificate = "no_certificate"
	badTaskToken  = "task_token" // of a callback
)

// newRefused returns the metric of the refused credentials.
func newRefused() *prometheus.CounterVec {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lessor_credentials_refused_total",
		Help: "Calls and HTTP requests that were refused because of their credential, by what is wrong with it.",
	}, []string{"reason"})
	for _, p := range auth.Problems() { // rate() needs a first sample of 0
		refused.WithLabelValues(string(p))
	}
	refused.WithLabelValues(noCertificate)
	refused.WithLabelValues(badTaskToken)
	return refused
}

// Refused returns the metric of the credentials that were refused.
func (g *Gate) Refused() prometheus.Collector { return g.refused }

// failed counts a call that failed with err because of its credential, and returns the status for
// it when it may be answered; see preauth.Attempts.
func (g *Gate) failed(ctx context.Context, err error) error {
	reason := badTaskToken
	if bad, ok := errors.AsType[*auth.Error](err); ok {
		reason = string(bad.Problem)
	} else if errors.Is(err, refusal.ErrNoCertificate) {
		reason = noCertificate
	}
	g.refused.WithLabelValues(reason).Inc()
	return g.attempts.Failed(ctx, err)
}
