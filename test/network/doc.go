// Package network connects SDK workers to the coordinator over a bad network (W5 to W8): frames are
// lost, duplicated, reordered and delayed; connections break before a frame or in the middle of
// one, are slow, or carry bytes one way only; or all packets are lost, without a word.
package network
