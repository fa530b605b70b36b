package lease_test

import (
	"maps"
	"slices"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// host does for the rules what lease/doc.go asks of their caller: it keeps the tasks, commits in batches, tells nothing before, keeps the
// serving clock, and brings parked tasks back. A crash leaves what is on its disk.
type host struct {
	*memory // the newest versions, durable or not
	rules   *lease.Rules
	buckets map[specKey]lease.Bucket // of rate limits

	disk        *memory
	diskBuckets map[specKey]lease.Bucket
	diskClock   lease.Instant // the serving clock as it was last saved

	batch  []lease.Change
	untold []telling // what the batch will tell
	live   int       // leases
	nudged map[specKey]bool
}

// saveClock is how often the serving clock is saved while leases are live (A9).
const saveClock = lease.Instant(time.Second)

func newHost(now lease.Now, entropy func() uint64) *host {
	limits := lease.DefaultLimits()
	limits.Output, limits.Discarded = modelOutput, modelDiscarded
	return &host{
		memory: newMemory(), disk: newMemory(), diskClock: now.Serving,
		buckets: map[specKey]lease.Bucket{}, diskBuckets: map[specKey]lease.Bucket{}, nudged: map[specKey]bool{},
		rules: &lease.Rules{Limits: limits, Authority: authorityOf(1), Entropy: entropy, AckWithin: lease.DefaultAckWithin},
	}
}

func authorityOf(epoch uint32) *lease.Authority { return lease.NewAuthority(epoch, []byte("secret")) }

// Queue adds the bucket to what memory has.
func (h *host) Queue(space uint32, name string) lease.Queue {
	key := specKey{space, name}
	if h.settings[key] == nil {
		return lease.Queue{}
	}
	q := h.memory.Queue(space, name)
	q.Bucket = h.buckets[key]
	return q
}

// take keeps what a step changed.
func (h *host) take(changes []lease.Change) {
	h.apply(changes)
	h.batch = append(h.batch, changes...)
	for i := range changes {
		c := &changes[i]
		if liveLease(c.Old) != nil {
			h.live--
		}
		if liveLease(c.New) != nil {
			h.live++
		}
		h.rekey(c)
	}
}

// granted takes a grant from the bucket of its queue.
func (h *host) granted(t *lease.Task, now lease.Instant) {
	key := specKey{t.ID.Space, t.Spec.Queue}
	if s := h.settings[key]; s != nil && s.Rate.PerSecond != 0 {
		h.buckets[key] = s.Rate.Take(h.buckets[key], now)
	}
}

// govern sets what governs a queue. Whoever reads settings has them as they were.
func (h *host) govern(key specKey, s *lease.Settings, now lease.Instant) {
	h.settings = maps.Clone(h.settings)
	h.settings[key] = s
	h.buckets[key] = lease.UsedUp(now)
}

// rekey marks the concurrency keys that may have room, or whose next one is not the same any more.
func (h *host) rekey(c *lease.Change) {
	t := c.Old
	if t == nil || t.Spec.ConcurrencyKey == "" {
		return
	}
	waits := func(t *lease.Task) bool { return t != nil && t.State() == lease.Ready }
	if t.Lease != nil && liveLease(c.New) == nil || waits(t) && !waits(c.New) {
		h.nudged[specKey{t.ID.Space, t.Spec.ConcurrencyKey}] = true
	}
}

// nudgeAll marks all keys under which tasks are parked, as a start does.
func (h *host) nudgeAll() {
	for id, t := range h.tasks {
		if t.Parked {
			h.nudged[specKey{id.Space, t.Spec.ConcurrencyKey}] = true
		}
	}
}

// next finds the first parked task of each line of a key that has room for it.
func (h *host) next(key specKey) []lease.TaskID {
	first := map[lease.Line]*lease.Task{}
	for id, t := range h.tasks {
		if !t.Parked || id.Space != key.space || t.Spec.ConcurrencyKey != key.key {
			continue
		}
		if f := first[t.Line()]; f == nil || t.Place < f.Place {
			first[t.Line()] = t
		}
	}
	var ids []lease.TaskID
	for _, t := range first {
		if h.Holders(key.space, key.key).Room(t.Spec.ConcurrencyLimit) {
			ids = append(ids, t.ID)
		}
	}
	slices.SortFunc(ids, func(a, b lease.TaskID) int { return int(a.Seq) - int(b.Seq) })
	return ids
}

// commit makes the batch durable and returns what may be told now.
func (h *host) commit(now lease.Instant) []telling {
	h.disk.apply(h.batch)
	maps.Copy(h.disk.seqs, h.seqs)
	h.disk.settings = h.settings
	h.diskBuckets = maps.Clone(h.buckets)
	h.diskClock = now
	h.batch = h.batch[:0]
	told := h.untold
	h.untold = nil
	return told
}

// start reads the disk. What was not on it has never been.
func (h *host) start(now lease.Instant) {
	h.memory = h.disk.backup()
	h.batch, h.untold, h.live = nil, nil, 0
	clear(h.nudged)
	for _, t := range h.tasks {
		if t.Lease != nil {
			h.live++
		}
	}
	h.buckets = maps.Clone(h.diskBuckets)
	h.nudgeAll()
}

// useUp is what a start does that does not know what was let through.
func (h *host) useUp(now lease.Instant) {
	for key := range h.settings {
		h.buckets[key] = lease.UsedUp(now)
	}
	h.diskBuckets = maps.Clone(h.buckets)
}

// leased lists the tasks with a live lease, in the order of their ids.
func (h *host) leased() []lease.TaskID {
	var ids []lease.TaskID
	for id, t := range h.tasks {
		if t.Lease != nil {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b lease.TaskID) int { return int(a.Space)<<20 - int(b.Space)<<20 + int(a.Seq) - int(b.Seq) })
	return ids
}
