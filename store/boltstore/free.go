package boltstore

// A commit can write the list of free pages with the rest: then the next Open need not look for them in the whole file. But it writes all of the list, which
// a large drain makes long. So a commit leaves it out where it would be large beside what the commit writes anyway.
const (
	fewFree       = 512 // pages: their numbers fill one
	freePerChange = 4
)

// manyFree reports whether the list is left out of a commit of so many changes.
func (s *Store) manyFree(changes int) bool {
	pages := s.db.Stats()
	return pages.FreePageN+pages.PendingPageN > fewFree+freePerChange*changes
}

// listFree writes the list that the last commit has left out. Where it cannot be written, the next Open looks for the pages, and checks the store.
func (s *Store) listFree() {
	if !s.lastUnlisted() {
		return
	}
	c, err := s.beginCommit()
	if err != nil {
		return // all who ask were told
	}
	c.unlisted = new(false)
	if c.Write() == nil {
		_ = c.Sync()
	}
}

func (s *Store) lastUnlisted() bool {
	s.flushing.Lock()
	defer s.flushing.Unlock()
	return s.unlisted
}
