package lease_test

import (
	"maps"
	"slices"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// host does what lease/doc.go asks of the caller of the rules: it stores the tasks, commits in
// batches, tells workers nothing before the commit, saves the serving clock, and unparks tasks.
// After a crash, only the fields that begin with disk are left.
type host struct {
	*memory // the newest versions, durable or not
	rules   *lease.Rules
	buckets map[specKey]lease.Bucket // of rate limits

	disk        *memory
	diskBuckets map[specKey]lease.Bucket
	diskClock   lease.Instant // the serving clock as it was last saved

	batch       []lease.Change
	unsent      []notice         // what workers are told once the batch is durable
	liveLeases  int              // number of live leases
	keysToCheck map[specKey]bool // concurrency keys of which a parked task may have room now; see markKey
}

// saveClock is how often the serving clock is saved while leases are live (A9).
const saveClock = lease.Instant(time.Second)

func newHost(now lease.Now, entropy func() uint64) *host {
	limits := lease.DefaultLimits()
	limits.Output, limits.Discarded = modelOutput, modelDiscarded
	return &host{
		memory: newMemory(), disk: newMemory(), diskClock: now.Serving,
		buckets: map[specKey]lease.Bucket{}, diskBuckets: map[specKey]lease.Bucket{}, keysToCheck: map[specKey]bool{},
		rules: &lease.Rules{Limits: limits, Authority: authorityOf(1, 1), Entropy: entropy, AckWithin: lease.DefaultAckWithin},
	}
}

func authorityOf(epoch, knownFrom uint32) *lease.Authority {
	a := lease.NewAuthority(epoch, []byte("secret"))
	a.KnownFrom = knownFrom
	return a
}

// Queue is that of memory, with the queue's own bucket. A queue without settings has no limits, so
// its leases are not counted.
func (h *host) Queue(space uint32, name string) lease.Queue {
	key := specKey{space, name}
	if h.settings[key] == nil {
		return lease.Queue{}
	}
	q := h.memory.Queue(space, name)
	q.Bucket = h.buckets[key]
	return q
}

// addChanges applies the changes of a step and adds them to the batch.
func (h *host) addChanges(changes []lease.Change) {
	h.apply(changes)
	h.batch = append(h.batch, changes...)
	for i := range changes {
		c := &changes[i]
		if liveLease(c.Old) != nil {
			h.liveLeases--
		}
		if liveLease(c.New) != nil {
			h.liveLeases++
		}
		h.markKey(c)
	}
}

// countGrant counts a grant against the rate limit of its queue.
func (h *host) countGrant(t *lease.Task, now lease.Instant) {
	key := specKey{t.ID.Space, t.Spec.Queue}
	if s := h.settings[key]; s != nil && s.Rate.PerSecond != 0 {
		h.buckets[key] = s.Rate.Take(h.buckets[key], now)
	}
}

// setQueue sets the settings of a queue. Its rate limit begins used up. setQueue replaces the map
// of settings, because the disk and backups share the old one.
func (h *host) setQueue(key specKey, s *lease.Settings, now lease.Instant) {
	h.settings = maps.Clone(h.settings)
	h.settings[key] = s
	h.buckets[key] = lease.UsedUp(now)
}

// markKey marks the concurrency key of a changed task if a lease of the key has ended, or if a
// READY task of the key is no longer READY. Then the first parked task of each line of the key may
// be unparked.
func (h *host) markKey(c *lease.Change) {
	t := c.Old
	if t == nil || t.Spec.ConcurrencyKey == "" {
		return
	}
	waits := func(t *lease.Task) bool { return t != nil && t.State() == lease.Ready }
	if t.Lease != nil && liveLease(c.New) == nil || waits(t) && !waits(c.New) {
		h.keysToCheck[specKey{t.ID.Space, t.Spec.ConcurrencyKey}] = true
	}
}

// markParkedKeys marks all keys under which tasks are parked. A start calls it, because the marks
// of before are lost.
func (h *host) markParkedKeys() {
	for id, t := range h.tasks {
		if t.Parked {
			h.keysToCheck[specKey{id.Space, t.Spec.ConcurrencyKey}] = true
		}
	}
}

// firstParked returns the first parked task of each line of a key, if the key has room for that
// task.
func (h *host) firstParked(key specKey) []lease.TaskID {
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

// commit makes the batch durable and returns what workers may be told now.
func (h *host) commit(now lease.Instant) []notice {
	h.disk.apply(h.batch)
	maps.Copy(h.disk.seqs, h.seqs)
	h.disk.settings = h.settings
	h.diskBuckets = maps.Clone(h.buckets)
	h.diskClock = now
	h.batch = h.batch[:0]
	told := h.unsent
	h.unsent = nil
	return told
}

// start goes back to what is on the disk.
func (h *host) start(now lease.Instant) {
	h.memory = h.disk.backup()
	h.batch, h.unsent, h.liveLeases = nil, nil, 0
	clear(h.keysToCheck)
	for _, t := range h.tasks {
		if t.Lease != nil {
			h.liveLeases++
		}
	}
	h.buckets = maps.Clone(h.diskBuckets)
	h.markParkedKeys()
}

// useUpRateLimits uses up all rate limits, as a restore does: the coordinator does not know which
// grants it made after the backup.
func (h *host) useUpRateLimits(now lease.Instant) {
	for key := range h.settings {
		h.buckets[key] = lease.UsedUp(now)
	}
	h.diskBuckets = maps.Clone(h.buckets)
}

// leased returns the ids of the tasks with a live lease, sorted.
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
