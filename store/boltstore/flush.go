package boltstore

// One flush makes a commit durable: it covers the pages of the commit and the meta page that points
// to them. bbolt by itself flushes the pages first, so that a meta page never points to pages that
// are missing. Here, the first Open after a loss of power looks for missing pages instead
// (checkData). If a part of the newest commit is missing, the flush of that commit did not succeed,
// so nobody was told of the commit, and Open takes it back.
//
// This depends on how bbolt writes. A commit never overwrites pages of the commit before it: the
// pages that it replaces become free only for the next commit. The two meta pages are written in
// turn. So whatever part of a commit a loss of power keeps, the commit before is whole. Also, the
// next commit is not written before this one is durable, although it begins earlier (commit.go).
//
// The first commit after Open still has two flushes, for two reasons. In a copy that Snapshot
// wrote, that commit may overwrite the newest meta page. After a commit was taken back, the next
// commit has the same number, and the number is what tells the sums of old pages from those of new
// ones.

// writeNote writes into the file that the last commit is durable. The note reaches the disk with
// the next flush, or when the kernel writes it back. Without the note, the next Open takes a
// damaged page of that commit for one that never reached the disk. The caller holds s.flushing, or
// is alone with the store.
func (s *Store) writeNote() {
	number := s.durable.Load()
	// if the disk has a fault, the next flush reports it
	_, _ = s.noteFile.WriteAt(encodeNote(number), noteAt(number, s.pageSize))
}

// syncNote makes the note of the last commit durable.
func (s *Store) syncNote() {
	if s.noteFile != nil && s.failed.Load() == nil {
		_ = s.db.Sync() // without the note, only the diagnosis of a damaged page can be wrong
	}
}

// A note is in the meta page that the next commit will overwrite, behind the fields of bbolt.
const noteHead = "durable:"

func encodeNote(number uint64) []byte { return order.AppendUint64([]byte(noteHead), number) }

// noteAt is the offset of a commit's note in the file. Commits write the meta pages in turn; those
// with even numbers write page 0.
func noteAt(number uint64, pageSize int) int64 {
	return int64((number+1)%2)*int64(pageSize) + int64(noteOffset(pageSize))
}

func noteOffset(pageSize int) int { return pageSize / 2 }

// await waits until a commit that a read has seen is durable: bbolt shows a commit to readers
// earlier. The read transaction must have ended, because a commit that has to map more of the file
// waits for all of them.
func (s *Store) await(number int) error {
	if uint64(number) <= s.durable.Load() {
		return nil
	}
	s.outcomeKnown.L.Lock()
	defer s.outcomeKnown.L.Unlock()
	for uint64(number) > s.durable.Load() {
		if failed := s.failed.Load(); failed != nil {
			return failed
		}
		s.outcomeKnown.Wait()
	}
	return nil
}

// setOutcome calls set, which sets the outcome of a commit, and wakes all goroutines that wait for
// that outcome.
func (s *Store) setOutcome(set func()) {
	s.outcomeKnown.L.Lock()
	set()
	s.outcomeKnown.L.Unlock()
	s.outcomeKnown.Broadcast()
}
