// Package quota counts what tenants and their credentials use, and refuses use above their limits
// (X5). It knows nothing of the wire, of tasks, or of the form in which callers get a refusal.
//
// There are two kinds of limits. A rate bounds how many may begin in a given time. A count bounds
// how many are under way at once. Each applies to a tenant as a whole and, with separate numbers,
// to each credential of the tenant. If one of the two refuses, nothing is charged to the other.
//
// Calls that must never be refused do not use this package, see coordinator/gate/quotas.go.
package quota
