package session

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/worker"
)

// This file has the packages of the random histories (W13): operators who have workers install and
// remove some, peers that tell what became of that, or something else, installers of workers of the
// SDK, and the part of the book that checks what comes of it.

// packageNames and packageVersions are those of the packages of a history.
var packageNames, packageVersions = []string{"p", "q"}, []string{"1", "2"}

// allPackages returns the packages of a history, all of them with a status.
func allPackages(status lessorv1.PackageStatus) map[string]lessorv1.PackageStatus {
	all := map[string]lessorv1.PackageStatus{}
	for _, name := range packageNames {
		for _, version := range packageVersions {
			all[lease.PackageID(name, version)] = status
		}
	}
	return all
}

// orders lets an operator have workers install or remove a package, perhaps in an operation that
// there was before.
func (w *world) orders() {
	o := PackageOrder{Name: pick(w, packageNames...), Version: pick(w, packageVersions...), Remove: w.one(3)}
	o.Operation = fmt.Sprint("o", len(w.given))
	if len(w.given) > 0 && w.one(3) {
		earlier := pick(w, w.given[max(0, len(w.given)-6):]...)
		if o.Operation = earlier.Operation; w.one(2) {
			o = earlier
		}
	}
	w.given = append(w.given, o)
	var f Filter
	if w.one(2) {
		f.Worker = pick(w, w.names()...)
	}
	o.Source = "of " + o.Operation
	w.note("an operator wants %+v of %q", o, f.Worker)
	open := w.open
	carryOut := func() {
		w.ordering <- true
		defer func() { <-w.ordering }()
		some := open.Select(home.Tenant, f)
		if len(some) == 0 || open.Operation(home.Tenant, o) != nil {
			return
		}
		asked := w.book.ordering(o, some)
		w.book.ordered(asked, open.CarryOut(home.Tenant, o, some))
	}
	if !w.slow {
		carryOut()
		return
	}
	w.busy.Go(carryOut) // it waits for the commit under way
}

// packs lets a peer say what has become of a package that it was asked for, or of another one.
func (w *world) packs() {
	p := w.talking()
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m := &lessorv1.PkgEvent{Name: pick(w, packageNames...), Version: pick(w, packageVersions...)}
	m.Status = pick(w, installing, installed, uninstalling, uninstalled, failed)
	switch n := w.rng.IntN(10); {
	case n == 0:
		m.OperationId = "unknown"
	case n == 1:
		// which only the next register says
		p.packages[lease.PackageID(m.GetName(), m.GetVersion())] = pick(w, installed, installing, failed)
		return
	case n > 3 && len(p.orders) > 0:
		o := pick(w, p.orders...)
		if w.one(2) {
			o = p.orders[len(p.orders)-1]
		}
		m = eventOf(o, pick(w, o.begun(), o.wanted(), o.wanted(), failed))
	}
	if m.GetStatus() == failed {
		m.Code, m.Detail = pick(w, "", refusal.CodePkgInvalid, refusal.CodePkgPermission, refusal.CodeInternal), "by chance"
	} else if w.one(10) {
		m.Code = refusal.CodePkgInvalid // which is wrong
	}
	w.note("%s says %v", p.name, m)
	p.packaged(m)
}

func eventOf(o *PackageOrder, status lessorv1.PackageStatus) *lessorv1.PkgEvent {
	return &lessorv1.PkgEvent{OperationId: o.Operation, Name: o.Name, Version: o.Version, Status: status}
}

// packaged says what has become of a package.
func (p *peer) packaged(m *lessorv1.PkgEvent) {
	switch id := lease.PackageID(m.GetName(), m.GetVersion()); {
	case m.GetCode() == refusal.CodePkgPermission:
	case m.GetStatus() == uninstalled:
		delete(p.packages, id)
	default:
		p.packages[id] = m.GetStatus()
	}
	p.say(m)
}

// carriesOut notes an order, or carries it out. A diligent peer removes nothing, so that all tasks
// find what they require.
func (p *peer) carriesOut(o *PackageOrder) {
	p.orders = append(p.orders, o)
	if p.diligent {
		p.carryOut(o)
	}
}

func (p *peer) carryOut(o *PackageOrder) {
	if !o.Remove {
		p.packaged(eventOf(o, installed))
		return
	}
	m := eventOf(o, failed)
	m.Code = refusal.CodePkgPermission
	p.packaged(m)
}

func (p *peer) carryOutAll() {
	for _, o := range p.orders {
		p.carryOut(o)
	}
}

// registration is what a peer registers; its own queue is named after it.
func (p *peer) registration(slots uint32) *lessorv1.Register {
	m := &lessorv1.Register{
		Queues:           []string{"a", "b", p.name},
		Capabilities:     &lessorv1.Capabilities{Concurrency: &lessorv1.Concurrency{MaxParallel: slots}},
		InstallsPackages: p.installs,
	}
	for id, status := range p.packages {
		name, version, _ := strings.Cut(id, "@")
		m.Packages = append(m.Packages, &lessorv1.Package{Name: name, Version: version, Status: status})
	}
	return m
}

// Install is for worker.Installer.
func (s *sdk) Install(ctx context.Context, p worker.PackageInstall) error {
	return s.operate(ctx, p.OperationID+" +", p.Package, true)
}

// Uninstall is for worker.Installer.
func (s *sdk) Uninstall(ctx context.Context, p worker.PackageUninstall) error {
	return s.operate(ctx, p.OperationID+" -", p.Package, false)
}

// operate checks that the operation is new, and then takes its time and ends in a random way.
func (s *sdk) operate(ctx context.Context, operation string, p worker.Package, has bool) error {
	operation += p.String()
	s.mu.Lock()
	if s.operations[operation]++; s.operations[operation] > 1 {
		s.w.Errorf("%s: the operation %s is carried out twice", s.name, operation)
	}
	if s.operating {
		s.w.Errorf("%s: the operation %s begins before the one before it has ended", s.name, operation)
	}
	before := s.has[p.String()]
	s.operating, s.has[p.String()] = true, false
	span, how := time.Millisecond+time.Duration(s.rng.Int64N(int64(3*time.Second))), s.rng.IntN(6)
	s.mu.Unlock()
	if how == 0 {
		span = time.Hour // it hangs
	}
	select {
	case <-time.After(span):
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.operating = false
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case how == 1:
		return worker.ErrPackageInvalid
	case how == 2:
		s.has[p.String()] = before
		return worker.ErrPackagePermission
	}
	s.has[p.String()] = has
	return nil
}

// checkPackages checks that the coordinator lists what the worker has, when nothing goes on.
func (s *sdk) checkPackages() {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.has, func(_ string, has bool) bool { return !has })
	want := slices.Sorted(maps.Keys(s.has))
	for _, ss := range s.w.open.Select(home.Tenant, Filter{Worker: s.name}) {
		if got := ss.packages.installed(); !slices.Equal(got, want) {
			s.w.Errorf("%s has installed %v, and %v are listed", s.name, want, got)
		}
	}
}

// requirements returns what a task may require of the worker; nil: nothing.
func (s *sdk) requirements() *lease.Requirements {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, has := range s.has {
		if has {
			return &lease.Requirements{Package: id}
		}
	}
	return nil
}

// packagesOf is what the book knows of the packages of a session. It is exact while commits take no
// time: then what operators and workers say takes effect in the order in which they say it.
type packagesOf struct {
	state      *resumeState // nil: not known
	installs   bool
	words      map[string]lessorv1.PackageStatus // the last words, but for those that an order is begun or refused
	orders     []*orderOf
	packagesAt time.Time // when the last words came
	doubt      bool      // they may have come too late to be taken
}

// orderOf is an order to one session.
type orderOf struct {
	PackageOrder
	part   *packagePart // nil: it is being given
	atOnce bool         // it ends without the worker
	told   bool         // to the worker
	hides  bool         // the package is shown as the order leaves it
	over   bool         // it has ended
	ends   []outcome    // by which it may have ended
	result *lessorv1.PackageResult
}

// outcome is how an order ends.
type outcome struct {
	status lessorv1.PackageStatus
	code   string
}

func outcomeIn(r *lessorv1.PackageResult) outcome { return outcome{r.GetStatus(), r.GetCode()} }

// asksFor reports whether a frame, by its fields, is about the order.
func (o *orderOf) asksFor(operation, name, version string, remove bool) bool {
	return o.Operation == operation && o.Name == name && o.Version == version && o.Remove == remove
}

// concerns reports whether an event may be about the order.
func (o *orderOf) concerns(m *lessorv1.PkgEvent) bool {
	about := func(remove bool) bool { return o.asksFor(m.GetOperationId(), m.GetName(), m.GetVersion(), remove) }
	switch m.GetStatus() {
	case installing, installed:
		return about(false)
	case uninstalling, uninstalled:
		return about(true)
	}
	return about(true) || about(false)
}

// begins reports whether an event says that something has begun, and not how it has ended.
func begins(m *lessorv1.PkgEvent) bool {
	return m.GetStatus() == installing || m.GetStatus() == uninstalling
}

// present returns the packages as they must be listed.
func (p *packagesOf) present() map[string]lessorv1.PackageStatus {
	all := maps.Clone(p.words)
	if all == nil {
		all = map[string]lessorv1.PackageStatus{}
	}
	for _, o := range p.orders {
		if _, listed := all[o.id()]; !o.over && o.hides && (listed || !o.Remove) {
			all[o.id()] = o.begun()
		}
	}
	return all
}

// underWay returns the order that has not ended and that holds; nil: there is none.
func (p *packagesOf) underWay(holds func(o *orderOf) bool) *orderOf {
	n := slices.IndexFunc(p.orders, func(o *orderOf) bool { return !o.over && holds(o) })
	if n < 0 {
		return nil
	}
	return p.orders[n]
}

// ordering notes an order to sessions, and what must come of it.
func (b *book) ordering(order PackageOrder, some []*Session) (asked []*orderOf) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ss := range some {
		t := b.talkOf(ss)
		if t == nil || t.underWay(func(o *orderOf) bool { return o.repeats(&order) }) != nil {
			continue
		}
		o := &orderOf{PackageOrder: order}
		has := t.present()[o.id()]
		switch {
		case t.installs && t.underWay(func(other *orderOf) bool { return other.opposes(&order) }) != nil:
			o.ends = []outcome{{failed, refusal.CodePkgInvalid}}
		case t.installs:
			o.hides = true
		case o.Remove && has == 0, !o.Remove && has == installed:
			o.ends = []outcome{{o.wanted(), ""}}
		default:
			o.ends = []outcome{{failed, refusal.CodePkgPermission}}
		}
		o.atOnce = !o.hides
		o.over = o.atOnce
		t.orders, asked = append(t.orders, o), append(asked, o)
		b.stocked(t)
	}
	return asked
}

// talkOf finds the session of a stream that an operator has selected. The stream may have ended
// since: the order then waits in the session for the next one.
func (b *book) talkOf(ss *Session) *talk {
	if t := b.lines[ss.stream.(*line)]; t != nil {
		return t
	}
	if n := slices.IndexFunc(b.every, func(t *talk) bool { return t.state == ss.admission.state }); n >= 0 {
		return b.every[n]
	}
	return nil
}

// ordered notes the parts of an order, and checks what has come of them at once.
func (b *book) ordered(asked []*orderOf, p *PackageOperation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, part := range p.parts {
		was := part.result.Load()
		t := b.talks[was.GetSessionId()]
		if t == nil || slices.ContainsFunc(t.orders, func(o *orderOf) bool { return o.part == part }) {
			continue // it joins one that was given before
		}
		n := slices.IndexFunc(asked, func(o *orderOf) bool { return o.part == nil && slices.Contains(t.orders, o) })
		if n < 0 {
			continue // the session has begun anew meanwhile
		}
		o := asked[n]
		switch o.part = part; {
		case b.slow: // the worker may have said something meanwhile
			if o.atOnce = was.GetStatus() != o.begun(); o.atOnce {
				o.ends = append(o.ends, outcomeIn(was))
			}
		case o.atOnce && !slices.Contains(o.ends, outcomeIn(was)):
			b.w.Errorf("%+v is %v at once, want %v", o.PackageOrder, was, o.ends)
		}
	}
}

// told checks a frame that tells a worker of an order: an operator has given it to this session,
// and it was not told before.
func (b *book) told(l *line, t *talk, m *lessorv1.SessionResponse) {
	in, un := m.GetPkgInstall(), m.GetPkgUninstall()
	n := slices.IndexFunc(t.orders, func(o *orderOf) bool {
		asked := o.asksFor(un.GetOperationId(), un.GetName(), un.GetVersion(), true)
		if in != nil {
			asked = o.asksFor(in.GetOperationId(), in.GetName(), in.GetVersion(), false) && in.GetSource() == o.Source
		}
		return asked && !o.told && (!o.atOnce || b.slow)
	})
	if n < 0 || m.GetCorr() != t.orders[n].Operation {
		b.problem(l, "nobody asked for this, or it was told before: %v", m)
		return
	}
	t.orders[n].told = true
}

// registers takes in the packages of a register frame.
func (b *book) registers(t *talk, m *lessorv1.Register) {
	before := t.words
	t.installs, t.words, t.packagesAt = m.GetInstallsPackages(), map[string]lessorv1.PackageStatus{}, time.Now()
	for _, p := range m.GetPackages() {
		t.words[lease.PackageID(p.GetName(), p.GetVersion())] = p.GetStatus()
	}
	for _, o := range t.orders {
		if id := o.id(); !o.over && t.words[id] == o.begun() { // the worker may still refuse it
			o.hides = true
			if delete(t.words, id); before[id] != 0 {
				t.words[id] = before[id]
			}
		}
	}
	b.stocked(t)
}

// happens takes in an event of a package. taken is false if it may have come too late.
func (b *book) happens(t *talk, f *lessorv1.SessionRequest, taken bool) {
	m := f.GetPkgEvent()
	if m.GetCode() != "" && m.GetStatus() != failed {
		t.refuse(f)
		return
	}
	about := t.underWay(func(o *orderOf) bool { return o.concerns(m) })
	if !begins(m) {
		b.ends(t, m, about)
	}
	if !taken {
		t.doubt, b.doubted = true, true
		return
	}
	t.packagesAt = time.Now()
	b.changes(t, m, about)
	b.stocked(t)
}

// ends notes that a worker has told an end.
func (b *book) ends(t *talk, m *lessorv1.PkgEvent, about *orderOf) {
	e, again := outcomeOf(m), false
	for _, o := range t.orders {
		if o.concerns(m) && !o.atOnce {
			again = again || o.over && slices.ContainsFunc(o.ends, func(before outcome) bool { return before.status == e.status })
			if !o.over || b.slow {
				o.ends = append(o.ends, e)
			}
		}
	}
	if m.GetOperationId() != "" && (about == nil && !again || b.slow) {
		b.strays++
	}
}

// packagesTooLate notes what a frame says of packages that comes while its line is ending.
func (b *book) packagesTooLate(t *talk, f *lessorv1.SessionRequest) {
	switch {
	case f.GetPkgEvent() != nil:
		b.happens(t, f, false)
	case f.GetRegister() != nil:
		t.doubt, b.doubted = true, true
	}
}

// mayBeLate notes that what was said at this very moment, at the end of its line, may not have been
// taken.
func (b *book) mayBeLate(t *talk) {
	if !t.packagesAt.Add(b.w.slack).Before(time.Now()) {
		t.doubt, b.doubted = true, true
	}
}

func outcomeOf(m *lessorv1.PkgEvent) outcome {
	if m.GetStatus() == failed {
		return outcome{failed, cmp.Or(m.GetCode(), refusal.CodeInternal)}
	}
	return outcome{m.GetStatus(), ""}
}

// changes changes the packages of a session as an event says.
func (b *book) changes(t *talk, m *lessorv1.PkgEvent, about *orderOf) {
	id := lease.PackageID(m.GetName(), m.GetVersion())
	if about != nil && begins(m) {
		about.hides = true
		return
	}
	if about != nil {
		about.over = true
	}
	switch was := t.words[id]; {
	case m.GetCode() == refusal.CodePkgPermission && (about != nil || was == 0 || was == installed):
		return // it has changed nothing
	case m.GetStatus() == uninstalled:
		delete(t.words, id)
	default:
		t.words[id] = m.GetStatus()
	}
	for _, o := range t.orders {
		if o == about {
			return // perhaps the worker does not know of the later ones yet
		}
		if o.id() == id {
			o.hides = false
		}
	}
}

// stockOf is what an instance had installed from a time on.
type stockOf struct {
	at        time.Time
	installed []string
}

// stocked notes what a session has installed now.
func (b *book) stocked(t *talk) {
	if b.used[t.instance()].talk != t {
		return
	}
	var has []string
	for id, status := range t.present() {
		if status == installed || t.doubt {
			has = append(has, id)
		}
	}
	b.stocks[t.instance()] = append(b.stocks[t.instance()], stockOf{time.Now(), has})
}

// checkStock checks that what a task requires was installed where it was granted.
func (b *book) checkStock(instance string, t *lease.Task) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, at := t.Spec.Requirements, t.Lease.GrantedAt.Time()
	if r == nil || r.Package == "" || b.slow {
		return
	}
	all := b.stocks[instance]
	for n, s := range all {
		if s.at.After(at) || n+1 < len(all) && all[n+1].at.Before(at) {
			continue
		}
		if slices.ContainsFunc(s.installed, func(id string) bool { return id == r.Package || strings.HasPrefix(id, r.Package+"@") }) {
			return
		}
	}
	b.w.Errorf("%v requires %s and was granted to %s at %v, which has %+v", t.ID, r.Package, instance, at, all)
}

// audit counts the entries of the audit about packages.
func (b *book) audit(worker string, m *lessorv1.PkgEvent, code string, asked bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if asked {
		b.audits[auditOf(worker, m.GetOperationId(), lease.PackageID(m.GetName(), m.GetVersion()), m.GetStatus(), code)]++
	} else {
		b.strayAudits++
	}
}

func auditOf(worker, operation, pkg string, status lessorv1.PackageStatus, code string) string {
	return fmt.Sprint(worker, operation, pkg, status, code)
}

// checkPackages compares what has become of all orders, and the packages that are listed, with what
// was said. swift: commits take no time.
func (b *book) checkPackages(swift bool) {
	audits := map[string]int{}
	for _, t := range b.every {
		if t.state == nil {
			continue
		}
		b.checkOrders(t, swift)
		if swift {
			b.checkListed(t)
		}
		for _, o := range t.orders {
			// it had, before the worker was asked
			if r := o.result; r != nil && !o.atOnce && r.GetDetail() != "the session has ended" {
				audits[auditOf(r.GetWorkerId(), o.Operation, o.id(), r.GetStatus(), r.GetCode())]++
			}
		}
	}
	for what, n := range audits {
		if got := b.audits[what]; got < n || swift && !b.doubted && got != n {
			b.w.Errorf("the audit has %d entries of %s, want %d", got, what, n)
		}
	}
	if n := b.strayAudits; n > b.strays || swift && !b.doubted && n != b.strays {
		b.w.Errorf("the audit has %d entries of ends that nobody asked for, want %d", n, b.strays)
	}
}

// checkOrders checks what has become of the orders to a session. Each ends once: as the worker
// says, or when the session is over.
func (b *book) checkOrders(t *talk, swift bool) {
	v := &t.state.packages
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, o := range t.orders {
		if o.part == nil {
			continue
		}
		r := o.part.result.Load()
		ended := r.GetStatus() != o.begun()
		lost := r.GetCode() == refusal.CodeSessionEnded
		switch {
		case ended == slices.Contains(v.underWay, o.part) && (ended || swift || !v.over):
			b.problem(t.line, "%+v is %v, and still under way: %v", o.PackageOrder, r, !ended)
		case o.result != nil && o.result != r:
			b.problem(t.line, "%+v was %v, and becomes %v", o.PackageOrder, o.result, r)
		case lost && !v.over:
			b.problem(t.line, "%+v is %v, and the session goes on", o.PackageOrder, r)
		case ended && !lost && !slices.Contains(o.ends, outcomeIn(r)), swift && !t.doubt && o.result == nil && o.over && (!ended || lost):
			b.problem(t.line, "%+v is %v, want %v, over: %v", o.PackageOrder, r, o.ends, o.over)
		}
		if ended {
			o.result, o.over = r, true
		}
	}
}

// checkListed checks which packages are listed. If what was said last may have come too late, it
// learns from the list which was taken.
func (b *book) checkListed(t *talk) {
	v := &t.state.packages
	if t.doubt {
		v.mu.Lock()
		defer v.mu.Unlock()
		t.doubt, t.words = false, map[string]lessorv1.PackageStatus{}
		for id, p := range v.said {
			t.words[id] = p.GetStatus()
		}
		for _, o := range t.orders {
			o.over = o.part == nil || o.result != nil
			o.hides = !o.over && o.part.shows != nil
		}
		b.stocked(t)
		return
	}
	got, want := map[string]lessorv1.PackageStatus{}, t.present()
	for _, p := range v.list() {
		got[lease.PackageID(p.GetName(), p.GetVersion())] = p.GetStatus()
	}
	if !maps.Equal(got, want) {
		b.problem(t.line, "the packages of the session are listed as %v, want %v", got, want)
	}
}

// untold returns an order that the worker of a session was not told; nil: there is none.
func (t *talk) untold() *orderOf {
	return t.underWay(func(o *orderOf) bool { return o.part != nil && !o.told })
}

// openOrders tells which orders have not ended.
func (b *book) openOrders() (open []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.every {
		for _, o := range t.orders {
			if o.part != nil && o.part.result.Load().GetStatus() == o.begun() {
				open = append(open, fmt.Sprintf("%+v of session %s on %s", o.PackageOrder, t.session, t.line.name))
			}
		}
	}
	return open
}

// quickens notes that commits take no time any more. While they did the book was not exact, so that
// it has to learn all anew.
func (b *book) quickens() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.slow {
		return
	}
	b.slow, b.doubted = false, true
	for _, t := range b.every {
		t.doubt = true
	}
}

// stateOf returns the state of the session that is being accepted on a line; nil: another line has
// taken it over already.
func stateOf(l *line, session string) *resumeState {
	all := l.streams.resumes
	all.mu.Lock()
	defer all.mu.Unlock()
	if d := all.byID[session]; d != nil && d.stream != nil && d.stream.stream == l {
		return d
	}
	return nil
}
