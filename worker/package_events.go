package worker

import (
	"cmp"
	"maps"
	"slices"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// queueEventLocked lets the writer send an event of a package, unless the worker tells nothing any
// more.
func (w *Worker) queueEventLocked(e *lessorv1.PkgEvent) {
	if !w.mu.packages.givenUp {
		w.mu.outbox.events = append(w.mu.outbox.events, e)
		w.wakeWriter()
	}
}

// restateLocked tells the coordinator the present status of a package, if an event before has told
// another one: one that is late, or one of an operation that was refused and so has changed
// nothing.
func (w *Worker) restateLocked(pkg Package, told lessorv1.PackageStatus) {
	p := w.mu.packages.inventory[pkg]
	switch {
	case p == nil && told == lessorv1.PackageStatus_PACKAGE_STATUS_INSTALLED:
		w.queueEventLocked(&lessorv1.PkgEvent{
			Name: pkg.Name, Version: pkg.Version,
			Status: lessorv1.PackageStatus_PACKAGE_STATUS_UNINSTALLED,
		})
	case p != nil && p.GetStatus() != told:
		w.queueEventLocked(&lessorv1.PkgEvent{
			Name: p.GetName(), Version: p.GetVersion(),
			Status: p.GetStatus(), Detail: p.GetDetail(),
		})
	}
}

// registeredPackagesLocked returns the packages for register. Of the events that wait, only the
// ends of operations have to be told besides.
func (w *Worker) registeredPackagesLocked() []*lessorv1.Package {
	o := &w.mu.outbox
	o.events = slices.DeleteFunc(o.events, func(e *lessorv1.PkgEvent) bool { return !isEnd(e) })
	for _, e := range slices.Clone(o.events) {
		w.restateLocked(Package{Name: e.GetName(), Version: e.GetVersion()}, e.GetStatus())
	}
	return slices.SortedFunc(maps.Values(w.mu.packages.inventory), func(a, b *lessorv1.Package) int {
		return cmp.Or(cmp.Compare(a.GetName(), b.GetName()), cmp.Compare(a.GetVersion(), b.GetVersion()))
	})
}

// takeEventsLocked removes the events that wait, for the writer.
func (w *Worker) takeEventsLocked() (events []*lessorv1.PkgEvent) {
	events, w.mu.outbox.events = w.mu.outbox.events, nil
	if len(events) > 0 {
		w.mu.packages.unacknowledged = true
	}
	return events
}

// eventsAcknowledgedLocked notes that the coordinator may have acknowledged all events that it was
// sent. A drain waits for that.
func (s *session) eventsAcknowledgedLocked() {
	p := &s.w.mu.packages
	if p.unacknowledged &&
		!slices.ContainsFunc(s.link.unacked, func(f unackedFrame) bool { return f.frame.GetPkgEvent() != nil }) {
		p.unacknowledged = false
		s.w.checkDrainedLocked()
	}
}

// suspendEventsLocked takes back the events that the coordinator has not acknowledged, for the next
// stream.
func (s *session) suspendEventsLocked() {
	var lost []*lessorv1.PkgEvent
	for _, f := range s.link.unacked {
		if e := f.frame.GetPkgEvent(); e != nil && !s.w.mu.packages.givenUp {
			lost = append(lost, e)
		}
	}
	s.w.mu.outbox.events = append(lost, s.w.mu.outbox.events...)
	s.w.mu.packages.unacknowledged = false
}

// isEnd reports whether an event ends an operation.
func isEnd(e *lessorv1.PkgEvent) bool {
	switch e.GetStatus() {
	case lessorv1.PackageStatus_PACKAGE_STATUS_INSTALLED, lessorv1.PackageStatus_PACKAGE_STATUS_UNINSTALLED,
		packageFailed:
		return e.GetOperationId() != ""
	}
	return false
}
