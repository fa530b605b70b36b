package resource

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/lessor-dev/lessor/worker"
)

// Errors of a registry. Test for them with errors.Is.
var (
	// ErrNotFound: this worker does not have the resource, or no longer has it.
	ErrNotFound = errors.New("no such resource in this worker")
	// ErrExists: the id is taken.
	ErrExists = errors.New("the resource is registered already")
	// ErrClosed: the registry was closed.
	ErrClosed = errors.New("the registry is closed")
)

// Config holds the settings of a registry that have a default. The zero Config is usable.
type Config struct {
	// OnError is called with the error of Resource.Close if no caller waits for it, perhaps by
	// several goroutines at once. It must not call the registry. Default: such errors are ignored.
	OnError func(id string, err error)
}

// Resource is something that lives in this worker.
type Resource struct {
	// ID identifies the resource in this worker. Required; at most 256 bytes, without control
	// characters.
	ID string
	// Type is the kind of resource, for example "browser"; at most 256 bytes.
	Type string
	// Value is the object itself.
	Value any
	// TTL is how long the resource is kept while nobody leases it. 0: for ever. It must not be
	// negative.
	TTL time.Duration
	// Close closes the resource. It is called once, when the resource has left the registry and its
	// last lease was released. Nil: there is nothing to close.
	Close func() error
	// Metadata is free text for artifacts; at most 64 entries, keys and values of at most 256
	// bytes.
	Metadata map[string]string
}

// Registry holds resources. Its methods may be called from several goroutines.
type Registry struct {
	cfg Config

	mu struct {
		sync.Mutex
		entries map[string]*entry
		closed  bool
	}
}

// New makes an empty registry.
func New(cfg Config) *Registry {
	if cfg.OnError == nil {
		cfg.OnError = func(string, error) {}
	}
	r := &Registry{cfg: cfg}
	r.mu.entries = make(map[string]*entry)
	return r
}

// Register adds a resource, and describes it for Task.AddArtifact. Errors: ErrExists, ErrClosed,
// and one that says which field of res is wrong; after an error the caller must close the resource.
func (r *Registry) Register(res Resource) (worker.Artifact, error) {
	if err := res.check(); err != nil {
		return worker.Artifact{}, err
	}
	res.Metadata = maps.Clone(res.Metadata) // the caller may change its own map
	if old := r.removeExpired(res.ID); old != nil {
		r.closeAndReport(old)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.mu.closed:
		return worker.Artifact{}, ErrClosed
	case r.mu.entries[res.ID] != nil:
		return worker.Artifact{}, fmt.Errorf("%w: %s", ErrExists, res.ID)
	}
	e := &entry{Resource: res, registered: true}
	r.mu.entries[res.ID] = e
	r.restartTTLLocked(e)
	return e.artifact(), nil
}

// removeExpired removes a resource whose time to live is over although its timer has not fired yet;
// nil if there is none.
func (r *Registry) removeExpired(id string) *entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.mu.entries[id]
	if e == nil || !e.expired(time.Now()) {
		return nil
	}
	r.removeLocked(e) // it is not leased, or it would not have expired
	return e
}

// Touch starts the time to live of a resource again, and describes the resource. The error is
// ErrNotFound.
func (r *Registry) Touch(id string) (worker.Artifact, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, err := r.findLocked(id)
	if err != nil {
		return worker.Artifact{}, err
	}
	r.restartTTLLocked(e)
	return e.artifact(), nil
}

// Remove removes a resource: it cannot be leased any more, and is closed now or when its last lease
// is released. The errors are ErrNotFound and the error of the resource's Close.
func (r *Registry) Remove(id string) error {
	r.mu.Lock()
	e, err := r.findLocked(id)
	if err != nil {
		r.mu.Unlock()
		return err
	}
	idle := r.removeLocked(e)
	r.mu.Unlock()
	if !idle {
		return nil
	}
	return e.close()
}

// Close removes all resources, and refuses new ones. Resources that are leased are closed when they
// are released. The error joins the errors of closing the others.
func (r *Registry) Close() error {
	r.mu.Lock()
	r.mu.closed = true
	var idle []*entry
	for _, e := range r.mu.entries {
		if r.removeLocked(e) {
			idle = append(idle, e)
		}
	}
	r.mu.Unlock()
	var errs []error
	for _, e := range idle {
		errs = append(errs, e.close())
	}
	return errors.Join(errs...)
}

// Len returns how many resources can be leased.
func (r *Registry) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.mu.entries)
}

// findLocked returns a registered resource. A resource whose time to live is over counts as
// missing, even if its timer has not fired yet.
func (r *Registry) findLocked(id string) (*entry, error) {
	e := r.mu.entries[id]
	if e == nil || e.expired(time.Now()) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return e, nil
}

// removeLocked removes e from the registry, and reports whether the caller must close it.
func (r *Registry) removeLocked(e *entry) (idle bool) {
	delete(r.mu.entries, e.ID)
	e.registered = false
	e.stopTimer()
	return e.leases == 0
}
