package resource_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/resource"
	"github.com/lessor-dev/lessor/worker/workertest"
)

// thing is a resource that counts how often it was closed.
type thing struct {
	mu     sync.Mutex
	closed int
}

func (g *thing) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed++
	return nil
}

func (g *thing) check(t *testing.T, want int) {
	t.Helper()
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != want {
		t.Errorf("closed %d times, want %d", g.closed, want)
	}
}

const ttl = time.Minute

func register(t *testing.T, r *resource.Registry) *thing {
	t.Helper()
	g := &thing{}
	if _, err := r.Register(resource.Resource{ID: "a", Type: "thing", Value: g, TTL: ttl, Close: g.close}); err != nil {
		t.Fatal(err)
	}
	return g
}

func lease(t *testing.T, r *resource.Registry) *resource.Lease {
	t.Helper()
	l, err := r.Lease("a")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A resource that nobody leases is closed at the end of its TTL, once, and then cannot be leased.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := resource.New(resource.Config{})
		g := register(t, r)
		time.Sleep(ttl - 1)
		g.check(t, 0)
		time.Sleep(time.Nanosecond)
		g.check(t, 1)
		if _, err := r.Lease("a"); !errors.Is(err, resource.ErrNotFound) {
			t.Errorf("Lease = %v, want %v", err, resource.ErrNotFound)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		g.check(t, 1)
	})
}

// A resource is not closed while it is leased, even after its TTL. The TTL begins again with the
// release of the last lease, and with Touch. A second Release of the same lease has no effect.
func TestLeasedResourceIsNotClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := resource.New(resource.Config{})
		g := register(t, r)
		first, second := lease(t, r), lease(t, r)
		if first.Value() != any(g) || first.ID() != "a" {
			t.Errorf("the lease has value %v and id %q, want %v and %q", first.Value(), first.ID(), g, "a")
		}
		first.Release()
		first.Release()
		if _, err := r.Touch("a"); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * ttl)
		g.check(t, 0)
		second.Release()
		time.Sleep(ttl / 2)
		artifact, err := r.Touch("a")
		if err != nil || artifact.ResourceID != "a" || artifact.Type != "thing" {
			t.Errorf("Touch = %v, %v; want id a and type thing", artifact, err)
		}
		time.Sleep(ttl - 1)
		g.check(t, 0)
		time.Sleep(time.Nanosecond)
		g.check(t, 1)
	})
}

// A resource that is removed while it is leased is closed when the last lease is released, once.
// Its ID is free at once. Close closes the resources that are left, and after Close nothing can be
// registered.
func TestRemoveLeased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := resource.New(resource.Config{})
		g := register(t, r)
		l := lease(t, r)
		if _, err := r.Register(resource.Resource{ID: "a"}); !errors.Is(err, resource.ErrExists) {
			t.Errorf("Register with an ID in use = %v, want %v", err, resource.ErrExists)
		}
		if err := r.Remove("a"); err != nil {
			t.Error(err)
		}
		if err := r.Remove("a"); !errors.Is(err, resource.ErrNotFound) {
			t.Errorf("second Remove = %v, want %v", err, resource.ErrNotFound)
		}
		g.check(t, 0)
		next := register(t, r)
		l.Release()
		g.check(t, 1)
		next.check(t, 0)
		if err := r.Close(); err != nil || r.Len() != 0 {
			t.Errorf("Close = %v with %d resources left, want none", err, r.Len())
		}
		next.check(t, 1)
		if _, err := r.Register(resource.Resource{ID: "b"}); !errors.Is(err, resource.ErrClosed) {
			t.Errorf("Register after Close = %v, want %v", err, resource.ErrClosed)
		}
	})
}

// LeaseAll leases all resources that a task refers to, or none: if one is missing, the others
// expire as if they had not been leased.
func TestLeaseAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := resource.New(resource.Config{})
		g := register(t, r)
		held, err := r.LeaseAll([]worker.ResourceRef{{ResourceID: "a"}, {ResourceID: "a"}})
		if err != nil || len(held) != 2 {
			t.Fatalf("LeaseAll = %v, %v; want two leases", held, err)
		}
		held.Release()
		if _, err := r.LeaseAll([]worker.ResourceRef{{ResourceID: "a"}, {ResourceID: "b"}}); !errors.Is(err, resource.ErrNotFound) {
			t.Errorf("LeaseAll with a missing resource = %v, want %v", err, resource.ErrNotFound)
		}
		time.Sleep(ttl)
		g.check(t, 1)
	})
}

// The Close function of each resource is called exactly once, even if many goroutines register,
// lease and remove the same ID at the same time and its TTL ends.
func TestCloseFunctionIsCalledOnce(t *testing.T) {
	r := resource.New(resource.Config{})
	var made, closed atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				res := resource.Resource{ID: "a", TTL: time.Nanosecond, Close: func() error { closed.Add(1); return nil }}
				if _, err := r.Register(res); err == nil {
					made.Add(1)
				}
				if l, err := r.Lease("a"); err == nil {
					l.Release()
				}
				_ = r.Remove("a")
			}
		})
	}
	all.Wait()
	_ = r.Close()
	for deadline := time.Now().Add(time.Minute); closed.Load() < made.Load() && time.Now().Before(deadline); {
		runtime.Gosched() // a timer may still be calling the Close function
	}
	if made.Load() == 0 || closed.Load() != made.Load() {
		t.Errorf("%d resources were registered and %d closed, want more than 0 and the same number", made.Load(), closed.Load())
	}
}

// Register refuses a resource whose artifact the coordinator would refuse, or whose TTL is
// negative, with an error that names the field. The largest resource that Register takes can be
// reported as an artifact.
func TestResourceThatCannotBeReported(t *testing.T) {
	long, entries := strings.Repeat("x", 257), map[string]string{}
	for i := range 65 {
		entries[strconv.Itoa(i)] = "x"
	}
	for field, bad := range map[string][]resource.Resource{
		"ID":       {{}, {ID: long}, {ID: "a\nb"}, {ID: "a\xff"}},
		"TTL":      {{ID: "a", TTL: -1}},
		"Type":     {{ID: "a", Type: long}, {ID: "a", Type: "b\x7f"}},
		"Metadata": {{ID: "a", Metadata: entries}, {ID: "a", Metadata: map[string]string{"": "x"}}, {ID: "a", Metadata: map[string]string{"x": long}}, {ID: "a", Metadata: map[string]string{"x": "\xff"}}},
	} {
		for _, res := range bad {
			r := resource.New(resource.Config{})
			if _, err := r.Register(res); err == nil || !strings.Contains(err.Error(), field) || r.Len() != 0 {
				t.Errorf("bad %s: Register of %.40q = %v with %d registered, want an error that names the field, and none", field, res.ID, err, r.Len())
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		delete(entries, "0")
		entries["1"] = long[1:]
		good := resource.Resource{ID: long[1:], Type: long[1:], Metadata: entries}
		c := workertest.Start(t)
		r := resource.New(resource.Config{})
		w := c.Worker("q", worker.Config{})
		w.HandleDefault(func(_ context.Context, task *worker.Task) ([]byte, error) {
			artifact, err := r.Register(good)
			task.AddArtifact(artifact)
			return nil, err
		})
		c.Run(w)
		if task := c.Do(&lessorv1.TaskSpec{Queue: "q"}); task.GetState() != lessorv1.TaskState_TASK_STATE_COMPLETED {
			t.Errorf("the task is %v with error %v, want COMPLETED", task.GetState(), task.GetError())
		}
	})
}

// A resource that is leased for longer than its time to live can be leased and touched meanwhile.
// The time to live starts again with the last release.
func TestLeaseLongerThanTheTimeToLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := resource.New(resource.Config{})
		g := register(t, r)
		first := lease(t, r)
		time.Sleep(2 * ttl)
		second := lease(t, r)
		if _, err := r.Touch("a"); err != nil {
			t.Error(err)
		}
		first.Release()
		time.Sleep(2 * ttl)
		second.Release()
		time.Sleep(ttl - 1)
		g.check(t, 0)
		time.Sleep(time.Nanosecond)
		g.check(t, 1)
	})
}

// The caller may change its map after Register.
func TestMetadataIsCopied(t *testing.T) {
	r, metadata := resource.New(resource.Config{}), map[string]string{"a": "b"}
	if _, err := r.Register(resource.Resource{ID: "a", Metadata: metadata}); err != nil {
		t.Fatal(err)
	}
	metadata["a"] = "changed"
	if shown, err := r.Touch("a"); err != nil || shown.Metadata["a"] != "b" {
		t.Errorf("%v, %v", shown, err)
	}
}
