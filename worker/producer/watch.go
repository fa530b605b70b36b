package producer

import (
	"context"
	"errors"
	"io"
	"iter"

	"google.golang.org/grpc"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// Watch returns the events of a task, from its submit on, each as it comes: its history, its
// progress and what its attempts print. They end with the task, when it is COMPLETED, FAILED,
// CANCELLED or deleted. Like Wait, Watch goes on when the coordinator is away or the stream is cut.
// It then resumes after the last event of the history that it has returned; progress and output of
// that time may be missing. If a slow reader misses events, an event says how many.
//
//	for event, err := range p.Watch(ctx, id) {
//		if err != nil {
//			return err
//		}
//		fmt.Print(event.GetChunk().GetText())
//	}
//
// GetAttempt says which attempt has printed a chunk: the output of another attempt begins from the
// start.
//
// An error is the last value, and comes without an event. It is a status as that of Wait. Each loop
// over the events has a stream of its own, and counts in the quota of watches (X5); to learn only
// of the end of a task, Wait is cheaper. Close does not end it.
func (c *Client) Watch(ctx context.Context, taskID string) iter.Seq2[*lessorv1.WatchTaskResponse, error] {
	return func(yield func(*lessorv1.WatchTaskResponse, error) bool) {
		if err := checkID(taskID); err != nil {
			yield(nil, err)
			return
		}
		w := &watch{tasks: c.tasks, id: taskID, yield: yield}
		var last error // of the last try
		for failures := 0; ; failures++ {
			began, err := w.stream(ctx)
			if w.over {
				return
			}
			if ctx.Err() != nil {
				yield(nil, contextEnded(ctx, "the last try", last))
				return
			}
			if began {
				failures = 0
			}
			pause, ok := waitAgain(ctx, err, began, failures)
			if !ok {
				yield(nil, err)
				return
			}
			last = err
			c.trouble.tell(err)
			sleep(ctx, pause) // if ctx ends, the next stream says so
		}
	}
}

// watch is a Watch in progress.
type watch struct {
	tasks lessorv1.TaskServiceClient
	id    string
	yield func(*lessorv1.WatchTaskResponse, error) bool
	after uint64 // sequence of the last event
	// final: the task was final after the last event. Somebody may have retried it since: only the
	// end of a stream says that no more come.
	final bool
	over  bool // the caller has left the loop, or the task has ended
}

// stream opens a stream, and passes its events on until it ends. began says that the coordinator
// has accepted it.
func (w *watch) stream(ctx context.Context) (began bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := open(ctx, func() (grpc.ServerStreamingClient[lessorv1.WatchTaskResponse], error) {
		return w.tasks.WatchTask(ctx, &lessorv1.WatchTaskRequest{TaskId: w.id, AfterSequence: w.after})
	})
	if err != nil {
		return false, err
	}
	began = accepted(stream)
	for !w.over {
		event, err := stream.Recv()
		if err != nil {
			w.over = w.final && errors.Is(err, io.EOF)
			return began, endOf(err)
		}
		began = true
		w.pass(event)
	}
	return began, nil
}

func (w *watch) pass(event *lessorv1.WatchTaskResponse) {
	w.after = max(w.after, event.GetSequence())
	if state := event.GetTaskState(); state != lessorv1.TaskState_TASK_STATE_UNSPECIFIED {
		w.final = words.Final(state)
	}
	w.over = !w.yield(event, nil) || event.GetDeleted() != nil
}
