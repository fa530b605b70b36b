// Package witness keeps what workers saw of their attempts, and holds it against the histories that the coordinator keeps of
// the tasks: each is committed exactly once (A5), no handler began without a live lease (A4), and nobody was told anything
// else than what is kept (A6, A10).
package witness
