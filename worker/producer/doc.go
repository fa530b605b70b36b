// Package producer submits tasks, follows them, and waits for their outcomes. Calls of Submit that
// run at the same time share frames of one stream. No timer delays them: a single call is sent at
// once, and while frames wait for their answers, the next calls are collected into the next frame.
// So plain Submit from many goroutines costs little more than a batch.
//
//	conn, err := worker.Dial("localhost:7420")
//	...
//	p := producer.New(conn)
//	defer p.Close()
//	result, err := p.Submit(ctx, &lessorv1.TaskSpec{Queue: "images", Payload: png, IdempotencyKey: name})
//	...
//	task, err := p.Wait(ctx, result.GetTaskId())
//	...
//	output, err := producer.Result(task) // or why it has none
//
// Watch follows a task while it runs, and WaitRun waits for all tasks of a run. To cancel or to
// retry tasks, call lessorv1.NewTaskServiceClient(conn).
//
// # What a result means
//
// When Submit returns a result, the task is durable. When it returns an error with the code
// UNAVAILABLE, DEADLINE_EXCEEDED or CANCELLED, it is unknown whether the task was created: the
// stream may have broken after the commit. The same holds for INTERNAL and UNKNOWN, with which a
// coordinator or a proxy reports a fault of its own. Any other code is a refusal, and no task was
// created. Nor was one if an UNAVAILABLE has the reason COORDINATOR_STOPPING or STORE_GONE in its
// google.rpc.ErrorInfo: a coordinator that stops answers what it has taken, and takes no more.
//
// When the credential of the stream expires, the coordinator answers what it has taken, and the
// client sends the rest on a new stream. So no call fails while a new token is there in time, as
// from worker.TokenFile.
//
// While the coordinator cannot be reached, specs wait and are not sent. The client itself sends a
// spec again that was refused because the coordinator stops, or its store is gone. If the stream is
// lost or the answer is UNAVAILABLE for another reason, it sends only those with an idempotency_key
// again, because a repeat finds the first task (T1). All this lasts until ctx ends, so give ctx a
// deadline; if there was no stream then, the error says why, and Config.Logger is told of it
// meanwhile. A spec that is refused because a quota is used up is sent again after the wait that
// the coordinator asks for, until ctx ends; without a deadline at most ten times.
package producer

// The goroutines:
//
//	name      owns                               woken by                       stops
//	sender    the stream and the waiting calls   Submit, an answered frame      with Close
//	caller    the call that opens a stream       credentials, the connection    when the call returns
//	receiver  the frames that wait for answers   the stream                     with its stream
//	waits     what its stream still has to tell  Wait, the stream               with Close, or the last Wait after that; its receiver before it
