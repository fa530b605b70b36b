// Package linear records what real client processes ask of the real coordinator and what they are
// told, and checks with porcupine that the history of each task is linearizable (A10): there is an
// order of all its calls, each between its request and its answer, in which the answers are those
// of a simple sequential model of the contract.
//
// The model (model_test.go) is written from the rules A1 to A5, V4 to V12, T4, T5, T7 and T9, and
// shares no code with the coordinator. What time does is an operation, too: the end of a lease
// without a report is read from the stored history of its task. It may lie anywhere between the
// earliest moment at which the lease could end and the end of the recording.
//
// A call without an answer, cut off by a kill -9, may have happened at any time after its request,
// or never. The stored history shows for most of them that they did not happen, and they are left
// out; this keeps the search short.
package linear
