package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store/boltstore"
)

// What has no end does not fill the disk of a run: neither the output of a command, which costs the
// other lines nothing, nor the input.
func TestRunLeavesRoomOnItsDisk(t *testing.T) {
	disk := smallDisk(t, "128m")
	const script = `case $1 in endless) exec yes;; *) echo $1;; esac`
	code, out, errs := runHere(strings.NewReader("a\nendless\nb\n"),
		"run", "--data", filepath.Join(disk, "output"), "--keep-order", "--max-attempts", "1", "--", "sh", "-c", script, "sh")
	spool := filepath.Join(disk, "output", "spool")
	if want := "line 2 failed: \"endless\": spooling the output to " + spool + ": no room: after "; code != exitFailed || out != "a\nb\n" || !strings.HasPrefix(errs, want) {
		t.Errorf("endless output: exit code %d, %q and %q; want %d, a and b, and %q", code, out, errs, exitFailed, want)
	}
	if files, _ := os.ReadDir(spool); len(files) > 0 {
		t.Errorf("the spool still has %v", files)
	}
	code, _, errs = runHere(endless{}, "run", "--data", filepath.Join(disk, "input"), "--", "true")
	if want := "error: cannot copy the input to data directory " + disk; code != exitCannotStart || !strings.HasPrefix(errs, want) {
		t.Errorf("endless input: exit code %d and %q, want %d and %q", code, errs, exitCannotStart, want)
	}
}

// smallDisk mounts a disk of a size.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("this needs a small disk, which only root can mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil { // a page of the store may still be mapped
			t.Error(err)
		}
	})
	return disk
}

// A store on a disk that is full to the last byte cannot be compacted there, but onto another disk,
// if that has room. What fails writes nothing.
func TestCompactOntoAnotherDisk(t *testing.T) {
	full, small := smallDisk(t, "20m"), smallDisk(t, "2m")
	data, to := filepath.Join(full, "data"), filepath.Join(t.TempDir(), "data")
	makeStore(t, data, 3)
	filler, err := os.Create(filepath.Join(full, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(filler, endless{}); !noSpace(err) {
		t.Fatalf("filling the disk: %v", err)
	}
	if err := filler.Close(); err != nil {
		t.Fatal(err)
	}
	was, err := os.ReadFile(filepath.Join(data, "lessor.db"))
	if err != nil {
		t.Fatal(err)
	}
	check := func(wantCode int, wantErr string, args ...string) {
		t.Helper()
		code, _, errs := runHere(nil, append([]string{"compact", "--data", data}, args...)...)
		if code != wantCode || !regexp.MustCompile(wantErr).MatchString(errs) {
			t.Errorf("compact %v: exit code %d and %q, want %d and %s", args, code, errs, wantCode, wantErr)
		}
		if now, err := os.ReadFile(filepath.Join(data, "lessor.db")); err != nil || !bytes.Equal(was, now) {
			t.Errorf("compact %v: the store has changed (%v)", args, err)
		}
	}
	check(exitCannotStart, "^error: no (room|space).*"+data+`.*\nhint: .* with --to\n$`)
	check(exitCannotStart, `^error: no room for the copy on the disk of `+small+`/data: it takes at least 3\.[0-9] MiB, and 2\.0 MiB are free\nhint: free space on that disk, or name`,
		"--to", filepath.Join(small, "data"))
	if left, err := os.ReadDir(small); err != nil || len(left) > 0 {
		t.Errorf("compact has left %v (%v)", left, err)
	}
	check(0, "^$", "--to", to)
	if info, err := os.Stat(filepath.Join(to, "lessor.db")); err != nil || info.Size() > 5<<20 {
		t.Errorf("the copy: %v, %v; want at most 5 MiB", info, err)
	}
}

// makeStore makes a store with a number of tasks, each with a payload of 1 MiB.
func makeStore(t *testing.T, data string, tasks int) {
	t.Helper()
	st, err := boltstore.Open(data, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(st, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- e.Run(ctx) }()
	for range tasks {
		spec := &lease.Spec{Queue: "q", Payload: make([]byte, 1<<20)}
		if err := spec.Fill(lease.DefaultLimits()); err != nil {
			t.Error(err)
		}
		if _, _, err := e.Submit(ctx, engine.Space{Tenant: "default", Workspace: "default"}, []*lease.Spec{spec}, make([]lease.Digest, 1)); err != nil {
			t.Error(err)
		}
	}
	stop()
	if err := errors.Join(<-done, st.Close()); err != nil {
		t.Fatal(err)
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
