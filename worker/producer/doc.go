// Package producer submits tasks. Calls of Submit that run at the same time share frames of one stream, without a timer: a lone call leaves at
// once, and while frames are on their way the next ones fill up. So plain Submit from many goroutines costs little more than a batch.
//
//	conn, err := worker.Dial("localhost:7420")
//	...
//	p := producer.New(conn)
//	defer p.Close()
//	result, err := p.Submit(ctx, &lessorv1.TaskSpec{Queue: "images", Payload: png, IdempotencyKey: name})
//
// # What a result means
//
// When Submit returns a result, the task is durable. When it returns an error with the code UNAVAILABLE, DEADLINE_EXCEEDED or CANCELLED, nobody
// knows whether the task was made: the stream may have broken after the commit. Any other code is a refusal, and no task was made.
//
// The client sends a spec with an idempotency_key again by itself after its stream was lost, because a repeat finds the first task (T1). It does so
// until ctx ends, so give ctx a deadline; the error then says what was in the way. A spec that is refused because a quota is used up is sent again
// after the wait that the coordinator asks for, at most ten times and as long as ctx allows.
//
// # Goroutines
//
//	name      owns                              woken by                       stops
//	sender    the stream, and what fills up     Submit, an answered frame      with Close
//	caller    the call that opens a stream      credentials, the connection    when the call returns
//	receiver  the frames that wait for answers  the stream                     with its stream
package producer
