package quota

import (
	"maps"
	"time"
)

// account holds what one tenant or one credential uses.
type account struct {
	who    Caller
	limits *Limits
	debts  [numRates]Debt       // of each rate: what was taken and is not paid back
	used   [numLimits]int       // of each count: how many are under way
	told   [numLimits]time.Time // when a refusal by this limit was last reported as news
}

// Bounds of the memory of the book, and of how often it reports refusals as news.
const (
	fewAccounts = 1024
	tellEvery   = time.Minute
)

// touch returns the accounts of a caller: first that of the tenant, then that of the credential, if
// there is one. The caller holds mu.
func (b *Book) touch(who Caller, now time.Time) []*account {
	if len(b.accounts) >= b.sweepAt {
		maps.DeleteFunc(b.accounts, func(_ Caller, a *account) bool { return a.idle(now) })
		b.sweepAt = max(fewAccounts, 2*len(b.accounts))
	}
	all := []*account{b.account(Caller{Tenant: who.Tenant})}
	if who.Credential != "" {
		all = append(all, b.account(who))
	}
	return all
}

func (b *Book) account(who Caller) *account {
	a := b.accounts[who]
	if a == nil {
		a = &account{who: who, limits: b.limits.of(who)}
		b.accounts[who] = a
	}
	return a
}

func (a *account) exceeds(l Limit) bool { return a.used[l] > a.limits.count(l) }

// idle reports whether an account can be forgotten, because it uses nothing.
func (a *account) idle(now time.Time) bool {
	for _, d := range a.debts {
		if d.Owed(now) > 0 {
			return false
		}
	}
	return a.used == [numLimits]int{}
}
