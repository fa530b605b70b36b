package worker

import (
	"context"
	"fmt"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// packages is what the worker has, and what becomes of what operators ask for (W13). It is guarded
// by Worker.mu.
type packages struct {
	inventory inventory
	// running is the operation under way; nil if there is none. The others wait, in order.
	running *operation
	waiting []*operation
	// ended are the last maxRecent operations that have ended, oldest first, so that a frame that
	// comes twice gets the same answer.
	ended []*operation
	// unacknowledged: the stream may have events that the coordinator has not acknowledged.
	unacknowledged bool
	// givenUp: the worker stops, and tells nothing any more.
	givenUp bool
}

// operation is the installing or removing of one package.
type operation struct {
	packageRequest
	// stop ends the context of the installer.
	stop context.CancelCauseFunc
	// before is the package before the operation began; nil: it was not there.
	before *lessorv1.Package
	// end is the last event; nil while the operation waits or runs.
	end *lessorv1.PkgEvent
}

// packageRequest is what a frame of the coordinator asks for.
type packageRequest struct {
	id             string
	uninstall      bool
	pkg            Package
	source, sha256 string
}

func installRequest(p *lessorv1.PkgInstall) packageRequest {
	return packageRequest{
		id: p.GetOperationId(), pkg: Package{Name: p.GetName(), Version: p.GetVersion()},
		source: p.GetSource(), sha256: p.GetSha256(),
	}
}

func uninstallRequest(p *lessorv1.PkgUninstall) packageRequest {
	return packageRequest{
		id: p.GetOperationId(), uninstall: true,
		pkg: Package{Name: p.GetName(), Version: p.GetVersion()},
	}
}

var validSHA256 = regexp.MustCompile(`^([0-9a-f]{64})?$`)

// check returns what is wrong with a request; empty: nothing.
func (r packageRequest) check() string {
	switch err := r.pkg.check("name", "version"); {
	case err != nil:
		return strings.TrimPrefix(err.Error(), "worker: ")
	case r.id == "":
		return "operation_id must not be empty"
	case !validSHA256.MatchString(r.sha256):
		return "sha256 must be 64 lower-case hexadecimal digits"
	}
	return ""
}

// event returns an event of the request.
func (r packageRequest) event(status lessorv1.PackageStatus, code, detail string) *lessorv1.PkgEvent {
	return &lessorv1.PkgEvent{
		OperationId: r.id, Name: clipID(r.pkg.Name), Version: clipID(r.pkg.Version), Status: status,
		Code: code, Detail: detail,
	}
}

// action returns what is asked for, in the log.
func (r packageRequest) action() string {
	if r.uninstall {
		return "uninstall"
	}
	return "install"
}

// begins and ends return the status while an operation runs and when it is done.
func (r packageRequest) begins() lessorv1.PackageStatus {
	if r.uninstall {
		return lessorv1.PackageStatus_PACKAGE_STATUS_UNINSTALLING
	}
	return lessorv1.PackageStatus_PACKAGE_STATUS_INSTALLING
}

func (r packageRequest) ends() lessorv1.PackageStatus {
	if r.uninstall {
		return lessorv1.PackageStatus_PACKAGE_STATUS_UNINSTALLED
	}
	return lessorv1.PackageStatus_PACKAGE_STATUS_INSTALLED
}

const packageFailed = lessorv1.PackageStatus_PACKAGE_STATUS_FAILED

// find returns the operation that a request repeats, if the worker still knows it. An operator may
// use one id for several packages.
func (p *packages) find(r packageRequest) *operation {
	same := func(op *operation) bool { return op.id == r.id && op.pkg == r.pkg && op.uninstall == r.uninstall }
	for _, op := range slices.Concat(p.waiting, p.ended) {
		if same(op) {
			return op
		}
	}
	if p.running != nil && same(p.running) {
		return p.running
	}
	return nil
}

// handlePackageRequest begins an operation, or makes it wait for the earlier ones. One that came
// before is not begun again, and if it has ended, its end is told again: the coordinator may have
// restarted.
func (w *Worker) handlePackageRequest(r packageRequest) {
	w.lock()
	defer w.unlock()
	if op := w.mu.packages.find(r); op != nil {
		switch {
		case op.packageRequest != r:
			w.queueEventLocked(r.event(packageFailed, codePackageInvalid,
				"the operation_id is that of another operation"))
			w.restateLocked(r.pkg, packageFailed)
		case op.end != nil && !slices.Contains(w.mu.outbox.events, op.end):
			w.queueEventLocked(op.end)
			w.restateLocked(r.pkg, op.end.GetStatus())
		}
		return
	}
	op := &operation{packageRequest: r}
	if code, detail := w.objectionLocked(r); code != "" {
		w.failOperationLocked(op, code, detail)
		return
	}
	w.mu.packages.waiting = append(w.mu.packages.waiting, op)
	w.startOperationLocked()
}

// objectionLocked returns why the worker does not take a request; an empty code: it does.
// E.PKG.PERMISSION says that nothing was changed.
func (w *Worker) objectionLocked(r packageRequest) (code, detail string) {
	switch wrong := r.check(); {
	case w.cfg.Installer == nil:
		return codePackagePermission, "the worker installs no packages"
	case wrong != "":
		return codePackageInvalid, wrong
	case w.mu.drain.requested:
		return codePackagePermission, "the worker is draining"
	case len(w.mu.packages.waiting) >= maxPackages:
		return codePackagePermission, fmt.Sprintf("%d operations wait in the worker already", maxPackages)
	}
	return "", ""
}

// startOperationLocked begins the next operation that waits, unless one is under way.
func (w *Worker) startOperationLocked() {
	p := &w.mu.packages
	for p.running == nil && len(p.waiting) > 0 {
		op := p.waiting[0]
		p.waiting = slices.Delete(p.waiting, 0, 1)
		op.before = p.inventory[op.pkg]
		if room := p.inventory.set(op.pkg, op.begins(), ""); !room && !op.uninstall {
			w.failOperationLocked(op, codePackagePermission,
				fmt.Sprintf("the worker has %d packages already, those that FAILED included", maxPackages))
			continue
		}
		var ctx context.Context
		ctx, op.stop = context.WithCancelCause(w.baseCtx)
		p.running = op
		w.queueEventLocked(op.event(op.begins(), "", ""))
		go w.operate(ctx, op)
	}
}

// operate carries out an operation. A deferred function takes its end, because runtime.Goexit runs
// only deferred functions.
func (w *Worker) operate(ctx context.Context, op *operation) {
	log := w.log.With("action", op.action(), "package", op.pkg.String(), "operation", op.id)
	code, detail := codeInternal, "the installer called runtime.Goexit"
	defer func() {
		if value := recover(); value != nil {
			code, detail = codeInternal, (&PanicError{Value: value}).Error()
			log.Error("installer panicked", "error", detail, "stack", string(debug.Stack()))
		}
		detail = clip(detail, maxPackageDetail)
		if code == "" {
			log.Info("package operation done")
		} else {
			log.Warn("package operation failed", "code", code, "detail", detail)
		}
		w.operationEnded(op, code, detail)
	}()
	log.Info("package operation begins")
	limit := w.cfg.InstallerTimeout
	ctx, free := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the time limit of the installer, %v, is over", limit))
	defer free()
	if err := op.call(ctx, w.cfg.Installer); err != nil {
		code, detail = codeOfInstaller(err), err.Error() // which may panic, too
	} else {
		code, detail = "", ""
	}
}

func (r packageRequest) call(ctx context.Context, i Installer) error {
	if r.uninstall {
		return i.Uninstall(ctx, PackageUninstall{Package: r.pkg, OperationID: r.id})
	}
	return i.Install(ctx, PackageInstall{Package: r.pkg, OperationID: r.id, Source: r.source, SHA256: r.sha256})
}

func (w *Worker) operationEnded(op *operation, code, detail string) {
	w.lock()
	defer w.unlock()
	p, status := &w.mu.packages, op.ends()
	if code != "" {
		status = packageFailed
	}
	op.stop(context.Canceled) // frees the context
	p.running = nil
	p.inventory.set(op.pkg, status, detail)
	if code == codePackagePermission { // it has changed nothing
		p.inventory.restore(op.pkg, op.before)
	}
	w.endOperationLocked(op, op.event(status, code, detail))
	w.restateLocked(op.pkg, status)
	w.startOperationLocked()
	w.checkDrainedLocked()
}

// failOperationLocked ends an operation that has not begun.
func (w *Worker) failOperationLocked(op *operation, code, detail string) {
	w.deferLocked(func() {
		w.log.Warn("package operation refused",
			"action", op.action(), "package", op.pkg.String(), "operation", op.id, "code", code, "detail", detail)
	})
	w.endOperationLocked(op, op.event(packageFailed, code, clip(detail, maxPackageDetail)))
	w.restateLocked(op.pkg, packageFailed)
}

// endOperationLocked remembers how an operation ended, and tells the coordinator.
func (w *Worker) endOperationLocked(op *operation, end *lessorv1.PkgEvent) {
	op.end = end
	p := &w.mu.packages
	p.ended = append(p.ended, op)
	if len(p.ended) > maxRecent {
		p.ended = slices.Delete(p.ended, 0, 1)
	}
	w.queueEventLocked(end)
}

// packagesIdleLocked reports whether no operation is under way, and the coordinator knows the ends
// of all.
func (w *Worker) packagesIdleLocked() bool {
	p := &w.mu.packages
	return p.running == nil && !p.unacknowledged && len(w.mu.outbox.events) == 0
}

// refuseOperationsLocked fails the operations that wait, because the worker drains.
func (w *Worker) refuseOperationsLocked() {
	waiting := w.mu.packages.waiting
	w.mu.packages.waiting = nil
	for _, op := range waiting {
		w.failOperationLocked(op, codePackagePermission, "the worker is draining")
	}
}

// stopOperationLocked ends the context of the operation under way.
func (w *Worker) stopOperationLocked(detail string) {
	if op := w.mu.packages.running; op != nil {
		op.stop(&StopError{Err: ErrDraining, Detail: detail})
	}
}

// abandonPackagesLocked gives up what was not told yet, and the operation under way.
func (w *Worker) abandonPackagesLocked(why string) {
	p, o := &w.mu.packages, &w.mu.outbox
	if p.unacknowledged || len(o.events) > 0 {
		w.addResultLocked(fmt.Errorf("%w: what became of packages: %s", ErrUndelivered, why))
	}
	w.stopOperationLocked(why)
	p.givenUp, p.unacknowledged, o.events = true, false, nil
}
