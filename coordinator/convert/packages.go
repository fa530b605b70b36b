package convert

import (
	"fmt"
	"net/url"
	"strings"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// Packages of workers (W13), from the wire. The rules check names and versions.

// MaxPackageDetail is the greatest length of what a worker says about a package, in bytes.
const MaxPackageDetail = 1024

// PackageIDs reads a list of packages, each NAME@VERSION.
func (f *Fields) PackageIDs(name string, list []string) []string {
	f.Count(name, len(list), lease.MaxCapabilities)
	for i, id := range list[:min(len(list), lease.MaxCapabilities)] {
		_, _, err := lease.ParsePackageID(fmt.Sprintf("%s[%d]", name, i), id, f.Limits)
		f.keep(err)
	}
	return list
}

// Package reads the name and the version of a package, and returns both as one text. The path goes
// before the names of the fields.
func (f *Fields) Package(path, name, version string) (id string) {
	f.keep(lease.CheckPackage(path, name, version, f.Limits))
	return lease.PackageID(name, version)
}

// Packages reads the packages that a worker registers. A package without a status is INSTALLED.
func (f *Fields) Packages(name string, list []*lessorv1.Package) map[string]*lessorv1.Package {
	f.Count(name, len(list), lease.MaxCapabilities)
	all := make(map[string]*lessorv1.Package, min(len(list), lease.MaxCapabilities))
	for i, m := range list[:min(len(list), lease.MaxCapabilities)] {
		at := fmt.Sprintf("%s[%d].", name, i)
		id := f.Package(at, m.GetName(), m.GetVersion())
		if all[id] != nil {
			f.Fail(at+"version", "comes twice; each name and version must come once")
		}
		status := m.GetStatus()
		if status == lessorv1.PackageStatus_PACKAGE_STATUS_UNSPECIFIED {
			status = lessorv1.PackageStatus_PACKAGE_STATUS_INSTALLED
		}
		all[id] = &lessorv1.Package{
			Name: m.GetName(), Version: m.GetVersion(), Status: f.PackageStatus(at+"status", status),
			Detail: f.Text(at+"detail", m.GetDetail(), MaxPackageDetail),
		}
	}
	return all
}

// NamesUser reports whether the source of a package is a URL with a user in it, who may have a
// password. What is no valid URL may still be one for a worker.
func NamesUser(source string) bool {
	u, err := url.Parse(source)
	if err != nil {
		_, rest, isURL := strings.Cut(source, "://")
		return isURL && strings.Contains(rest, "@")
	}
	return u.User != nil
}

// PackageStatus reads how far a package is, which must be said.
func (f *Fields) PackageStatus(name string, status lessorv1.PackageStatus) lessorv1.PackageStatus {
	switch _, known := lessorv1.PackageStatus_name[int32(status)]; {
	case !known:
		f.Fail(name, "is %d, which is not a known value", status)
	case status == lessorv1.PackageStatus_PACKAGE_STATUS_UNSPECIFIED:
		f.Fail(name, "must be set")
	}
	return status
}
