package worker_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
)

// shelf is an installer that notes its calls. do, if set, is what a call does.
type shelf struct {
	do func(ctx context.Context, call string) error

	mu    sync.Mutex
	calls []string
}

func (s *shelf) Install(ctx context.Context, p worker.PackageInstall) error {
	return s.call(ctx, strings.TrimRight(fmt.Sprintf("%s: + %v %s %s", p.OperationID, p, p.Source, p.SHA256), " "))
}

func (s *shelf) Uninstall(ctx context.Context, p worker.PackageUninstall) error {
	return s.call(ctx, fmt.Sprintf("%s: - %v", p.OperationID, p))
}

func (s *shelf) call(ctx context.Context, call string) error {
	s.mu.Lock()
	s.calls = append(s.calls, call)
	s.mu.Unlock()
	if s.do == nil {
		return nil
	}
	return s.do(ctx, call)
}

func (s *shelf) want(t *testing.T, calls ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.calls, calls) {
		t.Errorf("calls %q, want %q", s.calls, calls)
	}
}

// held makes each call wait until the function that it returns is called, which takes the error of
// the call.
func (s *shelf) held() (end func(error)) {
	ends := make(chan error)
	s.do = func(context.Context, string) error { return <-ends }
	return func(err error) { ends <- err }
}

func installFrame(id, name, version string) *lessorv1.SessionResponse {
	return &lessorv1.SessionResponse{
		Ack: &lessorv1.Ack{Request: true}, Payload: &lessorv1.SessionResponse_PkgInstall{
			PkgInstall: &lessorv1.PkgInstall{OperationId: id, Name: name, Version: version},
		},
	}
}

func uninstallFrame(id, name, version string) *lessorv1.SessionResponse {
	return &lessorv1.SessionResponse{
		Ack: &lessorv1.Ack{Request: true}, Payload: &lessorv1.SessionResponse_PkgUninstall{
			PkgUninstall: &lessorv1.PkgUninstall{OperationId: id, Name: name, Version: version},
		},
	}
}

func isPkgEvent(f *lessorv1.SessionRequest) bool { return f.GetPkgEvent() != nil }

// event returns the next event of a package, as told describes it.
func (s *stream) event() string {
	s.t.Helper()
	return told(s.next("pkg_event", isPkgEvent).GetPkgEvent())
}

// told describes an event: "op1: foo@1 FAILED E.INTERNAL because".
func told(e *lessorv1.PkgEvent) string {
	status := strings.TrimPrefix(e.GetStatus().String(), "PACKAGE_STATUS_")
	return strings.TrimRight(fmt.Sprintf("%s: %s@%s %s %s %s", e.GetOperationId(), e.GetName(), e.GetVersion(), status,
		e.GetCode(), e.GetDetail()), " ")
}

// wantEvents checks the next events.
func (s *stream) wantEvents(want ...string) {
	s.t.Helper()
	for _, w := range want {
		if got := s.event(); got != w {
			s.t.Errorf("event %q, want %q", got, w)
		}
	}
}

// inventory describes the packages in register.
func (s *stream) inventory() (packages []string) {
	for _, p := range s.register.GetRegister().GetPackages() {
		packages = append(packages, strings.TrimPrefix(told(&lessorv1.PkgEvent{
			Name: p.GetName(), Version: p.GetVersion(), Status: p.GetStatus(), Detail: p.GetDetail(),
		}), ": "))
	}
	return packages
}

// reconnect breaks the stream and returns the next one, which resumes the session.
func (c *coordinator) reconnect(s *stream) *stream {
	c.t.Helper()
	s.finish(errBroken)
	return c.accept()
}

func wantInventory(t *testing.T, s *stream, want ...string) {
	t.Helper()
	if got := s.inventory(); !slices.Equal(got, want) {
		t.Errorf("register has %q, want %q", got, want)
	}
}

// W13: register says what is installed when the worker starts, and whether it installs packages.
func TestRegisterOfPackages(t *testing.T) {
	t.Attr("rules", "W13")
	for name, installer := range map[string]worker.Installer{"installer": &shelf{}, "no installer": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				mine := []worker.Package{
					{Name: "foo", Version: "2"},
					{Name: "@org/bar", Version: "1"},
					{Name: "foo", Version: "1"},
				}
				r := c.run(worker.Config{Packages: mine, Installer: installer}, echo)
				mine[0].Name = "changed"
				s := c.accept()
				wantInventory(t, s, "@org/bar@1 INSTALLED", "foo@1 INSTALLED", "foo@2 INSTALLED")
				if got := s.register.GetRegister().GetInstallsPackages(); got != (installer != nil) {
					t.Errorf("installs_packages = %v with the installer %v", got, installer)
				}
				r.shutdown()
			})
		})
	}
}

// W13, W6: an operation is acknowledged at once, told when it begins and when it is done, and
// changes the inventory. Tasks go on meanwhile, and another operation waits for its end.
func TestInstallAndUninstall(t *testing.T) {
	t.Attr("rules", "W6 W13")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		var i shelf
		end := i.held()
		r := c.run(worker.Config{Installer: &i}, echo)
		s := c.accept()
		sum := strings.Repeat("0a", 32)
		frame := installFrame("op1", "foo", "1")
		frame.GetPkgInstall().Source, frame.GetPkgInstall().Sha256 = "https://example.com/foo", sum
		synctest.Wait() // the first heartbeat would take the acknowledgement along
		asked := time.Now()
		s.send(frame)
		f := s.next("acknowledgement", func(f *lessorv1.SessionRequest) bool { return f.GetAck().GetFor() == frame.GetId() })
		if got := told(f.GetPkgEvent()); got != "op1: foo@1 INSTALLING" || time.Since(asked) > lull || !f.GetAck().GetRequest() {
			t.Errorf("after %v: %v, want an event that asks for an acknowledgement, at once", time.Since(asked), f)
		}
		s.send(uninstallFrame("op2", "bar", "1"))
		s.dispatch("t1")
		s.started("t1")
		f, _ = s.outcome()
		s.commit(f)
		s.quiet("event while the installer works", isPkgEvent)
		i.want(t, "op1: + foo@1 https://example.com/foo "+sum)
		end(nil)
		s.wantEvents("op1: foo@1 INSTALLED", "op2: bar@1 UNINSTALLING")
		end(nil)
		s.wantEvents("op2: bar@1 UNINSTALLED")
		s = c.reconnect(s)
		wantInventory(t, s, "foo@1 INSTALLED")
		s.send(uninstallFrame("op3", "foo", "1"))
		s.wantEvents("op3: foo@1 UNINSTALLING")
		end(nil)
		s.wantEvents("op3: foo@1 UNINSTALLED")
		i.want(t, "op1: + foo@1 https://example.com/foo "+sum, "op2: - bar@1", "op3: - foo@1")
		s = c.reconnect(s)
		wantInventory(t, s)
		r.shutdown()
	})
}

// textless is an error whose text cannot be had.
type textless struct{}

func (textless) Error() string { panic("no text") }

// W13: the code and the detail of a failure are those of the error. A panic and runtime.Goexit are
// failures, and the next operation begins.
func TestInstallerFails(t *testing.T) {
	t.Attr("rules", "W13")
	for name, test := range map[string]struct {
		do           func() error
		code, detail string
	}{
		"invalid":    {func() error { return worker.ErrPackageInvalid }, "E.PKG.INVALID", "package invalid"},
		"permission": {func() error { return fmt.Errorf("%w: no", worker.ErrPackagePermission) }, "E.PKG.PERMISSION", "package not permitted: no"},
		"other":      {func() error { return io.ErrUnexpectedEOF }, "E.INTERNAL", "unexpected EOF"},
		"long":       {func() error { return errors.New("x" + strings.Repeat("é", 1<<10)) }, "E.INTERNAL", "x" + strings.Repeat("é", 511)},
		"not UTF-8":  {func() error { return errors.New("\xff") }, "E.INTERNAL", "\uFFFD"},
		"panic":      {func() error { panic("oh") }, "E.INTERNAL", "panic: oh"},
		"bad error":  {func() error { return textless{} }, "E.INTERNAL", "panic: no text"},
		"Goexit":     {func() error { runtime.Goexit(); return nil }, "E.INTERNAL", "the installer called runtime.Goexit"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				i := shelf{do: func(_ context.Context, call string) error {
					if strings.HasPrefix(call, "op1") {
						return test.do()
					}
					return nil
				}}
				r := c.run(worker.Config{Installer: &i}, echo)
				s := c.accept()
				s.send(installFrame("op1", "foo", "1"))
				s.send(uninstallFrame("op2", "bar", "1"))
				failed := fmt.Sprintf("op1: foo@1 FAILED %s %s", test.code, test.detail)
				if len(test.detail) > 1<<10 || !utf8.ValidString(failed) {
					t.Errorf("bad test: the detail has %d bytes", len(test.detail))
				}
				s.wantEvents("op1: foo@1 INSTALLING", failed, "op2: bar@1 UNINSTALLING", "op2: bar@1 UNINSTALLED")
				s = c.reconnect(s)
				if test.code == "E.PKG.PERMISSION" {
					wantInventory(t, s)
				} else {
					wantInventory(t, s, "foo@1 FAILED  "+test.detail)
				}
				r.shutdown()
			})
		})
	}
}

// W13, W6: an operation that comes again is not carried out again, whether it waits, runs or has
// ended, on the same stream or on a later one. If it has ended, its end is told again.
func TestOperationComesAgain(t *testing.T) {
	t.Attr("rules", "W6 W13")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		var i shelf
		end := i.held()
		r := c.run(worker.Config{Installer: &i}, echo)
		s := c.accept()
		both := func() {
			t.Helper()
			s.send(installFrame("op1", "foo", "1"))
			s.send(uninstallFrame("op2", "bar", "1"))
		}
		both()
		s.wantEvents("op1: foo@1 INSTALLING")
		both()
		s.quiet("event", isPkgEvent)
		s = c.reconnect(s)
		both()
		s.quiet("event", isPkgEvent)
		end(errors.New("because"))
		s.wantEvents("op1: foo@1 FAILED E.INTERNAL because", "op2: bar@1 UNINSTALLING")
		end(nil)
		s.wantEvents("op2: bar@1 UNINSTALLED")
		for range 2 {
			both()
			s.wantEvents("op1: foo@1 FAILED E.INTERNAL because", "op2: bar@1 UNINSTALLED")
			s = c.reconnect(s)
		}
		i.want(t, "op1: + foo@1", "op2: - bar@1")
		r.shutdown()
	})
}

// An end that is told again must not hide what has become of the package since.
func TestOperationComesAgainAfterAnother(t *testing.T) {
	t.Attr("rules", "W13")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		i := shelf{do: func(_ context.Context, call string) error {
			if strings.HasPrefix(call, "op2") {
				return errors.New("because")
			}
			return nil
		}}
		r := c.run(worker.Config{Installer: &i}, echo)
		s := c.accept()
		s.send(installFrame("op1", "foo", "1"))
		s.send(installFrame("op2", "foo", "1"))
		s.wantEvents("op1: foo@1 INSTALLING", "op1: foo@1 INSTALLED",
			"op2: foo@1 INSTALLING", "op2: foo@1 FAILED E.INTERNAL because")
		s.send(installFrame("op1", "foo", "1"))
		s.wantEvents("op1: foo@1 INSTALLED", ": foo@1 FAILED  because")
		r.shutdown()
	})
}

// W13: what a worker cannot do, or does not understand, fails at once, and changes nothing in the
// inventory.
func TestOperationRefused(t *testing.T) {
	t.Attr("rules", "W13")
	long := strings.Repeat("x", 257)
	badSum := installFrame("op1", "foo", "1")
	badSum.GetPkgInstall().Sha256 = strings.Repeat("0A", 32)
	for name, test := range map[string]struct {
		frame *lessorv1.SessionResponse
		want  string
	}{
		"empty":      {&lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_PkgInstall{}}, ": @ FAILED E.PKG.INVALID name must not be empty"},
		"no name":    {uninstallFrame("op1", "", "1"), "op1: @1 FAILED E.PKG.INVALID name must not be empty"},
		"no version": {installFrame("op1", "foo", ""), "op1: foo@ FAILED E.PKG.INVALID version must not be empty"},
		"no id":      {uninstallFrame("", "bar", "1"), ": bar@1 FAILED E.PKG.INVALID operation_id must not be empty"},
		"at":         {installFrame("op1", "@foo@", "1"), `op1: @foo@@1 FAILED E.PKG.INVALID name "@foo@" has a misplaced @`},
		"at first":   {installFrame("op1", "foo", "@1"), `op1: foo@@1 FAILED E.PKG.INVALID version "@1" has a misplaced @`},
		"control":    {installFrame("op1", "foo", "\n"), "op1: foo@  FAILED E.PKG.INVALID version \"\\n\" has a control character"},
		"long":       {installFrame("op1", long, "1"), "op1: " + long[1:] + "@1 FAILED E.PKG.INVALID name has 257 bytes; at most 256 are allowed"},
		"sha256":     {badSum, "op1: foo@1 FAILED E.PKG.INVALID sha256 must be 64 lower-case hexadecimal digits"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				var i shelf
				r := c.run(worker.Config{Installer: &i}, echo)
				s := c.accept()
				s.send(test.frame)
				s.wantEvents(test.want)
				s = c.reconnect(s)
				wantInventory(t, s)
				i.want(t)
				r.shutdown()
			})
		})
	}
}

// W13: a worker without an installer refuses, and what it has stays installed for the coordinator.
func TestNoInstaller(t *testing.T) {
	t.Attr("rules", "W13")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{Packages: []worker.Package{{Name: "foo", Version: "1"}}}, echo)
		s := c.accept()
		s.send(uninstallFrame("op1", "foo", "1"))
		s.send(installFrame("op2", "bar", "1"))
		s.wantEvents("op1: foo@1 FAILED E.PKG.PERMISSION the worker installs no packages",
			": foo@1 INSTALLED", "op2: bar@1 FAILED E.PKG.PERMISSION the worker installs no packages")
		r.shutdown()
	})
}

// W13: the context of an installer that hangs ends after InstallerTimeout. Then its operation
// fails, and the next one begins.
func TestInstallerHangs(t *testing.T) {
	t.Attr("rules", "W13")
	for set, want := range map[time.Duration]time.Duration{0: time.Hour, 5 * time.Minute: 5 * time.Minute, math.MaxInt64: 0} {
		t.Run(set.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				i := shelf{do: func(ctx context.Context, call string) error {
					if strings.HasPrefix(call, "op2") {
						return nil
					}
					<-ctx.Done()
					return context.Cause(ctx)
				}}
				r := c.run(worker.Config{Installer: &i, InstallerTimeout: set}, echo)
				s := c.accept()
				s.send(uninstallFrame("op1", "foo", "1"))
				s.send(installFrame("op2", "bar", "1"))
				s.wantEvents("op1: foo@1 UNINSTALLING")
				time.Sleep(cmp.Or(want, 24*time.Hour) - 1)
				s.quiet("event", isPkgEvent)
				if want == 0 {
					r.stop()
					s.wantEvents("op2: bar@1 FAILED E.PKG.PERMISSION the worker is draining",
						"op1: foo@1 FAILED E.INTERNAL worker is draining: the worker is stopping")
					_ = r.done()
					return
				}
				time.Sleep(time.Nanosecond)
				s.wantEvents(fmt.Sprintf("op1: foo@1 FAILED E.INTERNAL the time limit of the installer, %v, is over", want),
					"op2: bar@1 INSTALLING", "op2: bar@1 INSTALLED")
				r.shutdown()
			})
		})
	}
}

// W13: an installer that refuses has changed nothing: the package stays what it was.
func TestInstallerRefuses(t *testing.T) {
	t.Attr("rules", "W13")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		i := shelf{do: func(context.Context, string) error { return worker.ErrPackagePermission }}
		r := c.run(worker.Config{Installer: &i, Packages: []worker.Package{{Name: "foo", Version: "1"}}}, echo)
		s := c.accept()
		s.send(uninstallFrame("op1", "foo", "1"))
		s.wantEvents("op1: foo@1 UNINSTALLING", "op1: foo@1 FAILED E.PKG.PERMISSION package not permitted", ": foo@1 INSTALLED")
		s = c.reconnect(s)
		wantInventory(t, s, "foo@1 INSTALLED")
		r.shutdown()
	})
}

// An operation_id names one operation about a package; it may name others about other packages, and
// the removal of this one.
func TestOperationIDOfAnotherOperation(t *testing.T) {
	t.Attr("rules", "W13")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		var i shelf
		r := c.run(worker.Config{Installer: &i}, echo)
		s := c.accept()
		s.send(installFrame("op1", "foo", "1"))
		s.wantEvents("op1: foo@1 INSTALLING", "op1: foo@1 INSTALLED")
		other := installFrame("op1", "foo", "1")
		other.GetPkgInstall().Source = "elsewhere"
		s.send(other)
		s.wantEvents("op1: foo@1 FAILED E.PKG.INVALID the operation_id is that of another operation", ": foo@1 INSTALLED")
		s.send(installFrame("op1", "foo", "2"))
		s.wantEvents("op1: foo@2 INSTALLING", "op1: foo@2 INSTALLED")
		s.send(uninstallFrame("op1", "foo", "1"))
		s.wantEvents("op1: foo@1 UNINSTALLING", "op1: foo@1 UNINSTALLED")
		i.want(t, "op1: + foo@1", "op1: + foo@2", "op1: - foo@1")
		r.shutdown()
	})
}

// An end that is told again must not make the coordinator believe in a package that was removed
// since.
func TestOperationComesAgainAfterTheRemoval(t *testing.T) {
	t.Attr("rules", "W13")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		var i shelf
		r := c.run(worker.Config{Installer: &i}, echo)
		s := c.accept()
		s.send(installFrame("op1", "foo", "1"))
		s.send(uninstallFrame("op2", "foo", "1"))
		s.wantEvents("op1: foo@1 INSTALLING", "op1: foo@1 INSTALLED", "op2: foo@1 UNINSTALLING", "op2: foo@1 UNINSTALLED")
		s.send(installFrame("op1", "foo", "1"))
		s.wantEvents("op1: foo@1 INSTALLED", ": foo@1 UNINSTALLED")
		r.shutdown()
	})
}

// W13: a worker has at most 256 packages, what register may name, and as many operations wait in
// it. Removing one makes room.
func TestManyPackages(t *testing.T) {
	t.Attr("rules", "W13")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		var i shelf
		end := i.held()
		var full []worker.Package
		for n := range 256 {
			full = append(full, worker.Package{Name: "foo", Version: fmt.Sprint(n)})
		}
		r := c.run(worker.Config{Installer: &i, Packages: full}, echo)
		s := c.accept()
		s.send(installFrame("op1", "bar", "1"))
		s.wantEvents("op1: bar@1 FAILED E.PKG.PERMISSION the worker has 256 packages already, those that FAILED included")
		s.send(uninstallFrame("op2", "bar", "1"))
		s.wantEvents("op2: bar@1 UNINSTALLING")
		for n := range 257 {
			s.send(uninstallFrame(fmt.Sprint("u", n), "foo", fmt.Sprint(n%256)))
		}
		s.wantEvents("u256: foo@0 FAILED E.PKG.PERMISSION 256 operations wait in the worker already", ": foo@0 INSTALLED")
		end(nil)
		s.wantEvents("op2: bar@1 UNINSTALLED", "u0: foo@0 UNINSTALLING")
		s.send(installFrame("op3", "bar", "1"))
		for n := range 256 {
			end(nil)
			if s.wantEvents(fmt.Sprintf("u%d: foo@%d UNINSTALLED", n, n)); n < 255 {
				s.wantEvents(fmt.Sprintf("u%d: foo@%d UNINSTALLING", n+1, n+1))
			}
		}
		s.wantEvents("op3: bar@1 INSTALLING")
		end(nil)
		s.wantEvents("op3: bar@1 INSTALLED")
		s = c.reconnect(s)
		wantInventory(t, s, "bar@1 INSTALLED")
		r.shutdown()
	})
}

// W13, W8: an operation goes on while there is no stream. The register of the next stream says how
// far it is, and the end that was not acknowledged is told again, on this stream and on the next
// ones; that an operation has begun is in the register.
func TestEndOfOperationIsNotLost(t *testing.T) {
	t.Attr("rules", "W6 W8 W13")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		c.withTokens()
		var i shelf
		end := i.held()
		r := c.run(worker.Config{Installer: &i}, echo)
		s := c.accept()
		s.mute.Store(true)
		s.send(installFrame("op1", "foo", "1"))
		s.wantEvents("op1: foo@1 INSTALLING")
		s = c.reconnect(s)
		wantInventory(t, s, "foo@1 INSTALLING")
		s.quiet("event that register replaces", isPkgEvent)
		s.mute.Store(true)
		s.send(uninstallFrame("op2", "bar", "1"))
		end(nil)
		s.wantEvents("op1: foo@1 INSTALLED", "op2: bar@1 UNINSTALLING")
		s.wantEvents("op1: foo@1 INSTALLED") // after 200 ms
		s.finish(errBroken)
		end(nil)
		s = c.accept()
		wantInventory(t, s, "foo@1 INSTALLED")
		s.wantEvents("op1: foo@1 INSTALLED", "op2: bar@1 UNINSTALLED")
		s = c.reconnect(s)
		s.quiet("event that was acknowledged", isPkgEvent)
		r.shutdown()
	})
}

// W13: an end that comes late, after a register, must not hide that the package is being installed
// again.
func TestLateEndIsNotTheStatus(t *testing.T) {
	t.Attr("rules", "W13")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		var i shelf
		end := i.held()
		r := c.run(worker.Config{Installer: &i}, echo)
		s := c.accept()
		s.mute.Store(true)
		s.send(installFrame("op1", "foo", "1"))
		s.send(installFrame("op2", "foo", "1"))
		s.wantEvents("op1: foo@1 INSTALLING")
		end(nil)
		s.wantEvents("op1: foo@1 INSTALLED", "op2: foo@1 INSTALLING")
		s = c.reconnect(s)
		wantInventory(t, s, "foo@1 INSTALLING")
		s.wantEvents("op1: foo@1 INSTALLED", ": foo@1 INSTALLING")
		end(nil)
		s.wantEvents("op2: foo@1 INSTALLED")
		r.shutdown()
	})
}

// W10, W13: in a drain the operation under way goes on, those that wait or come are refused, which
// changes no package, and the worker waits for the acknowledgement of the end.
func TestDrainWaitsForOperation(t *testing.T) {
	t.Attr("rules", "W10 W13")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		var i shelf
		end := i.held()
		r := c.run(worker.Config{Installer: &i}, echo)
		s := c.accept()
		s.send(installFrame("op1", "foo", "1"))
		s.send(installFrame("op2", "bar", "1"))
		s.wantEvents("op1: foo@1 INSTALLING")
		r.stop()
		s.wantEvents("op2: bar@1 FAILED E.PKG.PERMISSION the worker is draining")
		s.send(uninstallFrame("op3", "foo", "1"))
		s.wantEvents("op3: foo@1 FAILED E.PKG.PERMISSION the worker is draining", ": foo@1 INSTALLING")
		time.Sleep(29 * time.Second)
		s.quiet("goodbye", isGoodbye)
		s.mute.Store(true)
		end(nil)
		f := s.next("end", isPkgEvent)
		if got := told(f.GetPkgEvent()); got != "op1: foo@1 INSTALLED" {
			t.Errorf("event %q, want the end of op1", got)
		}
		s.send(&lessorv1.SessionResponse{}) // acknowledges nothing
		s.quiet("goodbye before the acknowledgement", isGoodbye)
		s.mute.Store(false)
		s.acknowledgeFrame(f)
		s.next("goodbye", isGoodbye)
		if err := r.done(); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
}

// W10, W13: after DrainTimeout the context of the installer ends with ErrDraining; after
// StopTimeout Run returns without it.
func TestDrainStopsInstaller(t *testing.T) {
	t.Attr("rules", "W10 W13")
	for name, test := range map[string]struct {
		stuck, muted bool
		want         error
		after        time.Duration
	}{
		"stops":          {want: nil, after: 10 * time.Second},
		"stuck":          {stuck: true, want: worker.ErrStuck, after: 15 * time.Second},
		"unacknowledged": {muted: true, want: worker.ErrUndelivered, after: 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				free := make(chan bool)
				defer close(free)
				i := shelf{do: func(ctx context.Context, _ string) error {
					<-ctx.Done()
					if test.stuck {
						<-free
					}
					return context.Cause(ctx)
				}}
				r := c.run(worker.Config{Installer: &i, DrainTimeout: 10 * time.Second, StopTimeout: 5 * time.Second}, echo)
				s := c.accept()
				s.send(installFrame("op1", "foo", "1"))
				s.wantEvents("op1: foo@1 INSTALLING")
				begun := time.Now()
				r.stop()
				s.next("drain", isDrain)
				synctest.Wait()
				s.mute.Store(test.muted)
				if !test.stuck {
					s.wantEvents("op1: foo@1 FAILED E.INTERNAL worker is draining: the worker is stopping")
				}
				if err := r.done(); !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
					t.Errorf("Run = %v, want %v", err, test.want)
				}
				if got := time.Since(begun); got != test.after {
					t.Errorf("Run took %v, want %v", got, test.after)
				}
			})
		})
	}
}

// A worker that the coordinator refuses for good stops its installer at once.
func TestRefusedWorkerStopsInstaller(t *testing.T) {
	t.Attr("rules", "W13")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		causes := make(chan error, 1)
		i := shelf{do: func(ctx context.Context, _ string) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil
		}}
		r := c.run(worker.Config{Installer: &i}, echo)
		s := c.accept()
		s.send(installFrame("op1", "foo", "1"))
		s.wantEvents("op1: foo@1 INSTALLING")
		begun := time.Now()
		_ = c.conn.Close()
		if err := r.done(); !errors.Is(err, worker.ErrConnClosed) || errors.Is(err, worker.ErrStuck) || time.Since(begun) > time.Second {
			t.Errorf("after %v: Run = %v, want %v alone at once", time.Since(begun), err, worker.ErrConnClosed)
		}
		if cause := <-causes; !errors.Is(cause, worker.ErrDraining) {
			t.Errorf("cause = %v, want %v", cause, worker.ErrDraining)
		}
	})
}

// An error of Config.Packages names the field.
func TestConfigOfPackages(t *testing.T) {
	t.Attr("rules", "W13")
	c := startCoordinator(t)
	foo := worker.Package{Name: "foo", Version: "1"}
	for want, packages := range map[string][]worker.Package{
		"a name in Config.Packages must not be empty":    {{Version: "1"}},
		`a name in Config.Packages "a@b" has`:            {{Name: "a@b", Version: "1"}},
		"a version in Config.Packages must not be empty": {{Name: "foo"}},
		`a version in Config.Packages "@" has`:           {{Name: "foo", Version: "@"}},
		`a version in Config.Packages "\x7f" has`:        {foo, {Name: "foo", Version: "\x7f"}},
		"a version in Config.Packages has 257 bytes":     {{Name: "foo", Version: strings.Repeat("1", 257)}},
		`Config.Packages has "foo@1" twice`:              {foo, {Name: "foo", Version: "2"}, foo},
		"Config.Packages has 257 entries":                make([]worker.Package, 257),
	} {
		if _, err := worker.New(c.conn, []string{"q"}, worker.Config{Packages: packages}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New = %v, want an error with %q", err, want)
		}
	}
	if _, err := worker.New(c.conn, []string{"q"}, worker.Config{Packages: []worker.Package{{Name: "@", Version: "1"}}}); err != nil {
		t.Errorf("New = %v for a name that begins with @", err)
	}
}
