// Package proxy stands between workers and a coordinator, and does to their connections what bad
// networks do.
//
//	Proxy   knows the frames of a session: it drops, duplicates, reorders and delays them, and cuts connections
//	        before a frame goes on or in the middle of one
//	Relay   knows only bytes: it carries them to wherever the coordinator is now
//
// A Proxy draws its faults at random, at given rates. The seed decides the fault of the n-th frame
// of each direction of each stream; how that combines with all else is up to the machine. It counts
// the faults that took effect, not those that were drawn: a frame that was to be overtaken but was
// not, or a cut that came too late, proves nothing.
package proxy
