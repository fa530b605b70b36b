// Package records keeps tasks in a store. It writes the changes that package lease decides as rows,
// blobs and index entries, and reads them back.
//
// One function describes each type of record: it lists the fields in order, and its name ends in
// Fields. The same function writes and reads, so that the two cannot differ (codec.go). Numbers are
// varints; the length of strings and bytes precedes them. The version byte of the seal says which
// fields the record has; an unknown version is an error.
//
// Put writes a change of a task (put.go). Task and other functions read tasks (read.go).
//
// The index entries of a task are computed from one version of the task and nothing else
// (index.go). Put writes the difference between the entries of the old version and those of the new
// one. So an index can be checked by computing it again.
package records
