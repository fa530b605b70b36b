package standby

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// ErrNameTaken is an error of Attach: another standby follows under that name.
var ErrNameTaken = errors.New("another standby follows under this name")

// Attach adds a standby, and begins to number commits if it is the first one ever. instance is what
// the standby calls itself over all of its connections: if it follows already, its older Follower
// ends with ErrReplaced; if another one has the name, Attach returns ErrNameTaken. The caller must
// Close the Follower. A standby follows only a run that has a durable commit: so whatever happens
// to the coordinator then, its store knows all runs of its standbys.
func (f *Feed) Attach(ctx context.Context, name, instance string) (*Follower, error) {
	fl := &Follower{feed: f, name: name, instance: instance, since: time.Now(), replaced: make(chan struct{})}
	f.mu.Lock()
	if old := f.followers[name]; old != nil {
		if old.instance != instance {
			f.mu.Unlock()
			return nil, ErrNameTaken
		}
		close(old.replaced)
		f.miss(old)
	}
	f.followers[name] = fl
	if f.release != nil {
		f.release.Stop()
	}
	f.numbering, f.keeping = true, true
	f.mu.Unlock()
	if err := f.commitOnce(ctx); err != nil {
		fl.Close()
		return nil, err
	}
	return fl, nil
}

// commitOnce returns when a commit with a number is durable. If none is under way, it makes one.
func (f *Feed) commitOnce(ctx context.Context) error {
	f.mu.Lock()
	written := f.last > 0
	f.mu.Unlock()
	if !written {
		return f.Commit(ctx, new(store.Batch))
	}
	if !f.await(ctx, func() bool { return f.durable > 0 }) {
		return context.Cause(ctx)
	}
	return nil
}

// detach removes a standby.
func (f *Feed) detach(fl *Follower) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.followers[fl.name] != fl {
		return
	}
	delete(f.followers, fl.name)
	if len(f.followers) == 0 {
		f.release = time.AfterFunc(f.opts.Hold, f.stopKeeping)
	}
	f.miss(fl)
	f.wake()
}

// Status of a standby that follows.
type Status struct {
	Name     string
	Since    time.Time // when it began to follow
	Complete bool      // it has everything up to Acked; otherwise the store is being copied to it
	Sent     int64     // bytes of keys and values
	Acked    records.Position
	// Behind is the age of the oldest commit that it has not acknowledged; 0: it has all of them,
	// or is not complete.
	Behind  time.Duration
	Commits uint64 // number of these commits
}

// Standbys returns those that follow, by name.
func (f *Feed) Standbys() []Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]Status, 0, len(f.followers))
	for _, fl := range f.followers {
		all = append(all, fl.status())
	}
	slices.SortFunc(all, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	return all
}
