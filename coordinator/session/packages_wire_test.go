package session_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/coordinator/session"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Statuses of packages, with short names.
const (
	installing   = lessorv1.PackageStatus_PACKAGE_STATUS_INSTALLING
	installed    = lessorv1.PackageStatus_PACKAGE_STATUS_INSTALLED
	uninstalling = lessorv1.PackageStatus_PACKAGE_STATUS_UNINSTALLING
	uninstalled  = lessorv1.PackageStatus_PACKAGE_STATUS_UNINSTALLED
	broken       = lessorv1.PackageStatus_PACKAGE_STATUS_FAILED
)

// installer returns a registration for queue q of a worker that installs packages and has the given
// ones, each NAME@VERSION.
func installer(packages ...string) *lessorv1.Register {
	m := wiretest.Registration(1)
	m.InstallsPackages = true
	for _, id := range packages {
		name, version, _ := strings.Cut(id, "@")
		m.Packages = append(m.Packages, &lessorv1.Package{Name: name, Version: version})
	}
	return m
}

// openInstaller opens a session of a worker that installs packages.
func openInstaller(t *testing.T, r *wiretest.Rig, name string, packages ...string) *wiretest.Worker {
	t.Helper()
	worker := r.OpenStream(t, name)
	worker.Handshake()
	worker.Send(installer(packages...))
	synctest.Wait()
	return worker
}

// install asks the workers of a filter for package model, version 2, and returns the answer at
// once.
func install(t *testing.T, r *wiretest.Rig, workers *lessorv1.WorkerFilter) *lessorv1.PackageOperation {
	t.Helper()
	res, err := r.Admin.InstallPackage(t.Context(),
		&lessorv1.InstallPackageRequest{Name: "model", Version: "2", Workers: workers, RequestId: "op"})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return res.GetOperation()
}

// event returns a pkg_event of operation op about package model, version 2.
func event(s lessorv1.PackageStatus, code, detail string) *lessorv1.PkgEvent {
	return &lessorv1.PkgEvent{OperationId: "op", Name: "model", Version: "2", Status: s, Code: code, Detail: detail}
}

// wantOperation checks an operation that one session carries out.
func wantOperation(
	t *testing.T, what string, m *lessorv1.PackageOperation, s lessorv1.PackageStatus, code string, done, failed uint32,
) {
	t.Helper()
	got := m.GetResults()
	if len(got) != 1 || m.GetSessions() != 1 || got[0].GetStatus() != s || got[0].GetCode() != code || m.GetDone() != done || m.GetFailed() != failed {
		t.Errorf("%s: the operation is %v, want one session with %v %q, %d done, %d failed", what, m, s, code, done, failed)
	}
}

// wantPackages checks the inventory of a worker, as operators see it.
func wantPackages(t *testing.T, r *wiretest.Rig, worker string, want ...string) {
	t.Helper()
	var got []string
	for _, p := range r.ListedWorker(t, worker).GetPackages() {
		got = append(got, fmt.Sprintf("%s@%s %s %s", p.GetName(), p.GetVersion(),
			strings.TrimPrefix(p.GetStatus().String(), "PACKAGE_STATUS_"), p.GetDetail()))
	}
	for i := range got {
		got[i] = strings.TrimSpace(got[i])
	}
	wiretest.WantEqual(t, "the packages of "+worker, strings.Join(got, ", "), strings.Join(want, ", "))
}

// submitFor submits a task to queue q that requires a package.
func submitFor(t *testing.T, r *wiretest.Rig, pkg string) {
	t.Helper()
	r.Submit(t, func(s *lessorv1.TaskSpec) { s.Requirements = &lessorv1.Requirements{Package: pkg} })
	synctest.Wait()
}

// W13: a task that requires a package is granted only to a worker on which the package is
// installed: any version, or the one that it names. A worker without a session says its packages
// with Lease.
func TestTasksAreGrantedByPackage(t *testing.T) {
	t.Attr("rules", "W13 W12")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		for _, pkg := range []string{"model@2", "model", "@s/tool@1", "@s/tool"} {
			submitFor(t, r, pkg)
		}
		plain := r.OpenSession(t, "plain", 10)
		register := installer("mode@2", "model@20", "models@2")
		register.Packages = append(register.Packages, &lessorv1.Package{Name: "model", Version: "2", Status: broken})
		register.Capabilities.Concurrency.MaxParallel = 10
		other := r.OpenStream(t, "other")
		other.Handshake()
		other.Send(register)
		if got := other.ReceiveAssignments(1)[0].GetTask().GetSpec().GetRequirements().GetPackage(); got != "model" {
			t.Errorf("the task of %q is granted to a worker that has model@20 only, want that of any version", got)
		}
		for id, want := range map[string]int{"model@3": 0, "@s/tool@1": 2, "model@2": 1} {
			res, err := r.Workers.Lease(t.Context(),
				&lessorv1.LeaseRequest{WorkerId: "unary", Queues: []string{"q"}, MaxTasks: 10, Packages: []string{id}})
			if err != nil || len(res.GetAssignments()) != want {
				t.Errorf("%d tasks (%v) for a caller that has %s, want %d", len(res.GetAssignments()), err, id, want)
			}
		}
		plain.WantNoFrame()
		other.WantNoFrame()
	})
}

// W13: an install goes to the workers that the filter selects, and its call answers when all have
// told what became of it. The package is in the inventory from then on, and its tasks are granted.
func TestInstallPackage(t *testing.T) {
	t.Attr("rules", "W13")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := openInstaller(t, r, "w", "base@1")
		submitFor(t, r, "model@2")
		answers := make(chan *lessorv1.InstallPackageResponse, 1)
		go func() {
			res, err := r.Admin.InstallPackage(t.Context(), &lessorv1.InstallPackageRequest{
				Name: "model", Version: "2", Source: "https://models.example/2?key=secret",
				Sha256: strings.Repeat("AB", 32), Workers: &lessorv1.WorkerFilter{},
				Wait: durationpb.New(time.Minute), RequestId: "op",
			})
			if err != nil {
				t.Error(err)
			}
			answers <- res
		}()
		m := wiretest.NextPayload[*lessorv1.PkgInstall](worker)
		if m.GetOperationId() != "op" || m.GetName() != "model" || m.GetVersion() != "2" || m.GetSource() != "https://models.example/2?key=secret" ||
			m.GetSha256() != strings.Repeat("ab", 32) {
			t.Errorf("the worker is asked %v, want what the operator has sent", m)
		}
		wantPackages(t, r, "w", "base@1 INSTALLED", "model@2 INSTALLING")
		worker.Send(event(installing, "", "half"))
		synctest.Wait()
		wantPackages(t, r, "w", "base@1 INSTALLED", "model@2 INSTALLING half")
		worker.WantNoFrame()
		if len(answers) != 0 {
			t.Error("the call is answered while the worker installs, want an answer after the end")
		}
		worker.Send(event(installed, "", ""))
		wantOperation(t, "after the event", (<-answers).GetOperation(), installed, "", 1, 0)
		worker.ReceiveAssignments(1)
		wantPackages(t, r, "w", "base@1 INSTALLED", "model@2 INSTALLED")
		r.WantMetric(t, `lessor_package_operations_total{op="install",outcome="done"}`, 1)

		var events []string
		for _, a := range r.AuditEvents(t.Context(), t, wiretest.WholeAudit()) {
			events = append(events, fmt.Sprintf("%s %s %s %s", a.GetAction(), a.GetObject(), a.GetRequestId(), a.GetOutcome()))
			if strings.Contains(a.GetDetail(), "secret") || a.GetAction() == "InstallPackage" && !strings.Contains(a.GetDetail(), "models.example") {
				t.Errorf("the detail of an entry is %q, want the source without its query", a.GetDetail())
			}
		}
		wiretest.WantEqual(t, "the audit", strings.Join(events, ", "), "InstallPackage model op OK, PkgEvent model@2 op OK")
	})
}

// W13: the entry of an install is in the audit while its call still waits (X4).
func TestInstallIsAuditedBeforeItsEnd(t *testing.T) {
	t.Attr("rules", "W13 X4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := openInstaller(t, r, "w")
		ctx, leave := context.WithCancel(t.Context())
		go func() {
			_, _ = r.Admin.InstallPackage(ctx, &lessorv1.InstallPackageRequest{
				Name: "model", Version: "2", Workers: &lessorv1.WorkerFilter{}, Wait: durationpb.New(time.Minute),
				RequestId: "op",
			})
		}()
		wiretest.NextPayload[*lessorv1.PkgInstall](worker)
		if all := r.AuditEvents(t.Context(), t, wiretest.WholeAudit()); len(all) != 1 {
			t.Errorf("%d entries while the worker installs, want 1", len(all))
		}
		leave() // the operation goes on
		synctest.Wait()
		worker.Send(event(broken, "", "no room"))
		synctest.Wait()
		if all := r.AuditEvents(t.Context(), t, wiretest.WholeAudit()); len(all) != 2 || all[1].GetOutcome() != refusal.CodeInternal {
			t.Errorf("the audit is %v after the worker has failed, want an entry with %s", all, refusal.CodeInternal)
		}
		r.WantMetric(t, `lessor_package_operations_total{op="install",outcome="failed"}`, 1)
	})
}

// W13: a package that is to be removed is not promised to tasks any more, and is forgotten when the
// worker has removed it.
func TestUninstallPackage(t *testing.T) {
	t.Attr("rules", "W13")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := openInstaller(t, r, "w", "model@2", "base@1")
		req := &lessorv1.UninstallPackageRequest{
			Name: "model", Version: "2",
			Workers: &lessorv1.WorkerFilter{WorkerId: "w"}, RequestId: "op",
		}
		res, err := r.Admin.UninstallPackage(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		wantOperation(t, "at once", res.GetOperation(), uninstalling, "", 0, 0)
		submitFor(t, r, "model")
		if m := wiretest.NextPayload[*lessorv1.PkgUninstall](worker); m.GetName() != "model" || m.GetVersion() != "2" || m.GetOperationId() != "op" {
			t.Errorf("the worker is asked %v, want to remove model@2", m)
		}
		wantPackages(t, r, "w", "base@1 INSTALLED", "model@2 UNINSTALLING")
		worker.Send(event(uninstalled, "", ""))
		synctest.Wait()
		wantPackages(t, r, "w", "base@1 INSTALLED")
		worker.WantNoFrame()
		if res, err = r.Admin.UninstallPackage(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		wantOperation(t, "repeated", res.GetOperation(), uninstalled, "", 1, 0)
		worker.WantNoFrame()
	})
}

// W13: what a worker tells of a failure reaches the operator. A worker that refuses has not touched
// the package, which stays as it was.
func TestPackageOperationsThatFail(t *testing.T) {
	t.Attr("rules", "W13")
	for name, c := range map[string]struct {
		has        []string
		code, want string
		listed     []string
	}{
		"invalid":                  {nil, "E.PKG.INVALID", "E.PKG.INVALID", []string{"model@2 FAILED why"}},
		"invalid, was installed":   {[]string{"model@2"}, "E.PKG.INVALID", "E.PKG.INVALID", []string{"model@2 FAILED why"}},
		"refused":                  {nil, "E.PKG.PERMISSION", "E.PKG.PERMISSION", nil},
		"refused, was installed":   {[]string{"model@2"}, "E.PKG.PERMISSION", "E.PKG.PERMISSION", []string{"model@2 INSTALLED"}},
		"anything else":            {nil, "", "E.INTERNAL", []string{"model@2 FAILED why"}},
		"anything else, in a word": {nil, "E.INTERNAL", "E.INTERNAL", []string{"model@2 FAILED why"}},
	} {
		t.Run(name, func(t *testing.T) {
			wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
				worker := openInstaller(t, r, "w", c.has...)
				wantOperation(t, "at once", install(t, r, &lessorv1.WorkerFilter{}), installing, "", 0, 0)
				wiretest.NextPayload[*lessorv1.PkgInstall](worker)
				worker.Send(event(broken, c.code, "why"))
				synctest.Wait()
				op := install(t, r, &lessorv1.WorkerFilter{})
				wantOperation(t, "after the event", op, broken, c.want, 0, 1)
				wiretest.WantEqual(t, "the detail", op.GetResults()[0].GetDetail(), "why")
				wantPackages(t, r, "w", c.listed...)
				worker.WantNoFrame()
			})
		})
	}
}

// W13: what a worker refuses stays as the operation before it has left it, also if that was under
// way when the refused one was asked for.
func TestPackageOperationRefusedAfterAnother(t *testing.T) {
	t.Attr("rules", "W13")
	for name, c := range map[string]struct {
		first  *lessorv1.PkgEvent
		listed []string
	}{
		"installed": {event(installed, "", ""), []string{"model@2 INSTALLED"}},
		"failed":    {event(broken, "E.PKG.INVALID", "why"), []string{"model@2 FAILED why"}},
		"refused":   {event(broken, "E.PKG.PERMISSION", "why"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
				worker := openInstaller(t, r, "w")
				for _, id := range []string{"op", "op2"} {
					_, err := r.Admin.InstallPackage(t.Context(),
						&lessorv1.InstallPackageRequest{
							Name: "model", Version: "2", Workers: &lessorv1.WorkerFilter{},
							RequestId: id,
						})
					if err != nil {
						t.Fatal(err)
					}
				}
				worker.Send(c.first)
				refused := event(broken, "E.PKG.PERMISSION", "no")
				refused.OperationId = "op2"
				worker.Send(refused)
				synctest.Wait()
				wantPackages(t, r, "w", c.listed...)
			})
		})
	}
}

// W13: a worker that has not said that it installs packages is not asked. The operator is told so,
// unless there was nothing to do.
func TestWorkersThatInstallNothing(t *testing.T) {
	t.Attr("rules", "W13")
	for name, c := range map[string]struct {
		packages   []*lessorv1.Package
		install    lessorv1.PackageStatus
		code       string
		uninstall  lessorv1.PackageStatus
		removeCode string
	}{
		"without it":    {nil, broken, refusal.CodePkgPermission, uninstalled, ""},
		"with it":       {[]*lessorv1.Package{{Name: "model", Version: "2"}}, installed, "", broken, refusal.CodePkgPermission},
		"with half it":  {[]*lessorv1.Package{{Name: "model", Version: "2", Status: broken}}, broken, refusal.CodePkgPermission, broken, refusal.CodePkgPermission},
		"with one else": {[]*lessorv1.Package{{Name: "model", Version: "1"}}, broken, refusal.CodePkgPermission, uninstalled, ""},
	} {
		t.Run(name, func(t *testing.T) {
			wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
				worker := r.OpenStream(t, "w")
				worker.Handshake()
				register := wiretest.Registration(1)
				register.Packages = c.packages
				worker.Send(register)
				synctest.Wait()
				count := func(s lessorv1.PackageStatus) (done, failed uint32) {
					if s == broken {
						return 0, 1
					}
					return 1, 0
				}
				done, failed := count(c.install)
				wantOperation(t, "installed", install(t, r, &lessorv1.WorkerFilter{}), c.install, c.code, done, failed)
				res, err := r.Admin.UninstallPackage(t.Context(),
					&lessorv1.UninstallPackageRequest{Name: "model", Version: "2", Workers: &lessorv1.WorkerFilter{}})
				if err != nil {
					t.Fatal(err)
				}
				done, failed = count(c.uninstall)
				wantOperation(t, "removed", res.GetOperation(), c.uninstall, c.removeCode, done, failed)
				worker.WantNoFrame()
			})
		})
	}
}

// W13, X4: the end of an operation that the coordinator does not know, for example because it has
// restarted meanwhile, is in the audit, too; a worker that tells of many such leaves a bounded
// number of entries.
func TestUnknownPackageOperationsAreAudited(t *testing.T) {
	t.Attr("rules", "W13 X4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := openInstaller(t, r, "w")
		for range 20 {
			worker.Send(event(installed, "", ""))
		}
		worker.Send(&lessorv1.PkgEvent{Name: "own", Version: "1", Status: installed})
		synctest.Wait()
		time.Sleep(2 * time.Minute)
		var times uint64
		all := r.AuditEvents(t.Context(), t, wiretest.WholeAudit())
		for _, a := range all {
			times += max(a.GetTimes(), 1)
		}
		if len(all) != 2 || times != 20 {
			t.Errorf("%d entries about %d ends, want 2 about 20: %v", len(all), times, all)
		}
		r.WantMetric(t, `lessor_package_operations_total{op="install",outcome="done"}`, 0)
	})
}

// W13: an operation belongs to the session, not to its stream: the frame that a lost stream has not
// delivered is sent again when the session goes on, and the answer comes on the new stream. The
// worker registers what it has then.
func TestPackageOperationOutlastsItsStream(t *testing.T) {
	t.Attr("rules", "W13 W8")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		old := r.OpenStream(t, "w")
		a := old.Handshake()
		old.Send(installer())
		synctest.Wait()
		install(t, r, &lessorv1.WorkerFilter{})
		wiretest.NextPayload[*lessorv1.PkgInstall](old)
		old.Cut()
		synctest.Wait()
		worker := r.OpenStream(t, "w")
		h := wiretest.HandshakeOf("w")
		wiretest.ResumeFrom(a, 1)(h)
		worker.Send(h)
		wiretest.NextPayload[*lessorv1.Accept](worker)
		register := installer("base@1")
		register.Packages = append(register.Packages,
			&lessorv1.Package{Name: "model", Version: "2", Status: installing, Detail: "half"})
		worker.Send(register)
		synctest.Wait()
		if m := wiretest.NextPayload[*lessorv1.PkgInstall](worker); m.GetOperationId() != "op" {
			t.Errorf("the frame that is sent again is %v, want that of the operation", m)
		}
		wantPackages(t, r, "w", "base@1 INSTALLED", "model@2 INSTALLING half")
		worker.Send(event(installed, "", ""))
		synctest.Wait()
		wantOperation(t, "after the event", install(t, r, &lessorv1.WorkerFilter{}), installed, "", 1, 0)
		worker.WantNoFrame()
	})
}

// W13, X4: if the session is over for good before the worker has told, the operator is told that,
// and the audit has it.
func TestPackageOperationOfASessionThatEnds(t *testing.T) {
	t.Attr("rules", "W13 W8 X4")
	for name, lose := range map[string]func(*wiretest.Worker){
		"goodbye": func(worker *wiretest.Worker) { worker.Send(&lessorv1.Goodbye{}) },
		"lost":    func(worker *wiretest.Worker) { worker.Cut(); time.Sleep(keepFor) },
	} {
		t.Run(name, func(t *testing.T) {
			wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
				worker := openInstaller(t, r, "w")
				answers := make(chan *lessorv1.InstallPackageResponse, 1)
				go func() {
					var op *lessorv1.InstallPackageResponse
					for range 2 { // a call waits for a minute at most
						op, _ = r.Admin.InstallPackage(t.Context(), &lessorv1.InstallPackageRequest{
							Name: "model", Version: "2", Workers: &lessorv1.WorkerFilter{},
							Wait: durationpb.New(time.Minute), RequestId: "op",
						})
						if op.GetOperation().GetFailed() > 0 {
							break
						}
					}
					answers <- op
				}()
				wiretest.NextPayload[*lessorv1.PkgInstall](worker)
				lose(worker)
				wantOperation(t, "at the end", (<-answers).GetOperation(), broken, refusal.CodeSessionEnded, 0, 1)
				got := r.AuditEvents(t.Context(), t, &lessorv1.ListAuditEventsRequest{Action: "PkgEvent"})
				if len(got) != 1 || got[0].GetOutcome() != refusal.CodeSessionEnded || got[0].GetObject() != "model@2" || got[0].GetRequestId() != "op" ||
					got[0].GetDetail() != `worker_id:"w" status:PACKAGE_STATUS_FAILED` {
					t.Errorf("the audit has %v of the end, want one entry", got)
				}
				r.WantMetric(t, `lessor_package_operations_total{op="install",outcome="failed"}`, 1)
			})
		})
	}
}

// W13: a repeat of a call joins the operation: it asks no worker again, and none that has come
// later; it tells of a worker that has gone; and the audit has no entry for each.
func TestRepeatJoinsThePackageOperation(t *testing.T) {
	t.Attr("rules", "W13")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		first, second := openInstaller(t, r, "a"), openInstaller(t, r, "b")
		install(t, r, &lessorv1.WorkerFilter{})
		wiretest.NextPayload[*lessorv1.PkgInstall](first)
		wiretest.NextPayload[*lessorv1.PkgInstall](second)
		first.Send(event(installed, "", ""))
		late := openInstaller(t, r, "c")
		second.Send(&lessorv1.Goodbye{})
		synctest.Wait()
		for range 3 {
			op := install(t, r, &lessorv1.WorkerFilter{WorkerId: "nobody"})
			if got := op.GetResults(); len(got) != 2 || op.GetDone() != 1 || op.GetFailed() != 1 || got[0].GetStatus() != installed ||
				got[1].GetCode() != refusal.CodeSessionEnded {
				t.Errorf("the operation is %v, want a INSTALLED and b gone", op)
			}
		}
		late.WantNoFrame()
		if n := len(r.AuditEvents(t.Context(), t, &lessorv1.ListAuditEventsRequest{Action: "InstallPackage"})); n > 2 {
			t.Errorf("%d entries in the audit for an install and its repeats, want one, and one for all repeats of a minute", n)
		}
		_, err := r.Admin.UninstallPackage(t.Context(), &lessorv1.UninstallPackageRequest{
			Name: "model", Version: "2", Workers: &lessorv1.WorkerFilter{WorkerId: "c"}, RequestId: "op",
		})
		if m := wiretest.NextPayload[*lessorv1.PkgUninstall](late); err != nil || m.GetOperationId() != "op" {
			t.Errorf("an uninstall with the request_id of an install asks the worker %v (%v), want an operation of its own", m, err)
		}
	})
}

// W13: the filter selects sessions by worker, session, queue, workspace, pool and labels, only of
// the caller's tenant and only registered ones.
func TestInstallSelectsSessions(t *testing.T) {
	t.Attr("rules", "W13")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		openInstaller(t, r, "a")
		special := r.OpenStream(t, "b")
		special.Handshake()
		register := installer()
		register.Queues, register.WorkspaceId, register.PoolId = []string{"x", "y"}, "lab", "gpus"
		register.Capabilities.Labels = map[string]string{"zone": "1", "disk": "ssd"}
		special.Send(register)
		r.OpenStream(t, "c").Handshake()
		synctest.Wait()
		session := r.ListedWorker(t, "b").GetSessionId()
		for name, c := range map[string]struct {
			filter *lessorv1.WorkerFilter
			want   string
		}{
			"all":            {&lessorv1.WorkerFilter{}, "a b"},
			"worker":         {&lessorv1.WorkerFilter{WorkerId: "a"}, "a"},
			"session":        {&lessorv1.WorkerFilter{SessionId: session}, "b"},
			"queue":          {&lessorv1.WorkerFilter{Queue: "y"}, "b"},
			"workspace":      {&lessorv1.WorkerFilter{WorkspaceId: "lab"}, "b"},
			"pool":           {&lessorv1.WorkerFilter{PoolId: "gpus"}, "b"},
			"labels":         {&lessorv1.WorkerFilter{Labels: map[string]string{"zone": "1", "disk": "ssd"}}, "b"},
			"another label":  {&lessorv1.WorkerFilter{Labels: map[string]string{"zone": "1", "disk": ""}}, ""},
			"both":           {&lessorv1.WorkerFilter{WorkerId: "a", PoolId: "gpus"}, ""},
			"not registered": {&lessorv1.WorkerFilter{WorkerId: "c"}, ""},
		} {
			res, err := r.Admin.UninstallPackage(t.Context(),
				&lessorv1.UninstallPackageRequest{Name: "n", Version: "1", Workers: c.filter})
			var got []string
			for _, p := range res.GetOperation().GetResults() {
				got = append(got, p.GetWorkerId())
			}
			if strings.Join(got, " ") != c.want || (status.Code(err) == codes.NotFound) != (c.want == "") {
				t.Errorf("%s selects %q (%v), want %q", name, got, err, c.want)
			}
		}
	})
}

// W13, S4: a bad call names the field and the limit, and changes nothing.
func TestBadPackageCalls(t *testing.T) {
	t.Attr("rules", "W13 S4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := openInstaller(t, r, "w")
		good := func(change func(*lessorv1.InstallPackageRequest)) *lessorv1.InstallPackageRequest {
			m := &lessorv1.InstallPackageRequest{Name: "model", Version: "2", Workers: &lessorv1.WorkerFilter{}}
			change(m)
			return m
		}
		for want, req := range map[string]*lessorv1.InstallPackageRequest{
			"name: has no name":             good(func(m *lessorv1.InstallPackageRequest) { m.Name = "" }),
			"name: has a name":              good(func(m *lessorv1.InstallPackageRequest) { m.Name = "a@b" }),
			"name: has 257 bytes":           good(func(m *lessorv1.InstallPackageRequest) { m.Name = wiretest.Text(257) }),
			"version: has no version":       good(func(m *lessorv1.InstallPackageRequest) { m.Version = "" }),
			"version: has a version":        good(func(m *lessorv1.InstallPackageRequest) { m.Version = "1@" }),
			"source: has 2049 bytes":        good(func(m *lessorv1.InstallPackageRequest) { m.Source = wiretest.Text(2049) }),
			"source: is a URL with a user":  good(func(m *lessorv1.InstallPackageRequest) { m.Source = "https://me:pw@models.example" }),
			"source: has a control":         good(func(m *lessorv1.InstallPackageRequest) { m.Source = "a\nb" }),
			"sha256: must have 64":          good(func(m *lessorv1.InstallPackageRequest) { m.Sha256 = "ab" }),
			"wait: is 1m0.001s; the limit":  good(func(m *lessorv1.InstallPackageRequest) { m.Wait = durationpb.New(time.Minute + time.Millisecond) }),
			"workers: must be set":          good(func(m *lessorv1.InstallPackageRequest) { m.Workers = nil }),
			"workers.queue: has 257 bytes":  good(func(m *lessorv1.InstallPackageRequest) { m.Workers.Queue = wiretest.Text(257) }),
			"request_id: has 257 bytes":     good(func(m *lessorv1.InstallPackageRequest) { m.RequestId = wiretest.Text(257) }),
			"workers.worker_id: has 257 by": good(func(m *lessorv1.InstallPackageRequest) { m.Workers.WorkerId = wiretest.Text(257) }),
		} {
			_, err := r.Admin.InstallPackage(t.Context(), req)
			if status.Code(err) != codes.InvalidArgument || !strings.HasPrefix(status.Convert(err).Message(), want) {
				t.Errorf("%v, want INVALID_ARGUMENT with %q", err, want)
			}
		}
		worker.WantNoFrame()
		wantPackages(t, r, "w")
	})
}

// W13, W1: a bad pkg_event, or bad packages in a register, are refused with the field, and change
// nothing. pkg_event may come once the worker has registered.
func TestBadPackageFrames(t *testing.T) {
	t.Attr("rules", "W13 W1")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		early := r.OpenStream(t, "early")
		early.Handshake()
		early.WantError(early.Send(event(installed, "", "")), refusal.CodeUnknown, "pkg_event")
		worker := openInstaller(t, r, "w", "base@1")
		for want, m := range map[string]*lessorv1.PkgEvent{
			"pkg_event.name":          {Version: "2", Status: installed},
			"pkg_event.version":       {Name: "model", Status: installed},
			"pkg_event.status":        {Name: "model", Version: "2"},
			"pkg_event.status: is 99": {Name: "model", Version: "2", Status: 99},
			"pkg_event.operation_id":  {Name: "model", Version: "2", Status: installed, OperationId: wiretest.Text(257)},
			"pkg_event.detail":        {Name: "model", Version: "2", Status: installed, Detail: wiretest.Text(1025)},
			"pkg_event.code":          {Name: "model", Version: "2", Status: installed, Code: "E.PKG.INVALID"},
			"must be E.PKG.INVALID":   {Name: "model", Version: "2", Status: broken, Code: "E.WHAT"},
		} {
			worker.WantError(worker.Send(m), refusal.CodePkgInvalid, want)
		}
		for want, list := range map[string][]*lessorv1.Package{
			"register.packages[0].name":            {{Version: "1"}},
			"register.packages[1].version":         {{Name: "a", Version: "1"}, {Name: "a"}},
			"packages[1].version: comes twice":     {{Name: "a", Version: "1"}, {Name: "a", Version: "1"}},
			"register.packages[0].status":          {{Name: "a", Version: "1", Status: 99}},
			"register.packages[0].detail":          {{Name: "a", Version: "1", Detail: wiretest.Text(1025)}},
			"register.packages: has 257 entries":   make([]*lessorv1.Package, 257),
			"register.packages[0].name: has a nam": {{Name: "a@b", Version: "1"}},
		} {
			m := installer()
			m.Packages = list
			worker.WantError(worker.Send(m), refusal.CodeInvalid, want)
		}
		for i := range 255 {
			worker.Send(&lessorv1.PkgEvent{Name: fmt.Sprint("p", i), Version: "1", Status: installed})
		}
		synctest.Wait()
		worker.WantError(worker.Send(event(installed, "", "")), refusal.CodePkgInvalid, "the limit is 256")
		op := install(t, r, &lessorv1.WorkerFilter{WorkerId: "w"})
		wantOperation(t, "with 256 packages", op, broken, refusal.CodePkgInvalid, 0, 1)
		if n := len(r.ListedWorker(t, "w").GetPackages()); n != 256 {
			t.Errorf("the worker has %d packages, want 256", n)
		}
		worker.WantNoFrame()
		if _, err := r.Workers.Lease(t.Context(), &lessorv1.LeaseRequest{WorkerId: "x", Queues: []string{"q"}, Packages: []string{"a@1", "a"}}); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "packages[1]: has no version") {
			t.Errorf("Lease with a package without a version: %v, want INVALID_ARGUMENT for packages[1]", err)
		}
	})
}

// W13: a worker can have 64 operations under way; the next one is refused until one has ended.
func TestPackageOperationsAreBounded(t *testing.T) {
	t.Attr("rules", "W13")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := openInstaller(t, r, "w")
		order := func(i int) *lessorv1.PackageResult {
			res, err := r.Admin.InstallPackage(t.Context(), &lessorv1.InstallPackageRequest{
				Name: "p", Version: fmt.Sprint(i), Workers: &lessorv1.WorkerFilter{}, RequestId: fmt.Sprint(i),
			})
			if err != nil {
				t.Fatal(err)
			}
			return res.GetOperation().GetResults()[0]
		}
		for i := range 64 {
			order(i)
		}
		if got := order(64); got.GetCode() != refusal.CodeOverloaded {
			t.Errorf("the result of the operation after 64 is %v, want %s", got, refusal.CodeOverloaded)
		}
		worker.Send(&lessorv1.PkgEvent{OperationId: "5", Name: "p", Version: "5", Status: installed})
		synctest.Wait()
		if got := order(65); got.GetStatus() != installing {
			t.Errorf("the result is %v after another operation has ended, want INSTALLING", got)
		}
	})
}

// W13: a worker that refuses has changed nothing, also if it was asked twice, said that it had
// begun, has registered anew since, or the coordinator does not know that it was asked.
func TestRefusalChangesNoPackage(t *testing.T) {
	t.Attr("rules", "W13 W8")
	const refused = refusal.CodePkgPermission
	for name, has := range map[string][]string{"absent": nil, "installed": {"model@2"}} {
		t.Run(name, func(t *testing.T) {
			wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
				worker := openInstaller(t, r, "w", has...)
				var listed []string
				for _, id := range has {
					listed = append(listed, id+" INSTALLED")
				}
				worker.Send(event(broken, refused, "")) // of an operation that is not known
				synctest.Wait()
				wantPackages(t, r, "w", listed...)
				install(t, r, &lessorv1.WorkerFilter{})
				if _, err := r.Admin.InstallPackage(t.Context(), &lessorv1.InstallPackageRequest{
					Name: "model", Version: "2", Workers: &lessorv1.WorkerFilter{}, RequestId: "again",
				}); err != nil {
					t.Fatal(err)
				}
				worker.Send(event(installing, "", "half"))
				register := installer()
				register.Packages = []*lessorv1.Package{{Name: "model", Version: "2", Status: installing, Detail: "half"}}
				worker.Send(register)
				worker.Send(event(broken, refused, ""))
				synctest.Wait()
				wantPackages(t, r, "w", "model@2 INSTALLING half")
				second := event(broken, refused, "")
				second.OperationId = "again"
				worker.Send(second)
				synctest.Wait()
				wantPackages(t, r, "w", listed...)
			})
		})
	}
}

// W13: a package that is to go away is not promised to tasks any more, also if the worker registers
// before it has read that it has to remove it.
func TestRegisterBesideAPackageOrder(t *testing.T) {
	t.Attr("rules", "W13")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := openInstaller(t, r, "w", "model@2")
		if _, err := r.Admin.UninstallPackage(t.Context(), &lessorv1.UninstallPackageRequest{
			Name: "model", Version: "2", Workers: &lessorv1.WorkerFilter{}, RequestId: "op",
		}); err != nil {
			t.Fatal(err)
		}
		wiretest.NextPayload[*lessorv1.PkgUninstall](worker)
		worker.Send(installer("model@2"))
		submitFor(t, r, "model")
		worker.WantNoFrame()
		wantPackages(t, r, "w", "model@2 UNINSTALLING")
		worker.Send(event(broken, "E.INTERNAL", ""))
		worker.Send(&lessorv1.PkgEvent{Name: "model", Version: "2", Status: installed})
		worker.ReceiveAssignments(1)
	})
}

// W13, X4: the end of an operation that a worker tells twice, because it has not got the
// acknowledgement, has one entry in the audit.
func TestRepeatedEndOfAPackageOperation(t *testing.T) {
	t.Attr("rules", "W13 X4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := openInstaller(t, r, "w")
		install(t, r, &lessorv1.WorkerFilter{})
		for range 3 {
			worker.Send(event(installed, "", ""))
		}
		synctest.Wait()
		if n := len(r.AuditEvents(t.Context(), t, &lessorv1.ListAuditEventsRequest{Action: "PkgEvent"})); n != 1 {
			t.Errorf("%d entries, want 1", n)
		}
		worker.Send(event(broken, "", "")) // is no repeat
		synctest.Wait()
		if n := len(r.AuditEvents(t.Context(), t, &lessorv1.ListAuditEventsRequest{Action: "PkgEvent"})); n != 2 {
			t.Errorf("%d entries after another end, want 2", n)
		}
	})
}

// W13: an install and a removal of the same package with the same request_id are not under way at
// once: nobody could tell which of the two has failed.
func TestOppositePackageOrders(t *testing.T) {
	t.Attr("rules", "W13")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := openInstaller(t, r, "w")
		install(t, r, &lessorv1.WorkerFilter{})
		wiretest.NextPayload[*lessorv1.PkgInstall](worker)
		res, err := r.Admin.UninstallPackage(t.Context(), &lessorv1.UninstallPackageRequest{
			Name: "model", Version: "2", Workers: &lessorv1.WorkerFilter{}, RequestId: "op",
		})
		if err != nil {
			t.Fatal(err)
		}
		wantOperation(t, "the removal", res.GetOperation(), broken, refusal.CodePkgInvalid, 0, 1)
		worker.WantNoFrame()
		worker.Send(event(installed, "", ""))
		synctest.Wait()
		wantOperation(t, "the install", install(t, r, &lessorv1.WorkerFilter{}), installed, "", 1, 0)
	})
}

// W13: a package that cannot be noted because the worker has too many can fail all the same.
func TestPackageOperationOfAFullWorker(t *testing.T) {
	t.Attr("rules", "W13")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := openInstaller(t, r, "w")
		install(t, r, &lessorv1.WorkerFilter{})
		wiretest.NextPayload[*lessorv1.PkgInstall](worker)
		for i := range 256 {
			worker.Send(&lessorv1.PkgEvent{Name: "p", Version: fmt.Sprint(i), Status: installed})
		}
		synctest.Wait()
		worker.Send(event(broken, "", "full"))
		synctest.Wait()
		worker.WantNoFrame()
		wantOperation(t, "after the event", install(t, r, &lessorv1.WorkerFilter{}), broken, refusal.CodeInternal, 0, 1)
	})
}

// X4: a password in the source of a package is not kept in the audit, although the call is.
func TestPasswordInASource(t *testing.T) {
	t.Attr("rules", "W13 X4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		for _, source := range []string{
			"https://me:secret@models.example/2", "https://me:100%secret@models.example/2", "https://me:a?secret@models.example", "https://me:a/secret@models.example",
		} {
			_, err := r.Admin.InstallPackage(t.Context(), &lessorv1.InstallPackageRequest{
				Name: "model", Version: "2", Source: source, Workers: &lessorv1.WorkerFilter{},
			})
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("%s: %v, want INVALID_ARGUMENT", source, err)
			}
		}
		for _, a := range r.AuditEvents(t.Context(), t, wiretest.WholeAudit()) {
			if strings.Contains(a.GetDetail(), "secret") || strings.Contains(a.GetDetail(), "me:") {
				t.Errorf("the audit has %q, want no password", a.GetDetail())
			}
		}
		openInstaller(t, r, "w")
		for _, source := range []string{"registry.example:5000/model@sha256:00", "docker://registry.example/model@sha256:00", `C:\models@2`, "me@host:model"} {
			if _, err := r.Admin.InstallPackage(t.Context(), &lessorv1.InstallPackageRequest{
				Name: "model", Version: "2", Source: source, Workers: &lessorv1.WorkerFilter{},
			}); err != nil {
				t.Errorf("%s: %v, want it taken", source, err)
			}
		}
	})
}

// W13, W8: an order that is given to a stream after the next one has taken over its session counts
// on the new one: the call selects the streams before the disk has its entry of the audit.
func TestPackageOrderToAStreamThatWasDisplaced(t *testing.T) {
	t.Attr("rules", "W13 W8")
	synctest.Test(t, func(t *testing.T) {
		p := newPlay(t)
		defer p.end()
		p.play([]byte("OHV"))
		selected := p.c.Sessions.Select(gate.DefaultTenant, session.Filter{})
		p.play([]byte("OUV"))
		p.c.Sessions.CarryOut(gate.DefaultTenant,
			session.PackageOrder{Operation: "op", Name: "p", Version: "0", Remove: true}, selected)
		p.play([]byte("M"))
		if len(selected) != 1 || len(p.leases) > 0 {
			t.Errorf("%d sessions, %d tasks are granted to the worker that has to remove their package, want 1 and none", len(selected), len(p.leases))
		}
	})
}
