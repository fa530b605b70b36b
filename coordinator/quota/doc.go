// Package quota counts what tenants and their credentials use, and refuses what is more than they may (X5). It knows nothing of the wire, of
// tasks or of how a refusal is told.
//
// There are two kinds of limits. A rate bounds what begins in time; a count bounds what is under way at once. Each holds for the tenant as a
// whole and, with numbers of its own, for each of the tenant's credentials: what is refused by one of the two is taken from neither.
//
// What may never be refused is not asked about here: see coordinator/gate/quotas.go.
package quota
