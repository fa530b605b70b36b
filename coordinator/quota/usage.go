package quota

import "time"

// Use is a limit of a caller, and how much of it is used.
type Use struct {
	Limit Limit
	Of    string // "tenant" or "credential"
	Most  string // the limit, in the form that settings use
	Used  int    // for a count; 0 for a rate, and for Tasks, which the engine counts
}

// Usage returns the limits of a caller and of its tenant, those of the tenant first.
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
