// Package refusal says no: it has the codes of what can go wrong with a call, a frame or an item of one, and turns the errors of the
// engine, of parsers and of the gate into what callers are told, with the wait after which a repeat helps. What is nobody's fault but
// ours is told as such, without its cause.
//
//	codes.go    the codes
//	refusal.go  from an error to the status of a call
//	items.go    and to what is told of one item among others
package refusal
