// Package quota counts what tenants and their credentials use, and refuses what is more than they may use (X5). It knows nothing of the
// wire, of tasks, or of how callers are told of a refusal.
//
// There are two kinds of limits. A rate bounds how many may begin in a given time; a count bounds how many are under way at once. Each
// applies to a tenant as a whole and, with separate numbers, to each credential of the tenant. What one of the two refuses is taken from
// neither.
//
// The package is not asked about what may never be refused: see coordinator/gate/quotas.go.
package quota
