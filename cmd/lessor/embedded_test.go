package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/worker"
)

// `lessor run` runs its lines even if the memory or the disk of the machine is nearly full: its
// embedded coordinator never holds back work for that.
func TestRunOnFullMachine(t *testing.T) {
	if h := embeddedConfig(slog.New(slog.DiscardHandler)).Sessions.Health; h.MemPct <= 100 || h.DiskPct <= 100 {
		t.Errorf("no new work from %v %% of memory or %v %% of the disk in use, want limits above 100 %%", h.MemPct, h.DiskPct)
	}
}

// Only this user reaches the socket: anybody else could have commands run as this user.
func TestSocketIsPrivate(t *testing.T) {
	t.Chdir(t.TempDir())
	path, lis, err := listenSocket("socket")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	if dir, err := os.Stat(filepath.Dir(path)); err != nil || path != "socket/grpc" || dir.Mode().Perm() != 0o700 {
		t.Errorf("%s in %v (error %v), want socket/grpc in a directory with mode 0700", path, dir, err)
	}
}

// A socket that nobody listens on is not left behind, and neither is its temporary directory.
func TestEmbeddedCoordinatorThatCannotStart(t *testing.T) {
	for name, c := range map[string]struct {
		temp    string // the directory of temporary ones, within one of the test
		damaged bool   // the store
	}{
		"no listener":    {temp: strings.Repeat("t", maxSocketPath)},
		"no coordinator": {temp: "t", damaged: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if err := os.Mkdir(c.temp, 0o700); err != nil {
				t.Fatal(err)
			}
			t.Setenv("TMPDIR", c.temp) // no path of the test's own, which may be too long for a socket
			if c.damaged {
				damageStore(t, "store")
			}
			_, err := startEmbedded("store", strings.Repeat("s", maxSocketPath), slog.New(slog.DiscardHandler), nil, func() {})
			left, _ := os.ReadDir(c.temp)
			if err == nil || len(left) > 0 {
				t.Errorf("it starts with %v, and leaves %v; want an error and nothing", err, left)
			}
		})
	}
}

// damageStore makes a store that can be opened, but whose clock cannot be read.
func damageStore(t *testing.T, dir string) {
	t.Helper()
	st, err := boltstore.Open(dir, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	b.Put(store.Meta, []byte(store.MetaClock), []byte("damaged"))
	if err := errors.Join(st.Commit(t.Context(), &b), st.Close()); err != nil {
		t.Fatal(err)
	}
}

// The worker of `lessor run` ends soon after the embedded coordinator has ended, as it does when
// its store fails. The worker does not go on trying to reach the coordinator, which does not come
// back.
func TestWorkerEndsAfterEmbeddedCoordinator(t *testing.T) {
	dir := t.TempDir()
	e, err := startEmbedded(dir, filepath.Join(dir, "socket"), slog.New(slog.DiscardHandler), nil, func() {})
	if err != nil {
		t.Fatal(err)
	}
	cl, err := e.dial()
	if err != nil {
		t.Fatal(err)
	}
	registered := make(chan struct{}, 1)
	w, err := worker.New(cl, []string{"q"}, worker.Config{
		Name: "w", Logger: slog.New(slog.DiscardHandler), MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond,
		Hooks: worker.Hooks{OnState: func(s worker.State) {
			if s == worker.StateRegistered {
				registered <- struct{}{}
			}
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.HandleDefault(func(context.Context, *worker.Task) ([]byte, error) { return nil, nil })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // if the worker does not end by itself
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- w.Run(ctx) }()
	<-registered
	if err := e.close(); err != nil {
		t.Error(err)
	}
	if err := <-ran; !errors.As(err, new(*worker.RefusedError)) {
		t.Errorf("Run of the worker returned %v, want a refusal", err)
	}
	if err := cl.Close(); err != nil {
		t.Error(err)
	}
}

// The embedded coordinator tells once that its store was moved away, and goes on.
func TestEmbeddedStoreGone(t *testing.T) {
	dir := t.TempDir()
	gone := make(chan struct{}, 100)
	e, err := startEmbedded(filepath.Join(dir, "store"), filepath.Join(dir, "socket"), slog.New(slog.DiscardHandler),
		nil, func() { gone <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "store"), filepath.Join(dir, "moved")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-gone:
	case <-e.alive.Done():
		t.Error(context.Cause(e.alive))
	}
	if err := e.close(); err != nil {
		t.Error(err)
	}
	if len(gone) > 0 {
		t.Error("it told more than once that the store is gone")
	}
}
