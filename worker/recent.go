package worker

// recentLeases remembers the last maxRecent leases that were dispatched to this worker, so that a dispatch that arrives twice starts only
// one handler (W6).
type recentLeases struct {
	known map[string]struct{}
	order []string
	next  int
}

// add remembers id and reports whether it was new.
func (r *recentLeases) add(id string) bool {
	if _, known := r.known[id]; known {
		return false
	}
	if r.known == nil {
		r.known = make(map[string]struct{})
	}
	r.known[id] = struct{}{}
	if len(r.order) < maxRecent {
		r.order = append(r.order, id)
		return true
	}
	delete(r.known, r.order[r.next])
	r.order[r.next] = id
	r.next = (r.next + 1) % maxRecent
	return true
}
