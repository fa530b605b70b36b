package quota

import (
	"maps"
	"time"
)

// account is what one tenant or one credential uses.
type account struct {
	who    Caller
	limits *Limits
	paid   [numRates]time.Time  // when all that was taken is paid back
	used   [numLimits]int       // of the counts
	told   [numLimits]time.Time // when a refusal was news
}

// Bounds of the book's own memory and of its words.
const (
	fewAccounts = 1024
	tellEvery   = time.Minute
)

// touch finds the accounts of a caller: that of the tenant, and then that of the credential, if there is one. The caller holds mu.
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

// idle reports whether an account says nothing that a new one would not.
func (a *account) idle(now time.Time) bool {
	for _, paid := range a.paid {
		if paid.After(now) {
			return false
		}
	}
	return a.used == [numLimits]int{}
}
