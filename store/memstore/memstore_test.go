package memstore_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Backend{
		New:    func(*testing.T) store.Store { return memstore.New() },
		Reopen: func(_ *testing.T, s store.Store) store.Store { return s.(*memstore.Store).Reopen() },
		Second: func(_ *testing.T, s store.Store) (store.Store, error) { return s.(*memstore.Store).Reopen(), nil },
		Restore: func(t *testing.T, snapshot []byte) store.Store {
			s, err := memstore.Restore(bytes.NewReader(snapshot))
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
	})
}

// oneTask returns a batch that stores value as the one task of these tests.
func oneTask(value string) *store.Batch {
	var b store.Batch
	b.Put(store.Task, []byte("k"), []byte(value))
	return &b
}

// task returns the value that oneTask stored; empty if there is none.
func task(t *testing.T, s store.Store) (value string) {
	t.Helper()
	err := s.View(func(r store.Reader) error { value = string(r.Get(store.Task, []byte("k"))); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// A failed commit may have taken effect or not; a hook can do either. In both cases the store must
// refuse all further calls, and the store that Reopen returns shows whether the commit took effect.
func TestHookFailsCommit(t *testing.T) {
	for _, tt := range []struct {
		name    string
		applies bool
		want    string
	}{{"before it took effect", false, ""}, {"after it took effect", true, "1"}} {
		t.Run(tt.name, func(t *testing.T) {
			s := memstore.New()
			broken := errors.New("disk is broken")
			s.SetHook(func(_ context.Context, _ *store.Batch, apply func()) error {
				if tt.applies {
					apply()
				}
				return broken
			})
			err := s.Commit(t.Context(), oneTask("1"))
			if failed := new(store.CommitError); !errors.As(err, &failed) || !errors.Is(err, broken) {
				t.Fatalf("Commit = %v, want a CommitError of %v", err, broken)
			}
			s.SetHook(nil)
			if again := s.Commit(t.Context(), oneTask("2")); !errors.Is(again, broken) {
				t.Errorf("Commit after a failed one = %v, want %v", again, broken)
			}
			if err := s.View(func(store.Reader) error { return nil }); !errors.Is(err, broken) {
				t.Errorf("View after a failed commit = %v, want %v", err, broken)
			}
			if got := task(t, s.Reopen()); got != tt.want {
				t.Errorf("after reopening: %q, want %q", got, tt.want)
			}
		})
	}
}

// Reopen stands for a crash: a commit that is running meanwhile must not change the store that
// Reopen returns.
func TestReopenDuringCommit(t *testing.T) {
	s := memstore.New()
	held, release := make(chan struct{}), make(chan struct{})
	s.SetHook(func(_ context.Context, _ *store.Batch, apply func()) error {
		close(held)
		<-release
		apply()
		return nil
	})
	done := make(chan error)
	go func() { done <- s.Commit(context.Background(), oneTask("1")) }()
	<-held
	reopened := s.Reopen()
	close(release)
	if err := <-done; !errors.Is(err, store.ErrClosed) {
		t.Errorf("Commit that ends after Reopen = %v, want ErrClosed", err)
	}
	if got := task(t, reopened); got != "" {
		t.Errorf("the commit took effect after Reopen: the value is %q, want none", got)
	}
}
