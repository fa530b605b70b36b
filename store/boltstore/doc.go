// Package boltstore keeps a store.Store in one bbolt file, one bucket for each keyspace.
//
// # Where things are
//
//	boltstore.go reader.go           an open store, and what is read of it
//	commit.go plan.go writer.go      the changes of a commit
//	sums.go                          the sum over the records of each keyspace, which goes with every commit
//	flush.go free.go                 how a commit becomes durable: with one flush, and mostly without the list of free pages
//
//	open.go create.go                opening a store, and making one
//	lock.go owner.go                 who has it open
//	opening.go mark*.go              whether it is checked before it serves, or beside that
//	check.go meta.go tally.go        the check: all pages, the meta pages, all records against their sums
//	recheck.go forget*.go            the check beside the service; what is read comes from the disk
//	takeback.go                      a last commit that a loss of power cut off
//
//	restore.go compact.go            a store made of a backup; one without the room that nothing is in
package boltstore
