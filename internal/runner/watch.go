package runner

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// watcher follows the events of a run.
type watcher struct {
	job   *Job
	tasks lessorv1.TaskServiceClient
	// begun is closed when the run has its first task. Before, there is nothing to watch.
	begun <-chan struct{}
	// ended gets the ids of tasks that reached a final state; nil if nobody reads them. A slow
	// reader slows the stream.
	ended chan<- string
	// eventsMissed is signalled when events may be missing.
	eventsMissed chan<- struct{}
	// tally counts events of lines for the progress bar; nil: there is no bar.
	tally *tally
	// retries gets events of lines, too; nil: nobody is told of retries.
	retries *retryNotes

	tried    bool      // to open a stream, in this process or an earlier one
	sequence uint64    // sequence of the last durable event
	saved    time.Time // when the sequence was saved last
}

// saveInterval is how often the sequence is saved for a later process.
const saveInterval = time.Second

// run follows the stream of events, and opens it again when it breaks. It returns when ctx ends, or
// when the coordinator has been away for maxAway.
func (w *watcher) run(ctx context.Context) error {
	select {
	case <-w.begun:
	case <-ctx.Done():
	}
	for ctx.Err() == nil {
		err := retryWhileAway(ctx, func() error { return w.follow(ctx) })
		// a restore has lost the event with that sequence
		if status.Code(err) == codes.InvalidArgument && w.sequence != 0 {
			w.sequence = 0
			continue
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// follow reads one stream to its end.
func (w *watcher) follow(ctx context.Context) error {
	opened, again := time.Now(), w.tried
	w.tried = true
	stream, err := w.tasks.WatchTask(ctx, &lessorv1.WatchTaskRequest{
		RunId:         w.job.RunID(),
		WorkspaceId:   w.job.manifest.Options.Workspace,
		AfterSequence: w.sequence,
	})
	if err != nil {
		return err
	}
	// Tasks may have been deleted while there was no stream, and no stored event says so. The
	// headers come once the watch has begun, so that the list misses nothing. There are none if the
	// watch was refused; Recv returns the error.
	header, _ := stream.Header()
	if header != nil && again {
		w.signalEventsMissed()
	}
	for received := false; ; received = true {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			err = status.Error(codes.Unavailable, "the coordinator ended the watch")
		}
		if err != nil {
			return streamError(ctx, err, opened, header != nil, received)
		}
		w.take(ctx, event)
	}
}

func (w *watcher) take(ctx context.Context, e *lessorv1.WatchTaskResponse) {
	w.sequence = max(w.sequence, e.GetSequence())
	if now := time.Now(); now.Sub(w.saved) > saveInterval {
		w.saved = now
		w.job.saveCursor(w.sequence)
	}
	switch event := e.GetEvent().(type) {
	case *lessorv1.WatchTaskResponse_History:
		if w.ended != nil && words.Final(event.History.GetTaskState()) {
			w.end(ctx, e.GetTaskId())
		}
		w.tell(ctx, e.GetTaskId(), event.History)
	case *lessorv1.WatchTaskResponse_Missed:
		if event.Missed.GetDurable() > 0 {
			w.signalEventsMissed()
		}
	case *lessorv1.WatchTaskResponse_Deleted:
		w.signalEventsMissed()
	}
}

// tell tells the progress bar and the notes of an event, if its task is a line: the event does not
// say. The end of a line counts when it is printed, unless that waits for the lines before it.
func (w *watcher) tell(ctx context.Context, taskID string, e *lessorv1.HistoryEvent) {
	again := isRetry(e) && (w.tally != nil || w.retries != nil)
	end := words.Final(e.GetTaskState()) && w.tally != nil && w.ended == nil
	if !again && !end {
		return
	}
	answer, err := w.tasks.GetTask(ctx, &lessorv1.GetTaskRequest{TaskId: taskID})
	if err != nil || LineOf(answer.GetTask()) == 0 {
		return
	}
	if w.tally != nil {
		w.tally.event(e)
	}
	if again && w.retries != nil {
		w.retries.event(answer.GetTask(), e)
	}
}

func (w *watcher) end(ctx context.Context, taskID string) {
	select {
	case w.ended <- taskID:
	case <-ctx.Done():
	}
}

func (w *watcher) signalEventsMissed() {
	select {
	case w.eventsMissed <- struct{}{}:
	default: // the signal is not received yet, and one is enough
	}
}
