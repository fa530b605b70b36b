// Package exhaustive visits every state that a small world can come to, and checks in each of them, and at each move between two, what must
// always hold. What it steps is lease.Rules, the code that runs in production; around it are a store with one batch under way, a network
// that loses, repeats and reorders, workers that may say anything at any time under any lease that they were told of, a clock, and one crash.
//
//	world_test.go      the state of everything
//	moves_test.go      what may happen next
//	network_test.go    messages, and what was told to whom
//	crash_test.go      the store, the crash and the start after it
//	invariants_test.go what must hold at each step, and at each thing told
//	drain_test.go      what must still be possible in each state
//	same_test.go       which states are one: the symmetries
//	search_test.go     breadth-first search
//	reached_test.go    what must have come about in it
//	scopes_test.go     the small worlds
//
// docs/testing.md tells what is bounded.
package exhaustive
