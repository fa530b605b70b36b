package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Package is a version of something that tasks may require of a worker: a program, a model, a data
// set (W13).
type Package struct {
	// Name has 1 to 256 bytes, no control characters, and no "@" but as its first byte.
	Name string
	// Version has 1 to 256 bytes, no control characters and no "@".
	Version string
}

// String returns NAME@VERSION.
func (p Package) String() string { return p.Name + "@" + p.Version }

// PackageInstall is a package that an operator wants on this worker.
type PackageInstall struct {
	Package
	// OperationID names what the operator asked for, in the audit and in logs.
	OperationID string
	// Source says where the package is, in words that the installer understands, such as a URL. May
	// be empty.
	Source string
	// SHA256 is that of what is there, as 64 lower-case hexadecimal digits. Empty: not known.
	SHA256 string
}

// PackageUninstall is a package that an operator does not want on this worker any more.
type PackageUninstall struct {
	Package
	// OperationID names what the operator asked for, in the audit and in logs.
	OperationID string
}

// Installer installs and removes packages when an operator asks for it (W13). The worker calls it
// for one operation at a time, in a goroutine of its own: tasks go on meanwhile, but no task that
// requires the package is granted to this worker. Each operation is carried out once, and its end
// is told until the coordinator has acknowledged it, also on a later stream.
//
// nil means that it is done. An error that is ErrPackageInvalid or ErrPackagePermission tells the
// operator so; any other error, a panic or runtime.Goexit is E.INTERNAL. The operator sees the
// first 1,024 bytes of the text of the error. With ErrPackagePermission the package is as it was
// before; with any other error it counts as FAILED, and tasks that require it go elsewhere.
//
// ctx ends after Config.InstallerTimeout, with context.DeadlineExceeded. The operation ends only
// when the Installer returns, and the next one does not begin before: one that ignores ctx holds up
// all others until the worker stops.
//
// ctx also ends if the worker stops, as the context of a handler does. Once a drain has begun, no
// operation begins: those that wait are refused, with E.PKG.PERMISSION. The one under way may go on
// for Config.DrainTimeout; then ctx ends with ErrDraining. Run waits for its end, and for the
// coordinator's acknowledgement, for Config.StopTimeout at most.
type Installer interface {
	// Install installs a package. One that is there already may be installed again, from another
	// source or to repair it. If SHA256 is not empty and what it gets has another one, it returns
	// ErrPackageInvalid.
	Install(ctx context.Context, p PackageInstall) error
	// Uninstall removes a package. To remove one that is not there succeeds.
	Uninstall(ctx context.Context, p PackageUninstall) error
}

// Errors that an Installer may return, wrapped or not.
var (
	// ErrPackageInvalid: there is no such package, or it is not what it should be (E.PKG.INVALID).
	ErrPackageInvalid = errors.New("package invalid")
	// ErrPackagePermission: the worker may not or will not do it, and has changed nothing
	// (E.PKG.PERMISSION).
	ErrPackagePermission = errors.New("package not permitted")
)

// codeOfInstaller returns the code of an error of an Installer.
func codeOfInstaller(err error) string {
	switch {
	case errors.Is(err, ErrPackageInvalid):
		return codePackageInvalid
	case errors.Is(err, ErrPackagePermission):
		return codePackagePermission
	}
	return codeInternal
}

// check checks a package; the arguments say what its fields are called.
func (p Package) check(name, version string) error {
	return cmp.Or(
		checkName(name, p.Name),
		checkName(version, p.Version),
		checkAt(name, p.Name, 0),
		checkAt(version, p.Version, -1),
	)
}

// checkAt checks that the last "@" is at most at the given index: "@" divides a name from a
// version.
func checkAt(field, id string, most int) error {
	if strings.LastIndexByte(id, '@') > most {
		return fmt.Errorf("worker: %s %q has a misplaced @", field, id)
	}
	return nil
}

// checkPackages checks Config.Packages.
func checkPackages(packages []Package) error {
	if err := checkCount("Config.Packages", len(packages), maxPackages); err != nil {
		return err
	}
	seen := make(map[Package]bool)
	for _, p := range packages {
		if err := p.check("a name in Config.Packages", "a version in Config.Packages"); err != nil {
			return err
		}
		if seen[p] {
			return fmt.Errorf("worker: Config.Packages has %q twice", p)
		}
		seen[p] = true
	}
	return nil
}

// inventory holds the packages of the worker, but not their names and versions. A message in it is
// never changed, because a frame may have it.
type inventory map[Package]*lessorv1.Package

// newInventory returns the inventory of a worker that starts with the packages.
func newInventory(installed []Package) inventory {
	inv := make(inventory)
	for _, p := range installed {
		inv.set(p, lessorv1.PackageStatus_PACKAGE_STATUS_INSTALLED, "")
	}
	return inv
}

// set notes the status of a package. It reports false if there is no room for one more.
func (inv inventory) set(p Package, status lessorv1.PackageStatus, detail string) bool {
	switch _, known := inv[p]; {
	case status == lessorv1.PackageStatus_PACKAGE_STATUS_UNINSTALLED:
		delete(inv, p)
		return true
	case !known && len(inv) >= maxPackages:
		return false
	}
	inv[p] = &lessorv1.Package{Name: p.Name, Version: p.Version, Status: status, Detail: detail}
	return true
}

// restore undoes what was set: was is what the inventory had before.
func (inv inventory) restore(p Package, was *lessorv1.Package) {
	if delete(inv, p); was != nil {
		inv[p] = was
	}
}
