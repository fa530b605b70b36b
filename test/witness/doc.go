// Package witness records what workers saw of their attempts, and compares it with the histories
// that the coordinator has of the tasks: each task is committed exactly once (A5), no handler began
// without a live lease (A4), and every verdict that was told is the one that is stored (A6, A10).
package witness
