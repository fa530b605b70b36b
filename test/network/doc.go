// Package network lets SDK workers reach the coordinator over a network that does what networks do (W5 to W8): frames are
// lost, doubled, reordered and late, connections break before a frame and in the middle of one, are slow, and carry bytes one way only.
package network
