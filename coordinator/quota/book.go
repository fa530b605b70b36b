package quota

import (
	"slices"
	"sync"
	"time"
)

// Caller is whose limits count. Without a credential those of the tenant do alone.
type Caller struct{ Tenant, Credential string }

// Book knows what everyone uses. It is safe for concurrent use.
type Book struct {
	limits  resolved
	refused func(Caller, *Error, bool)

	mu       sync.Mutex
	accounts map[Caller]*account // of tenants and credentials that use something, or did lately
	sweepAt  int                 // how many there may be before those that use nothing are looked for
}

// New makes a book. refused is called at each refusal, and must not block; its last argument is true at the first one of this caller and limit in a
// minute.
func New(cfg Config, refused func(who Caller, e *Error, news bool)) *Book {
	return &Book{limits: cfg.resolve(), refused: refused, accounts: map[Caller]*account{}, sweepAt: fewAccounts}
}

// Spend takes n of a rate. The error is an *Error; then nothing was taken.
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
		if wait := r.wait(a.paid[l], now, n); wait > 0 {
			return b.refuse(a, l, wait, now)
		}
	}
	b.charge(all, l, n, now)
	return nil
}

// Charge takes n of a rate from who may not be refused: what is refused later waits the longer for it.
func (b *Book) Charge(who Caller, l Limit, n int) {
	if !b.limited(who, l) {
		return
	}
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.charge(b.touch(who, now), l, n, now)
}

func (b *Book) charge(all []*account, l Limit, n int, now time.Time) {
	for _, a := range all {
		if r := a.limits.rate(l); r.limits() {
			a.paid[l] = r.take(a.paid[l], now, n)
		}
	}
}

// limited reports whether there is a rate at all: where there is none, nobody waits for the book.
func (b *Book) limited(who Caller, l Limit) bool {
	return b.limits.of(who).rate(l).limits() || b.limits.of(Caller{Tenant: who.Tenant}).rate(l).limits()
}

// Enter counts one more that is under way, until leave is called. Who must come in may do so until there are twice as many as the limit says. The error
// is an *Error; then nothing was counted.
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
	return sync.OnceFunc(func() { b.leave(all, l) }), nil
}

func (b *Book) leave(all []*account, l Limit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range all {
		a.used[l]--
	}
}

// Exceeds reports whether more came in than the limit says, since they had to.
func (b *Book) Exceeds(who Caller, l Limit) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.touch(who, time.Now()), func(a *account) bool { return a.exceeds(l) })
}

// Refuse is the refusal of who would exceed a count: one that has come in by Enter, or one that others keep.
func (b *Book) Refuse(who Caller, l Limit) error {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.touch(who, now)
	at := max(slices.IndexFunc(all, func(a *account) bool { return a.exceeds(l) }), 0)
	return b.refuse(all[at], l, countWait, now)
}

// Most is how many a tenant may have.
func (b *Book) Most(tenant string, l Limit) int { return b.limits.of(Caller{Tenant: tenant}).count(l) }

// refuse makes the refusal by one of the accounts.
func (b *Book) refuse(a *account, l Limit, wait time.Duration, now time.Time) error {
	e := &Error{Limit: l, Of: a.who.scope(), Most: a.limits.text(l), Wait: wait}
	news := now.Sub(a.told[l]) >= tellEvery
	if news {
		a.told[l] = now
	}
	b.refused(a.who, e, news)
	return e
}
