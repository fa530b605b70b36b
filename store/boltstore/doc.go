// Package boltstore keeps a store.Store in one bbolt file, one bucket for each keyspace.
//
// # Where things are
//
//	boltstore.go reader.go           an open store, and its read transactions
//	commit.go plan.go writer.go      a commit: how it applies the changes of its batches
//	sums.go                          the checksum over the records of each keyspace, which every commit updates
//	damage.go                        damage that is met while the store serves: the store fails, and the process does not panic
//	flush.go free.go                 how a commit becomes durable: with one flush, and mostly without the list of free pages
//
//	open.go create.go                opens a store, or creates one
//	lock.go owner.go                 the lock on the file, and which process holds it
//	opening.go mark*.go              decides whether a store is checked before it serves, or in the background
//	check.go meta.go tally.go        the check of all pages, of the meta pages, and of all records against their sums
//	background.go forget*.go         the check in the background; reading from the disk instead of the page cache
//	takeback.go                      takes back a last commit that a loss of power cut off
//
//	restore.go compact.go            makes a store from a backup; rewrites a store without its free pages
//	remains.go survey.go walk.go     reads what can be read of a damaged file, and makes a store for it (package salvage)
//	chown.go                         gives a store that is made from another one the owner of that one
//	standby.go                       the directory of a standby, and how it becomes that of a store
package boltstore
