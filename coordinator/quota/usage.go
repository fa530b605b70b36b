package quota

import "time"

// Use is a limit, and how much of it is used.
type Use struct {
	Limit Limit
	Of    string // "tenant" or "credential"
	Most  string // as settings have it
	Used  int    // of a count; 0 for rates, and for what others count
}

// Usage shows the limits of a caller, those of the tenant first.
func (b *Book) Usage(who Caller) []Use {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []Use
	for _, a := range b.touch(who, time.Now()) {
		for _, l := range All() {
			if l != Tasks || a.who.Credential == "" {
				all = append(all, Use{Limit: l, Of: a.who.scope(), Most: a.limits.text(l), Used: a.used[l]})
			}
		}
	}
	return all
}

func (who Caller) scope() string {
	if who.Credential != "" {
		return "credential"
	}
	return "tenant"
}
