package main

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A second signal ends a run even if nobody reads its output, and the run leaves no files behind.
func TestSecondSignalEndsARunThatNobodyReads(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	temp := t.TempDir()
	cmd := exec.Command(self, "run", "--", "head", "-c", "500000") // more than a pipe holds
	cmd.Args[0] = "lessor"
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "GORACE=atexit_sleep_ms=0")
	cmd.Stdin = strings.NewReader("/dev/zero\n")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() }).Stop()
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil { // from now on the write is stuck
		t.Fatal(err)
	}
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	wantInterrupted(t, cmd, temp)
}

// wantInterrupted waits until a command has ended, and checks that SIGINT has ended it and that it has left no file in dir.
func wantInterrupted(t *testing.T, cmd *exec.Cmd, dir string) {
	t.Helper()
	_ = cmd.Wait() // the code says more
	if got, want := cmd.ProcessState.ExitCode(), 128+int(syscall.SIGINT); got != want {
		t.Errorf("exit code %d, want %d", got, want)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left in %s: %v, %v", dir, left, err)
	}
}
