package lease

import (
	"strings"
	"testing"
)

// W13: a required package is there if the worker has it in any version, or in the one that is
// named. Names that only begin alike are others.
func TestHasPackage(t *testing.T) {
	t.Attr("rules", "W13")
	worker := Capabilities{Packages: []string{"@s/tool@1", "model-x@9", "model@1", "model@2-rc", "models@3", "sam!@1"}}
	for required, want := range map[string]bool{
		"model": true, "model@1": true, "model@2-rc": true, "model@2": false, "model@": false, "mode": false, "model-": false, "models": true, "models@1": false,
		"@s/tool": true, "@s/tool@1": true, "@s/tool@2": false, "@s": false, "sam": false, "sam!": true, "zzz": false, "": true,
	} {
		r := &Requirements{Package: required}
		if got := worker.Meet(r); got != want {
			t.Errorf("a worker with %q meets package %q: %v, want %v", worker.Packages, required, got, want)
		}
		if lack := worker.Lack(r); !want && (len(lack) != 1 || !strings.Contains(lack[0], required)) {
			t.Errorf("the worker lacks %q, want package %q", lack, required)
		}
	}
	if new(Capabilities).Meet(&Requirements{Package: "model"}) {
		t.Error("a worker without packages meets one, want not")
	}
}

// W13: NAME@VERSION is split at its last @, which is not the first byte; names and versions have
// their form.
func TestPackageIDs(t *testing.T) {
	t.Attr("rules", "W13")
	l := DefaultLimits()
	l.ID = 8
	for id, problem := range map[string]string{
		"a@1": "", "@a@1": "", "@s/a@1.2": "", "12345678@12345678": "",
		"": "no name", "@": "no name", "@1": "no version", "a": "no version", "a@": "no version", "@s/a": "no version", "a@b@1": "@ that is not its first byte",
		"@a@b@1": "@ that is not its first byte", "@@1": "no name", "123456789@1": "9 bytes; the limit is 8", "a@123456789": "9 bytes; the limit is 8", "a\n@1": "control",
	} {
		name, version, err := ParsePackageID("f", id, l)
		switch {
		case problem == "" && (err != nil || PackageID(name, version) != id):
			t.Errorf("%q is read as %q and %q (%v), want both parts", id, name, version, err)
		case problem != "" && (err == nil || err.Field != "f" || !strings.Contains(err.Problem, problem)):
			t.Errorf("%q: %v, want the field f and %q", id, err, problem)
		}
	}
	if err := CheckPackage("p.", "a", "1@2", l); err == nil || err.Field != "p.version" {
		t.Errorf("a version with an @: %v, want p.version", err)
	}
	for pkg, ok := range map[string]bool{"": true, "a": true, "a@1": true, "@s/a": true, "a@": false, "a@b@1": false, "@": false, "123456789": false} {
		s := requiring(Requirements{Package: pkg})
		s.Queue = "q"
		err := s.Fill(l)
		if (err == nil) != ok || err != nil && !strings.HasPrefix(err.Error(), "requirements.package: ") {
			t.Errorf("a task that requires package %q: %v, want ok %v, or an error of requirements.package", pkg, err, ok)
		}
	}
}
