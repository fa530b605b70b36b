package boltstore

import "os"

// A commit is made durable by one flush: its pages, and the meta page that leads to them, together. bbolt by itself flushes the pages first, so that no meta page ever leads to what
// is not there. Here the first Open after a loss of power finds that out (checkData): where not all of the newest commit is there, nobody was told of it, and it is taken back.
//
// This rests on what bbolt does: a commit is never written over pages of the one before. It frees the pages that it replaces for the commit after it, and the meta pages are written
// in turn. So whatever a loss of power keeps of a commit, the one before is whole. And the next one is not written before this one is durable, though it begins before (commit.go).
//
// The first commit after Open still has two flushes. In a copy that Snapshot wrote, it may be written over the meta page of the newest; and where a commit was taken back, the next has its
// number, by which the sums would know old pages from new ones.

// flushOnce has each commit take one flush, from the second on, in a store that is of the newest format. Its notes go to file.
func (s *Store) flushOnce(file *os.File) { s.notes = file }

// note says in the file that the last commit is durable. It is on the disk with the next flush, or when the kernel sees fit; without it a damaged page of that commit would be taken for
// one that never came to the disk. The caller holds s.flushing.
func (s *Store) note() {
	number := s.durable.Load()
	_, _ = s.notes.WriteAt(note(number), noteAt(number, s.pageSize)) // the next flush will say what is wrong
}

// keepNote makes the note of the last commit durable.
func (s *Store) keepNote() {
	if s.notes != nil && s.failed.Load() == nil {
		_ = s.db.Sync() // only what a failed disk is taken for depends on it
	}
}

// A note lies in the meta page that the next commit is written over, behind what bbolt has there.
const noteHead = "durable:"

func note(number uint64) []byte { return order.AppendUint64([]byte(noteHead), number) }

// noteAt is where the note of a commit goes. Commits write the meta pages in turn: those with even numbers page 0.
func noteAt(number uint64, pageSize int) int64 {
	return int64((number+1)%2)*int64(pageSize) + int64(noteOffset(pageSize))
}

func noteOffset(pageSize int) int { return pageSize / 2 }

// await waits until commit number is durable, which a read has seen: bbolt shows it before it is. That read must have ended, or a commit that maps more of the file would
// wait for it.
func (s *Store) await(number int) error {
	if uint64(number) <= s.durable.Load() {
		return nil
	}
	s.settled.L.Lock()
	defer s.settled.L.Unlock()
	for uint64(number) > s.durable.Load() {
		if failed := s.failed.Load(); failed != nil {
			return failed
		}
		s.settled.Wait()
	}
	return nil
}

// ended tells whoever waits that a commit has ended.
func (s *Store) ended(how func()) {
	s.settled.L.Lock()
	how()
	s.settled.L.Unlock()
	s.settled.Broadcast()
}
