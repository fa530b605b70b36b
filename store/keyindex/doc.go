// Package keyindex finds tasks by their idempotency keys. Keys are random, or look so: an index
// that is ordered by them would write a page of its own for each new task as soon as it has more
// pages than memory. So the entries are written in the order in which tasks come, and put in order
// later, many at once.
//
//	submit ──> recent (KeyLog, by task; all of it in memory) ──> segment 1, 2, 3 ... (KeySegment, by hash; a filter of each in memory)
//	             ^                                                     │
//	             └───────────────── tasks that still exist ────────────┘
//
// When there are 65,536 recent entries, they become the next segment, in steps whose size is in
// proportion to what comes meanwhile. A segment does not change after that. A look-up asks memory,
// and then those segments whose filter may have the key: mostly none if the key is new.
//
// An entry is not removed with its task. What a look-up finds counts only if the task exists and
// has the key (records.HasKey), so an entry may also be in two places at once, and after a crash
// between two steps all keys are found. As tasks are removed, the segments are looked at in turn, a
// few entries of each: if half of their tasks are gone, the entries of those that exist become
// recent again, and the segment is removed.
//
// Decision 0038 says what else was considered.
//
//	index.go    the entries in memory, and look-ups
//	filter.go   which keys a segment may have
//	step.go     recent entries become segments, and segments are removed
package keyindex
