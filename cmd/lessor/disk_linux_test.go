package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What has no end does not fill the disk of a run: neither the output of a command, which costs the other lines nothing, nor the input.
func TestRunLeavesRoomOnItsDisk(t *testing.T) {
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=128m"); err != nil {
		t.Skipf("this needs a small disk, which only root can mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil { // a page of the store may still be mapped
			t.Error(err)
		}
	})
	const script = `case $1 in endless) exec yes;; *) echo $1;; esac`
	code, out, errs := runHere(strings.NewReader("a\nendless\nb\n"),
		"run", "--data", filepath.Join(disk, "output"), "--keep-order", "--max-attempts", "1", "--", "sh", "-c", script, "sh")
	if want := "line 2 failed: \"endless\": spooling the output: no room: after "; code != exitFailed || out != "a\nb\n" || !strings.HasPrefix(errs, want) {
		t.Errorf("endless output: exit code %d, %q and %q; want %d, a and b, and %q", code, out, errs, exitFailed, want)
	}
	if files, _ := os.ReadDir(filepath.Join(disk, "output", "spool")); len(files) > 0 {
		t.Errorf("the spool still has %v", files)
	}
	code, _, errs = runHere(endless{}, "run", "--data", filepath.Join(disk, "input"), "--", "true")
	if want := "error: cannot copy the input to data directory " + disk; code != exitCannotStart || !strings.HasPrefix(errs, want) {
		t.Errorf("endless input: exit code %d and %q, want %d and %q", code, errs, exitCannotStart, want)
	}
}

func runHere(in io.Reader, args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	code = run(args, streams{in: in, out: &stdout, err: &stderr})
	return code, stdout.String(), stderr.String()
}

// endless is an input without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	return copy(p, strings.Repeat("y", 1000)+"\n"), nil
}
