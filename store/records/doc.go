// Package records keeps tasks in a store: it turns the changes that the rule book decides into rows, blobs and index entries, and reads
// them back.
//
// Each record is described once, by a function that lists its fields in their order and has a name that ends in Fields; the same function
// writes and reads, so that the two cannot differ (codec.go). Numbers are varints, strings and bytes have their length before them. The version
// byte of the seal says which list it was; an unknown one is an error.
//
// What a change does to a task is written by Put (put.go), and read back by Task and the like (read.go).
//
// Index entries are computed from a version of a task alone (index.go). Put writes the difference of the old version's entries and the
// new one's, so that an index can be checked by computing it again.
package records
