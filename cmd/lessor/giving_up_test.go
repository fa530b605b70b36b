package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
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
	signals := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}
	for _, s := range signals {
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	wantInterrupted(t, cmd, temp, signals...) // two threads may take them, so that either is the first
}

// wantInterrupted waits until a command has ended, and checks that one of the signals has ended it
// and that it has left no file in dir.
func wantInterrupted(t *testing.T, cmd *exec.Cmd, dir string, by ...syscall.Signal) {
	t.Helper()
	_ = cmd.Wait() // the code says more
	if got := cmd.ProcessState.ExitCode(); !slices.Contains(by, syscall.Signal(got-128)) {
		t.Errorf("exit code %d, want 128 and the number of one of the signals %v", got, by)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left in %s: %v, %v", dir, left, err)
	}
}

type closer chan time.Time

func (c closer) Close() error {
	c <- time.Now()
	return nil
}

// The second signal gives a worker a while for its reports, and ends it then.
func TestConnectionOfAnUnansweredWorkerIsClosed(t *testing.T) {
	for ends, closed := range map[time.Duration]bool{unansweredAfter - 1: false, unansweredAfter + 1: true} {
		synctest.Test(t, func(t *testing.T) {
			stopNow, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			conn, began := make(closer, 1), time.Now()
			release := (&app{stopNow: stopNow}).closeUnanswered(conn)
			time.Sleep(time.Minute + ends)
			release()
			time.Sleep(time.Hour)
			select {
			case at := <-conn:
				if took := at.Sub(began); !closed || took != time.Minute+unansweredAfter {
					t.Errorf("worker that ends %v after the signal: the connection was closed after %v, want closed: %t", ends, took, closed)
				}
			default:
				if closed {
					t.Errorf("worker that ends %v after the signal: the connection was not closed", ends)
				}
			}
		})
	}
}
