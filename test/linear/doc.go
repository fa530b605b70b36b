// Package linear records what real client processes ask of the real coordinator and what they are told, and checks with
// porcupine that each task's history is linearizable (A10): that there is an order of all its calls, each between its question and
// its answer, in which the answers are those of a simple sequential model of the contract.
//
// The model (model_test.go) is written from the rules A1 to A5, V4 to V12, T4, T5, T7 and T9, and shares no code with the coordinator.
// What time does is an operation, too: the end of a lease that nobody reported is read from the durable history of its task, and
// may lie anywhere between the earliest moment at which the lease could expire and the end.
//
// A call without an answer, cut off by a kill -9, may have happened at any time after its question, or never. The durable history
// rules the latter out where it can, which keeps the search short.
package linear
