// Package exhaustive visits every state that a small world can reach, and checks in each state, and
// at each move between two, what must always hold. The rules are lease.Rules, the code that runs in
// production. Around them is a simple model: a store with one batch under way, a network that
// loses, repeats and reorders messages, workers that may say anything at any time under any lease
// that they were told of, a clock, and one crash.
//
//	world_test.go      the state of everything
//	moves_test.go      what may happen next
//	network_test.go    messages
//	publish_test.go    what workers are told, and that it does not contradict what they know
//	crash_test.go      the store, the crash and the start after it
//	invariants_test.go what must hold at each step
//	drain_test.go      what must still be possible in each state
//	same_test.go       which states count as one: the symmetries
//	search_test.go     breadth-first search
//	reached_test.go    which outcomes the search must reach
//	scopes_test.go     the small worlds
//
// docs/testing/models.md says what is bounded.
package exhaustive
