// Package refusal has the codes of what can go wrong with a call, a frame or an item of a frame. It converts the errors of the engine, of
// parsers and of the gate to what callers are told, with the wait after which a repeat may succeed. Of a fault of the coordinator itself it
// tells no cause.
//
//	codes.go    the codes
//	refusal.go  converts an error to the status of a call
//	items.go    converts an error to what is told of one item among others
package refusal
