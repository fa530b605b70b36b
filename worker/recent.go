package worker

// recentLeases remembers the last maxRecent leases that were dispatched to this worker, so that a
// dispatch that arrives twice starts only one handler (W6).
type recentLeases struct {
	known map[string]bool // whether the worker refused the lease
	order []string
	next  int
}

// add remembers id and reports whether it was new.
func (r *recentLeases) add(id string) bool {
	if _, known := r.known[id]; known {
		return false
	}
	if r.known == nil {
		r.known = make(map[string]bool)
	}
	r.known[id] = false
	if len(r.order) < maxRecent {
		r.order = append(r.order, id)
		return true
	}
	delete(r.known, r.order[r.next])
	r.order[r.next] = id
	r.next = (r.next + 1) % maxRecent
	return true
}

// refuse notes that the worker refused a lease that it remembers.
func (r *recentLeases) refuse(id string) { r.known[id] = true }

// refused reports whether refuse was called for a lease.
func (r *recentLeases) refused(id string) bool { return r.known[id] }
