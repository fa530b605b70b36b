package coordinator

import (
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
)

// newQuotas returns the book of quotas. It logs refusals by one limit at most once a minute, so
// that a flood of calls does not fill the log.
func newQuotas(cfg *Config, m *metrics) *quota.Book {
	return quota.New(cfg.Quotas, func(who quota.Caller, e *quota.Error, news bool) {
		m.quotaRefusals.WithLabelValues(e.Limit.String(), e.Of).Inc()
		if news {
			cfg.Logger.Warn("quota used up",
				"tenant", who.Tenant, "credential", who.Credential, "limit", e.Limit.String(), "of", e.Of,
				"value", e.Most, "code", refusal.QuotaCode(e.Limit))
		}
	})
}
