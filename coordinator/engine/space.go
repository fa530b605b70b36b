package engine

import (
	"github.com/lessor-dev/lessor/internal/ordered"
	"github.com/lessor-dev/lessor/lease"
)

// space is a workspace of a tenant: its sequence and its queues.
type space struct {
	name          Space
	tenant        *tenantTally
	number        uint32 // 0 until its first submit or queue update
	nextSeq       uint64
	lost          span        // sequences that the newest restore left out
	countedFrom   uint64      // the sequence from which on ended tasks are counted by their state; see countedAs
	writtenIn     batchNumber // the last batch that writes its record
	queues        map[string]*queue
	byQueueName   ordered.Set[*queue]           // the same queues, in the order of their names
	keys          map[string]*concurrencyKey    // concurrency keys that are held or waited for
	blockers      ordered.Set[blocker]          // of those that are both, the oldest first
	bindings      map[string]*binding           // affinity keys that have a worker
	affinityLines map[string]map[*line]struct{} // lines in which tasks wait, by affinity key
}

// Sequences are the sequences that the tasks and events of a space may have.
type Sequences struct {
	last uint64
	lost span
}

// Last returns the newest sequence.
func (s Sequences) Last() uint64 { return s.last }

// Lost reports whether a restore left out this sequence, so that no task or event has it. A client
// can only know such a sequence from the time after the backup, which the restore has lost.
func (s Sequences) Lost(seq uint64) bool { return s.lost.from <= seq && seq < s.lost.to }

// span is a range of sequences, from the first to before the end.
type span struct{ from, to uint64 }

func newSpace(name Space, tenant *tenantTally, number uint32, nextSeq uint64, lost span) *space {
	return &space{
		name:          name,
		tenant:        tenant,
		number:        number,
		nextSeq:       nextSeq,
		lost:          lost,
		queues:        map[string]*queue{},
		keys:          map[string]*concurrencyKey{},
		bindings:      map[string]*binding{},
		affinityLines: map[string]map[*line]struct{}{},
		byQueueName:   ordered.NewSet(func(a, b *queue) bool { return a.name < b.name }),
		blockers:      ordered.NewSet(blockerLess),
	}
}

// countedAs returns the index of tally.counts by which a task of the space is counted for which
// countOf returned that one: ended tasks that were submitted before the store had format 10 are
// counted together.
func (s *space) countedAs(id lease.TaskID, index int) int {
	if id.Seq < s.countedFrom && countCompleted <= index && index <= countCancelled {
		return countOlder
	}
	return index
}

// add adds a new queue to its space.
func (s *space) add(q *queue) {
	s.queues[q.name] = q
	s.byQueueName.Set(q)
}

// drop removes a queue from its space.
func (s *space) drop(q *queue) {
	delete(s.queues, q.name)
	s.byQueueName.Delete(q)
}

// queue finds a queue or makes it.
func (s *space) queue(name string) *queue {
	q := s.queues[name]
	if q == nil {
		q = newQueue(s, name)
		s.add(q)
	}
	return q
}

// track registers a line in which tasks wait, if they have an affinity key.
func (s *space) track(l *line) {
	if key := l.placement.Affinity; l.placement.Worker == "" && key != "" {
		if s.affinityLines[key] == nil {
			s.affinityLines[key] = map[*line]struct{}{}
		}
		s.affinityLines[key][l] = struct{}{}
	}
}

// untrack undoes what track did.
func (s *space) untrack(l *line) {
	if key := l.placement.Affinity; l.placement.Worker == "" && key != "" {
		if delete(s.affinityLines[key], l); len(s.affinityLines[key]) == 0 {
			delete(s.affinityLines, key)
		}
	}
}

// concurrencyKey finds a concurrency key or makes it.
func (s *space) concurrencyKey(key string) *concurrencyKey {
	k := s.keys[key]
	if k == nil {
		k = newConcurrencyKey(s, key)
		s.keys[key] = k
	}
	return k
}
