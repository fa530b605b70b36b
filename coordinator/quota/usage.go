package quota

// Use is a limit of a caller, and how much of it is used.
type Use struct {
	Limit Limit
	Of    string // "tenant" or "credential"
	Most  string // the limit, in the form that settings use
	Used  int    // for a count; 0 for a rate, and for Tasks, which the engine counts
}

// Usage returns the limits of a caller and of its tenant, those of the tenant first. It makes no
// account: the caller may be one of many that use nothing.
func (b *Book) Usage(who Caller) []Use {
	all := b.usage(Caller{Tenant: who.Tenant})
	if who.Credential != "" {
		all = append(all, b.usage(who)...)
	}
	return all
}

func (b *Book) usage(of Caller) (all []Use) {
	var used [numLimits]int
	b.mu.Lock()
	if a := b.accounts[of]; a != nil {
		used = a.used
	}
	b.mu.Unlock()
	limits := b.limits.of(of)
	for _, l := range All() {
		if l != Tasks || of.Credential == "" {
			all = append(all, Use{Limit: l, Of: of.scope(), Most: limits.text(l), Used: used[l]})
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
