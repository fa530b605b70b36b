// Package porch bounds what can be had of a coordinator before anybody has said who calls (X5): how many connections are open, how many handshakes
// and calls without a good credential are under way, and how fast guesses at one are answered. All of it is counted by address, since nothing else
// is known of a stranger. Whether a credential is good the gate behind it tells.
//
// # Where things are
//
//	listener.go listener_*.go connections and handshakes; reading from a connection
//	strangers.go              calls whose credential is not good, until their message is there
//	attempts.go               the pace of answers to them
//	address.go                whose they are
package porch
