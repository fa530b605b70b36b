package main

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lessor-dev/lessor/coordinator/preauth"
	"github.com/lessor-dev/lessor/coordinator/quota"
)

// quotaFlags are the flags for the quotas of tenants and of their credentials (X5).
type quotaFlags struct {
	Quota           map[string]string `placeholder:"LIMIT=VALUE" help:"Quota of each tenant: a rate of calls, submits or frames, such as calls=500/s (also 300/m, 1000/h or 50/d; a bare number is per second), or calls=500/s:2000 with a burst; or a number of sessions, streams, watches, waits or tasks at once, such as tasks=100000; or none. By default sessions=20000, streams=20000, watches=10000 and waits=100000. Repeatable."`
	QuotaCredential map[string]string `placeholder:"LIMIT=VALUE" help:"Quota of each credential, which applies in addition; any limit but tasks; by default none. Repeatable."`
	QuotaTenant     map[string]string `placeholder:"TENANT.LIMIT=VALUE" help:"Quota of one tenant: acme.calls=50/s, or acme.credential.calls=5/s for each of its credentials. Repeatable."`
}

// maxFlags bound the connections that may be open (X5).
type maxFlags struct {
	Connections          int `type:"positive" placeholder:"N" help:"Most connections to both listeners at once (50000, or 500 less than the files that the process may open, or half of these if they are fewer than 1000)."`
	ConnectionsOfAddress int `type:"positive" placeholder:"N" help:"Most connections from one address (half of --max-connections)."`
	HandshakesOfAddress  int `type:"positive" placeholder:"N" help:"Most TLS handshakes over gRPC from one address at a time (100)."`
}

// keptBack is how many of the process's open files connections must not use. They are for the store
// and everything else.
const keptBack = 500

func (f maxFlags) connections() preauth.Connections {
	c := preauth.Connections{
		Most: f.Connections, MostOfPeer: f.ConnectionsOfAddress,
		HandshakesOfPeer: f.HandshakesOfAddress,
	}
	if c.Most == 0 {
		c.Most = connectionsWith(openFiles())
	}
	return c
}

// connectionsWith returns how many connections a process with so many open files has by default. 0
// means the default of the coordinator.
func connectionsWith(files int) int {
	may := roomFor(files)
	if files == 0 || may >= preauth.DefaultConnections {
		return 0
	}
	return may
}

// roomFor returns for how many connections a process with so many open files has room.
func roomFor(files int) int { return max(files-keptBack, files/2, 1) }

// warnFewFiles logs a warning if the process may open too few files for the connections that are
// asked for, or so few that the default is tiny. 0 files means that it is not known.
func (f maxFlags) warnFewFiles(log *slog.Logger, files int) {
	const raise = "raise the limit of open files (ulimit -n, LimitNOFILE)"
	room := roomFor(files)
	switch {
	case files == 0:
	case f.Connections > room:
		log.Warn("--max-connections is more than this process has files for; "+raise,
			"max_connections", f.Connections, "files", files, "room_for", room)
	case f.Connections == 0 && files < 2*keptBack:
		log.Warn("few connections may be open, because this process may open few files; "+raise,
			"max_connections", room, "files", files)
	}
}

// credentialKey stands between the tenant and the name of the limit in a quota for each credential
// of the tenant.
const credentialKey = ".credential"

func (f quotaFlags) read() (c quota.Config, err error) {
	c = quota.Config{Tenants: map[string]quota.Limits{}, Credentials: map[string]quota.Limits{}}
	// each flag is checked by itself: an error about all quotas would not say which flag is wrong
	errs := []error{
		inFlag("quota", readQuotas(&c.Tenant, f.Quota)),
		inFlag("quota-credential", readQuotas(&c.Credential, f.QuotaCredential)),
	}
	errs = append(errs, checkQuotas("quota", quota.Config{Tenant: c.Tenant}),
		checkQuotas("quota-credential", quota.Config{Credential: c.Credential}))
	for _, name := range slices.Sorted(maps.Keys(f.QuotaTenant)) {
		errs = append(errs, inFlag("quota-tenant", readQuotaTenant(&c, name, f.QuotaTenant[name])))
	}
	errs = append(errs, checkQuotas("quota-tenant", quota.Config{Tenants: c.Tenants, Credentials: c.Credentials}))
	if err := errors.Join(errs...); err != nil {
		return quota.Config{}, err
	}
	return c, nil
}

func checkQuotas(flag string, c quota.Config) error { return inFlag(flag, c.Validate()) }

func readQuotas(l *quota.Limits, from map[string]string) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(from)) {
		if err := setQuota(l, name, from[name]); err != nil {
			errs = append(errs, fmt.Errorf("%s=%s: %w", name, from[name], err))
		}
	}
	return errors.Join(errs...)
}

// readQuotaTenant reads a quota of one tenant, or of each credential of the tenant.
func readQuotaTenant(c *quota.Config, name, value string) error {
	at := max(strings.LastIndexByte(name, '.'), 0)
	of := c.Tenants
	tenant, each := strings.CutSuffix(name[:at], credentialKey)
	if each {
		of = c.Credentials
	}
	if tenant == "" {
		return fmt.Errorf("%q is not of the form TENANT.LIMIT, such as acme.calls", name)
	}
	l := of[tenant]
	if err := setQuota(&l, name[at+1:], value); err != nil {
		return fmt.Errorf("%s=%s: %w", name, value, err)
	}
	of[tenant] = l
	return nil
}

func setQuota(l *quota.Limits, name, value string) error {
	var names []string
	for _, which := range quota.All() {
		if which.String() == name {
			return setLimit(l, which, value)
		}
		names = append(names, which.String())
	}
	return fail(exitUsage, "", "unknown limit %q; the limits are %s", name, strings.Join(names, ", "))
}

func setLimit(l *quota.Limits, which quota.Limit, value string) error {
	switch {
	case value == "none":
		l.Set(which, quota.Rate{PerSecond: math.Inf(1)}, quota.Unlimited)
	case which.IsRate():
		r, ok := readRate(value)
		if !ok {
			return fail(exitUsage, "", "%q is not a rate such as 500/s or 300/m, or 500/s:2000 with a burst", value)
		}
		l.Set(which, r, 0)
	default:
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return fail(exitUsage, "", "%q is not a whole number above 0", value)
		}
		l.Set(which, quota.Rate{}, n)
	}
	return nil
}

// readRate reads a rate, with or without a burst.
func readRate(value string) (r quota.Rate, ok bool) {
	text, burst, bursts := strings.Cut(value, ":")
	var perSecond rate
	if perSecond.UnmarshalText([]byte(text)) != nil || perSecond == 0 {
		return r, false
	}
	r.PerSecond = float64(perSecond)
	if !bursts {
		return r, true
	}
	n, err := strconv.ParseUint(burst, 10, 32)
	r.Burst = uint32(n)
	return r, err == nil && n > 0
}
