// Package proxy stands between workers and a coordinator and does to them what networks do.
//
//	Proxy   knows the frames of a session: it drops, doubles, reorders and delays them, and cuts connections
//	        before a frame goes on or in the middle of one
//	Relay   knows bytes only: it carries them to wherever the coordinator is now
//
// A Proxy draws its faults at random, in the rates that it is given. One seed decides what is drawn for the n-th frame
// of each direction of each stream; how that falls into place with the rest is up to the machine. It counts what has
// landed, not what was drawn: a frame that was to be overtaken and was not, or a cut that came too late, proves nothing.
package proxy
