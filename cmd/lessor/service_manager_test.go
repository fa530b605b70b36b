package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/coordinator"
)

// manager plays the service manager of the processes that a test starts, and of the test itself.
type manager struct {
	t  *testing.T
	at *net.UnixConn
}

func newManager(t *testing.T) manager {
	at, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = at.Close() })
	t.Setenv("NOTIFY_SOCKET", at.LocalAddr().String())
	return manager{t, at}
}

// told returns the next that the manager is told.
func (m manager) told() []string {
	m.t.Helper()
	_ = m.at.SetReadDeadline(time.Now().Add(time.Minute))
	buf := make([]byte, 4096)
	n, err := m.at.Read(buf)
	if err != nil {
		m.t.Fatal(err)
	}
	return strings.Split(string(buf[:n]), "\n")
}

// wants checks the next that the manager is told, up to a colon.
func (m manager) wants(lines ...string) {
	m.t.Helper()
	told := m.told()
	if !slices.EqualFunc(told, lines, func(line, want string) bool { before, _, _ := strings.Cut(line, ":"); return before == want }) {
		m.t.Fatalf("the service manager was told %q, want %q", told, lines)
	}
}

// A unit with Type=notify is started when its coordinator answers, or its standby has its
// directory, and knows that it stops.
func TestManagerIsTold(t *testing.T) {
	m := newManager(t)
	serve := startLessor(t, nil, os.Stderr, "serve", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--http", "",
		"--log-level", "error")
	told := m.told()
	if len(told) != 2 || told[0] != "READY=1" || !strings.HasPrefix(told[1], "STATUS=serving gRPC on ") {
		t.Fatalf("the service manager was told %q, want that the coordinator serves", told)
	}
	addr := strings.TrimPrefix(told[1], "STATUS=serving gRPC on ")
	follow := startLessor(t, nil, os.Stderr, "standby", "run", "--data", t.TempDir(), "--addr", addr, "--log-level", "error")
	m.wants("READY=1", "STATUS=connecting to 127.0.0.1")
	m.wants("STATUS=following 127.0.0.1")
	stop(t, follow)
	m.wants("STOPPING=1", "STATUS=stopping")
	stop(t, serve)
	m.wants("STOPPING=1", "STATUS=stopping")
}

// A process that has nothing to do but to stop does not end before the manager knows.
func TestManagerKnowsBeforeTheEnd(t *testing.T) {
	m := newManager(t)
	raw, err := m.at.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		release := tellWhenStopping(ctx, slog.Default())
		cancel()
		release()
		var missing error
		if err := raw.Read(func(fd uintptr) bool {
			_, _, missing = syscall.Recvfrom(int(fd), make([]byte, 4096), syscall.MSG_DONTWAIT)
			return true
		}); err != nil || missing != nil {
			t.Fatalf("the process would end, and the manager was not told: %v", errors.Join(err, missing))
		}
	}
}

// While a store is opened, which may take longer than a service manager waits, the manager is asked
// for more time, and not told that the process has started.
func TestManagerWaits(t *testing.T) {
	m := newManager(t)
	synctest.Test(t, func(t *testing.T) {
		a := &app{ctx: t.Context(), stopNow: context.Background()}
		opened := whileOpening(a, coordinator.Config{Logger: slog.New(slog.DiscardHandler)}, nil)
		time.Sleep(longOpening + 2*extendEvery + time.Second)
		opened()
		time.Sleep(time.Hour)
	})
	tellStopping(slog.Default())
	for range 3 {
		m.wants("EXTEND_TIMEOUT_USEC=60000000", "STATUS=opening the store, which may have to be checked first")
	}
	m.wants("STOPPING=1", "STATUS=stopping")
}
