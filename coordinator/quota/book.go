package quota

import (
	"slices"
	"sync"
	"time"
)

// Caller names whose limits apply: those of the tenant and, if Credential is not empty, those of
// the credential too.
type Caller struct{ Tenant, Credential string }

// Book counts what all tenants and credentials use. It is safe for concurrent use.
type Book struct {
	limits  resolved
	refused func(Caller, *Error, bool)

	mu       sync.Mutex
	accounts map[Caller]*account // of tenants and credentials that use something, or did lately
	sweepAt  int                 // at this number of accounts, those that use nothing are removed
}

// New returns a book. It calls refused at each refusal; refused must not block. news is true for
// the first refusal of an account by a limit, and then at most once a minute.
func New(cfg Config, refused func(who Caller, e *Error, news bool)) *Book {
	return &Book{limits: cfg.resolve(), refused: refused, accounts: map[Caller]*account{}, sweepAt: fewAccounts}
}

// Spend takes n from a rate. The error is an *Error; then nothing was taken.
func (b *Book) Spend(who Caller, l Limit, n int) error {
	if !b.limited(who, l) {
		return nil
	}
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.touch(who, now)
	for _, a := range all {
		r := a.limits.rate(l)
		if !r.limits() {
			continue
		}
		if wait := r.wait(a.debts[l], now, n); wait > 0 {
			return b.refuse(a, l, wait, now)
		}
	}
	b.charge(all, l, n, now)
	return nil
}

// Charge takes n from a rate for a call that must not be refused here. Later calls of the caller
// then have to wait longer.
func (b *Book) Charge(who Caller, l Limit, n int) {
	if !b.limited(who, l) {
		return
	}
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.charge(b.touch(who, now), l, n, now)
}

// Refund gives back n that Spend took from a rate, for a call that was refused after it.
func (b *Book) Refund(who Caller, l Limit, n int) { b.Charge(who, l, -n) }

func (b *Book) charge(all []*account, l Limit, n int, now time.Time) {
	for _, a := range all {
		if r := a.limits.rate(l); r.limits() {
			a.debts[l] = r.take(a.debts[l], now, n)
		}
	}
}

// limited reports whether a rate limits the caller at all. If none does, nobody needs to wait for
// the lock of the book.
func (b *Book) limited(who Caller, l Limit) bool {
	return b.limits.of(who).rate(l).limits() || b.limits.of(Caller{Tenant: who.Tenant}).rate(l).limits()
}

// Enter adds one to a count until leave is called. With must, it refuses only when twice as many as
// the limit are under way. The error is an *Error; then nothing was counted.
func (b *Book) Enter(who Caller, l Limit, must bool) (leave func(), err error) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.touch(who, now)
	for _, a := range all {
		if most := a.limits.count(l); a.used[l] >= most && (!must || a.used[l]-most >= most) {
			return nil, b.refuse(a, l, countWait, now)
		}
	}
	for _, a := range all {
		a.used[l]++
	}
	return sync.OnceFunc(func() { b.leave(all, l, 1) }), nil
}

func (b *Book) leave(all []*account, l Limit, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range all {
		a.used[l] -= n
	}
}

// EnterSome adds up to n to a count, as many as there is room for, until Leave takes them back. If
// these are fewer than n, the error is an *Error.
func (b *Book) EnterSome(who Caller, l Limit, n int) (entered int, err error) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	all, entered := b.touch(who, now), n
	var full *account
	for _, a := range all {
		if room := max(a.limits.count(l)-a.used[l], 0); room < entered {
			full, entered = a, room
		}
	}
	for _, a := range all {
		a.used[l] += entered
	}
	if full != nil {
		err = b.refuse(full, l, countWait, now)
	}
	return entered, err
}

// Leave takes back n that EnterSome has added.
func (b *Book) Leave(who Caller, l Limit, n int) {
	b.mu.Lock()
	all := b.touch(who, time.Now()) // they are there: an account that uses something is kept
	b.mu.Unlock()
	b.leave(all, l, n)
}

// Exceeds reports whether more than the limit are under way, which is possible if Enter was called
// with must.
func (b *Book) Exceeds(who Caller, l Limit) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.touch(who, time.Now()), func(a *account) bool { return a.exceeds(l) })
}

// RefuseTasks returns the error for a caller whose tenant has used of its Tasks, and no room for as
// many more as it asked for. They are counted elsewhere.
func (b *Book) RefuseTasks(who Caller, used, asked uint64) error {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.touch(who, now)[0] // the tenant, which alone has this limit
	return b.report(a, &Error{
		Limit: Tasks, Of: a.who.scope(), Most: a.limits.text(Tasks), Wait: countWait,
		Used: used, Asked: asked,
	}, now)
}

// Refuse returns the error for a caller that exceeds a count that Enter keeps.
func (b *Book) Refuse(who Caller, l Limit) error {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.touch(who, now)
	at := max(slices.IndexFunc(all, func(a *account) bool { return a.exceeds(l) }), 0)
	return b.refuse(all[at], l, countWait, now)
}

// Most returns the count that a tenant may have.
func (b *Book) Most(tenant string, l Limit) int { return b.limits.of(Caller{Tenant: tenant}).count(l) }

// refuse returns and reports the refusal by one of the accounts.
func (b *Book) refuse(a *account, l Limit, wait time.Duration, now time.Time) error {
	return b.report(a, &Error{Limit: l, Of: a.who.scope(), Most: a.limits.text(l), Wait: wait}, now)
}

// report reports a refusal by an account, and returns it.
func (b *Book) report(a *account, e *Error, now time.Time) error {
	news := now.Sub(a.told[e.Limit]) >= tellEvery
	if news {
		a.told[e.Limit] = now
	}
	b.refused(a.who, e, news)
	return e
}
