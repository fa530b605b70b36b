// Package standby keeps a second store equal to the store of a coordinator, commit by commit, so
// that little or nothing is lost with a disk or a machine.
//
//	feed.go      the store of the coordinator: numbers its commits, and keeps the newest ones
//	attach.go    who follows it
//	wait.go      its commits wait for a standby, if they are to, before they count as durable
//	follower.go  sends one standby what it lacks: the store if need be, then each commit
//	replica.go   the standby: applies what comes to its own store, and says what it has made durable
//	sink.go      what goes from the one to the other
//
// A store that ever had a standby holds the number of its last commit, as one of its records
// (records.Position). So it is copied like everything else, and a standby that comes back says by
// it which state it has. After a restart of the coordinator only equal positions help; then, and
// every few seconds, the checksums of all keyspaces are compared (store.Summer), which also finds
// what another program has changed.
//
// Such a store also holds how far it has the commits of earlier runs (records.Lineage). By that a
// standby tells whether the store of a coordinator has all that its own copy has, however often it
// was started, promoted or restored since. If not, the standby keeps the copy.
//
// A copy needs no snapshot: the follower reads the store a piece at a time and sends, before each
// piece, the commits that its state has. Applied in the same order, that is a copy of the last
// state, although no two pieces have the same one. And so a copy whose line was cut goes on behind
// its last piece.
package standby
