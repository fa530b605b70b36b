// Package refusal has the error codes of calls, frames and items of frames. It converts the errors
// of the engine, of parsers and of the gate to the form that callers get, with the wait after which
// a repeat may succeed. If the fault is the coordinator's own, callers do not get its cause.
//
//	codes.go    the codes
//	refusal.go  converts an error to the status of a call
//	items.go    converts an error to the result of one item among others
package refusal
