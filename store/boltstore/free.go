package boltstore

// If a commit writes the list of free pages, the next Open need not search the whole file for them.
// But a commit always writes the whole list, which can be long, for example after many tasks were
// deleted. So a commit leaves the list out if it is long compared with the number of changes in the
// commit.
const (
	maxListed          = 512 // free pages; their numbers fill one page
	maxListedPerChange = 4   // free pages for each change
)

// freelistTooLong reports whether a commit of that many changes leaves out the list of free pages.
func (s *Store) freelistTooLong(changes int) bool {
	pages := s.db.Stats()
	return pages.FreePageN+pages.PendingPageN > maxListed+maxListedPerChange*changes
}

// writeFreelist writes the list of free pages if the last commit left it out. If this fails, the
// next Open checks the store first and searches for the free pages.
func (s *Store) writeFreelist() {
	if !s.lastOmittedFreelist() {
		return
	}
	c, err := s.beginCommit()
	if err != nil {
		return // the store has failed, which its callers know
	}
	c.omitFreelist = new(false)
	if c.Write() == nil {
		_ = c.Sync()
	}
}

func (s *Store) lastOmittedFreelist() bool {
	s.flushing.Lock()
	defer s.flushing.Unlock()
	return s.freelistOmitted
}
