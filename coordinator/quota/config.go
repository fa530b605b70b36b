package quota

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Config says what tenants and credentials may use. The zero value has only limits that are far
// beyond what a single user needs.
type Config struct {
	// Tenant holds the limits of each tenant. Credential holds those of each credential, which
	// apply in addition to those of its tenant.
	Tenant, Credential Limits
	// Tenants holds other limits for single tenants, by tenant. Credentials holds other limits for
	// each credential of single tenants, by tenant. What they leave zero is taken from Tenant and
	// Credential.
	Tenants, Credentials map[string]Limits
}

// Validate reports the limits that are out of their range.
func (c *Config) Validate() error {
	errs := slices.Concat(c.Credential.validateCredential(), c.Tenant.validate())
	for _, tenant := range slices.Sorted(maps.Keys(c.Tenants)) {
		own := c.Tenants[tenant]
		errs = append(errs, under(fmt.Sprintf("tenant %q", tenant), own.validate())...)
	}
	for _, tenant := range slices.Sorted(maps.Keys(c.Credentials)) {
		own := c.Credentials[tenant]
		errs = append(errs, under(fmt.Sprintf("credentials of tenant %q", tenant), own.validateCredential())...)
	}
	return errors.Join(errs...)
}

// under says of errors what they are about.
func under(what string, errs []error) []error {
	for i, err := range errs {
		errs[i] = fmt.Errorf("%s: %w", what, err)
	}
	return errs
}

var (
	tenantDefaults = Limits{
		Sessions: defaultSessions,
		Streams:  defaultStreams,
		Watches:  defaultWatches,
		Waits:    defaultWaits,
		Tasks:    Unlimited,
	}
	credentialDefaults = Limits{
		Sessions: Unlimited,
		Streams:  Unlimited,
		Watches:  Unlimited,
		Waits:    Unlimited,
		Tasks:    Unlimited,
	}
)

// resolved are the limits in force.
type resolved struct {
	tenant, credential   *Limits
	tenants, credentials map[string]*Limits // by tenant; only those that have their own
}

func (c *Config) resolve() resolved {
	r := resolved{
		tenant: c.Tenant.or(&tenantDefaults), credential: c.Credential.or(&credentialDefaults),
		tenants: map[string]*Limits{}, credentials: map[string]*Limits{},
	}
	for tenant, l := range c.Tenants {
		r.tenants[tenant] = l.or(r.tenant)
	}
	for tenant, l := range c.Credentials {
		r.credentials[tenant] = l.or(r.credential)
	}
	return r
}

// of returns the limits of a tenant, or of a credential if the caller names one.
func (r *resolved) of(who Caller) *Limits {
	own, others := r.tenants[who.Tenant], r.tenant
	if who.Credential != "" {
		own, others = r.credentials[who.Tenant], r.credential
	}
	if own != nil {
		return own
	}
	return others
}
