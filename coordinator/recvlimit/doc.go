// Package recvlimit bounds the memory for messages that callers begin and do not finish (X5). gRPC
// keeps what has come of a message until the rest has come, up to the limit of a message, for each
// of the calls on each of the connections. A caller with a valid credential could make it keep any
// number of gigabytes so.
//
// The bytes are counted where they come in: each connection is read through a conn, which follows
// the frames of HTTP/2 and the messages in them. When all connections together have too much, the
// one with the oldest of these messages is closed, and the next one, until the rest is within the
// bound: a caller that works gets its messages through, while one that holds memory keeps it for
// long.
//
// # Where things are
//
//	limiter.go   all connections together, and which of them is closed
//	conn.go      a connection: the messages that have begun on it
//	frames.go    where the frames in a stream of bytes begin and end
package recvlimit
