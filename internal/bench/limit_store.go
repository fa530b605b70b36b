package bench

import (
	"context"
	"errors"
	"math"
	"os"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
)

// The store by itself: commits of records with the keys, and about the sizes, that a coordinator
// writes, and nothing else: no rules, no encoding, no wire, one goroutine.

// Sizes of the records of a task without its payload, in bytes.
const (
	specBytes = 120 // with the first state
	rowBytes  = 60
)

// rawTasks writes the records of tasks one after the other.
type rawTasks struct {
	store *boltstore.Store
	span  time.Duration // how long each rate is measured
	batch store.Batch
	spec  []byte // with the payload
	row   [rowBytes]byte
	key   []byte
}

// step writes a part of the life of one task.
type step func(t *rawTasks, id lease.TaskID)

func (t *rawTasks) submit(id lease.TaskID) {
	t.key = store.AppendTaskKey(t.key[:0], id)
	t.batch.PutSealed(store.Spec, t.key, 1, t.spec)
	t.batch.Put(store.Ready, t.readyKey(id), nil)
}

func (t *rawTasks) grant(id lease.TaskID) {
	t.key = store.AppendTaskKey(t.key[:0], id)
	t.batch.PutSealed(store.Lease, t.key, 1, t.row[:])
	t.batch.Delete(store.Ready, t.readyKey(id))
}

// assign is a submit that is granted at once, because a worker waits: the task is never put into
// the line.
func (t *rawTasks) assign(id lease.TaskID) {
	t.key = store.AppendTaskKey(t.key[:0], id)
	t.batch.PutSealed(store.Spec, t.key, 1, t.spec)
	t.batch.PutSealed(store.Lease, t.key, 1, t.row[:])
}

func (t *rawTasks) complete(id lease.TaskID) {
	t.key = store.AppendTaskKey(t.key[:0], id)
	t.batch.Delete(store.Lease, t.key)
	t.batch.PutSealed(store.Task, t.key, 1, t.row[:])
	t.key = store.AppendAttemptKey(t.key[:0], id, 1)
	t.batch.PutSealed(store.Ledger, t.key, 1, t.row[:])
	t.key = store.WallTimer(lease.Wall(id.Seq), id).Append(t.key[:0])
	t.batch.Put(store.Timer, t.key, nil)
}

func (t *rawTasks) readyKey(id lease.TaskID) []byte {
	t.key = store.ReadyKey{Space: id.Space, Line: 1, Place: id.Seq, Seq: id.Seq}.Append(t.key[:0])
	return t.key
}

// commit does a step for size tasks, from the task first on, in one transaction.
func (t *rawTasks) commit(ctx context.Context, first, size int, do step) error {
	t.batch.Reset()
	for i := range size {
		do(t, lease.TaskID{Space: 1, Seq: uint64(first + i)})
	}
	return t.store.Commit(ctx, &t.batch)
}

// rate commits steps for the tasks from first on, size at a time, until span is over or end is
// reached. It returns tasks per second, and the first task that was not reached.
func (t *rawTasks) rate(
	ctx context.Context, size, first, end int, steps ...step,
) (perSecond float64, next int, err error) {
	begin := time.Now()
	for next = first; next < end && (next == first || time.Since(begin) < t.span); next += size {
		for _, do := range steps {
			if err := t.commit(ctx, next, size, do); err != nil {
				return 0, next, err
			}
		}
		if ctx.Err() != nil {
			return 0, next, context.Cause(ctx)
		}
	}
	return float64(next-first) / time.Since(begin).Seconds(), next, nil
}

// storeRates are tasks per second.
type storeRates struct{ submits, drains, lives float64 }

// storeLimit measures commits of size tasks: their submits; their grants and completions, in two
// commits; and whole lives, in two as well.
func (c *Config) storeLimit(ctx context.Context, size int) (found storeRates, err error) {
	dir, err := os.MkdirTemp(c.Dir, "lessor-bench-")
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	st, err := boltstore.Open(dir, boltstore.Options{})
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	t := &rawTasks{store: st, span: c.LimitSpan, spec: make([]byte, specBytes+c.Payload)}
	var submitted int
	if found.submits, submitted, err = t.rate(ctx, size, 0, math.MaxInt, (*rawTasks).submit); err != nil {
		return found, err
	}
	if found.drains, _, err = t.rate(ctx, size, 0, submitted, (*rawTasks).grant, (*rawTasks).complete); err != nil {
		return found, err
	}
	found.lives, _, err = t.rate(ctx, size, submitted, math.MaxInt, (*rawTasks).assign, (*rawTasks).complete)
	return found, err
}

// commitLimit measures a commit of one task, in milliseconds.
func (c *Config) commitLimit(ctx context.Context) (samples, error) {
	found, err := c.storeLimit(ctx, 1)
	return samples{"store_commit_1": 1000 / found.submits}, err
}

// smallCommits measures commits of one task of each producer: more cannot share a commit if each
// producer waits for its single submits.
func (c *Config) smallCommits(ctx context.Context, producers int) (samples, error) {
	found, err := c.storeLimit(ctx, producers)
	return samples{
		forProducers("store_submit", producers): found.submits,
		forProducers("store_life", producers):   found.lives,
	}, err
}

// largeCommits measures commits of a whole frame of tasks.
func (c *Config) largeCommits(ctx context.Context) (samples, error) {
	found, err := c.storeLimit(ctx, frameSize)
	return samples{
		"store_submit_500": found.submits, "store_drain_500": found.drains,
		"store_life_500": found.lives,
	}, err
}
