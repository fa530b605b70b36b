package boltstore

// If a commit writes the list of free pages, the next Open need not search the whole file for them. But a commit always writes the whole list, which can be
// long, for example after many tasks were deleted. So a commit leaves the list out if it is long compared with the number of changes in the commit.
const (
	fewFree       = 512 // free pages; their numbers fill one page
	freePerChange = 4   // free pages for each change
)

// manyFree reports whether a commit of that many changes leaves out the list of free pages.
func (s *Store) manyFree(changes int) bool {
	pages := s.db.Stats()
	return pages.FreePageN+pages.PendingPageN > fewFree+freePerChange*changes
}

// listFree writes the list of free pages if the last commit left it out. If this fails, the next Open checks the store first and searches for the free pages.
func (s *Store) listFree() {
	if !s.lastUnlisted() {
		return
	}
	c, err := s.beginCommit()
	if err != nil {
		return // the store has failed, which its callers know
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
