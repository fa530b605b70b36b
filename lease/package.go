package lease

import (
	"slices"
	"strings"
)

// Packages of workers (W13). A package is known by its name and its version, which are written
// NAME@VERSION. So a name has no "@" but as its first byte, and a version has none.

// PackageID returns the name and the version of a package as one text, NAME@VERSION.
func PackageID(name, version string) string { return name + "@" + version }

// ParsePackageID splits NAME@VERSION and checks both, as CheckPackage does. The field is the one
// that has the text.
func ParsePackageID(field, id string, l Limits) (name, version string, err *FieldError) {
	name, version, _ = cutPackage(id)
	return name, version, checkPackage(field, field, name, version, true, l)
}

// CheckPackage checks the name and the version of a package. The error names the field that starts
// with the given path, for example "packages[0].".
func CheckPackage(path, name, version string, l Limits) *FieldError {
	return checkPackage(path+"name", path+"version", name, version, true, l)
}

// cutPackage splits NAME or NAME@VERSION. exact says whether there is a version, even an empty one.
func cutPackage(id string) (name, version string, exact bool) {
	if at := strings.LastIndexByte(id, '@'); at > 0 {
		return id[:at], id[at+1:], true
	}
	return id, "", false
}

func checkPackage(nameField, versionField, name, version string, versioned bool, l Limits) *FieldError {
	switch {
	case name == "" || name == "@":
		return bad(nameField, "has no name of a package")
	case strings.LastIndexByte(name, '@') > 0:
		return bad(nameField, "has a name of a package with an @ that is not its first byte")
	case versioned && version == "":
		return bad(versionField, "has no version of a package")
	case strings.Contains(version, "@"):
		return bad(versionField, "has a version of a package with an @")
	}
	if err := CheckID(nameField, name, l); err != nil {
		return err
	}
	return CheckID(versionField, version, l)
}

// hasPackage reports whether what is required, NAME or NAME@VERSION, is among sorted packages.
func hasPackage(sorted []string, required string) bool {
	_, _, exact := cutPackage(required)
	if !exact {
		required += "@" // the versions of a name follow each other from here on
	}
	at, found := slices.BinarySearch(sorted, required)
	return found || !exact && at < len(sorted) && strings.HasPrefix(sorted[at], required)
}
