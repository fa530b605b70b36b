package coordinator

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
)

// newQuotas returns the book of quotas, and a metric that counts refusals. Refusals by one limit are logged at most once a minute, so that a
// flood of calls does not fill the log.
func newQuotas(cfg *Config) (*quota.Book, prometheus.Collector) {
	refusals := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lessor_quota_refusals_total", Help: "Refusals because a quota was used up, by limit and by whose quota it is.",
	}, []string{"limit", "of"})
	for _, l := range quota.All() { // rate() needs a first sample of 0
		refusals.WithLabelValues(l.String(), "tenant")
		refusals.WithLabelValues(l.String(), "credential")
	}
	return quota.New(cfg.Quotas, func(who quota.Caller, e *quota.Error, news bool) {
		refusals.WithLabelValues(e.Limit.String(), e.Of).Inc()
		if news {
			cfg.Logger.Warn("quota used up",
				"tenant", who.Tenant, "credential", who.Credential, "limit", e.Limit.String(), "of", e.Of, "value", e.Most, "code", refusal.QuotaCode(e.Limit))
		}
	}), refusals
}
