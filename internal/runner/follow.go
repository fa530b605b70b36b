package runner

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// follower prints the lines of a run until all have ended.
type follower struct {
	*printer
	ended     <-chan string   // tasks that may have ended
	doubt     <-chan struct{} // signalled when events may be missing
	submitted <-chan struct{} // closed when every line is a task
	submit    *submitter      // idle once submitted is closed
}

// printAsTheyEnd prints the lines in the order in which they end.
//
// The events tell which. If an earlier process began the run, or events may be missing, it looks at all tasks instead. A line that is then
// neither printed nor open has no task any more: somebody deleted it, or a restore of the coordinator has lost it (submitLost). But that is certain
// only if every line had been submitted before the look.
func (f *follower) printAsTheyEnd(ctx context.Context) error {
	sweep, submitted := f.job.Resumed, f.submitted
	early, gone := false, int64(0)
	for f.printed.left() > gone {
		if sweep {
			early = !closed(f.submitted)
			open, err := f.sweep(ctx)
			if err != nil {
				return err
			}
			sweep = false
			if early {
				continue
			}
			if gone = f.printed.left() - open; gone > 0 {
				if sweep, err = f.submitLost(ctx); err != nil {
					return err
				}
				if sweep {
					gone = 0
				}
			}
			continue
		}
		select {
		case id := <-f.ended:
			known, err := f.printIfEnded(ctx, id)
			if err != nil {
				return err
			}
			sweep = !known
		case <-f.doubt:
			sweep = true
		case <-submitted:
			submitted, sweep = nil, early
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// submitLost is called when lines have no task any more. If the coordinator was restored since they were submitted, it submits them again, and those that
// are open, which changes nothing (T1). A line whose task was deleted before the restore cannot be told from a lost one, and is submitted, too.
func (f *follower) submitLost(ctx context.Context) (submitted bool, err error) {
	before := f.job.manifest.Epoch
	now, err := f.submit.epoch.now(ctx)
	if err != nil || before == 0 || now == before {
		return false, err
	}
	f.screen.Note("the coordinator was restored from a backup: lines that it does not have are submitted again")
	return true, f.submit.submitLines(ctx, func(number int64) bool { return !f.printed.has(number) })
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// sweep prints every task that has ended, and returns how many lines are open: a printed line is not, even if its task was retried since.
func (f *follower) sweep(ctx context.Context) (open int64, err error) {
	err = f.each(ctx, func(task *lessorv1.Task) error {
		if f.printed.has(lineOf(task)) {
			return nil
		}
		if !final(task.GetState()) {
			open++
			return nil
		}
		_, err := f.printIfEnded(ctx, task.GetTaskId())
		return err
	})
	return open, err
}

// errNotEnded ends printRest in order: the next line has not ended.
var errNotEnded = errors.New("the next line has not ended")

// printRest prints what has ended and was not printed yet; in order, only as far as all lines before have ended. It returns no error if it
// cannot ask the coordinator: the run already ends for another reason.
func (f *follower) printRest(ctx context.Context, inOrder bool) error {
	err := f.each(ctx, func(task *lessorv1.Task) error {
		switch {
		case f.printed.has(lineOf(task)):
			return nil
		case final(task.GetState()):
			_, err := f.printIfEnded(ctx, task.GetTaskId())
			return err
		case inOrder:
			return errNotEnded
		}
		return nil
	})
	if errors.Is(err, errNotEnded) || status.Code(err) != codes.Unknown || ctx.Err() != nil {
		return nil
	}
	return err
}

// printIfEnded prints a task if it has ended. It reports whether the coordinator knows the task.
func (f *follower) printIfEnded(ctx context.Context, taskID string) (known bool, err error) {
	task, err := f.get(ctx, taskID)
	if errors.Is(err, errGone) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, f.print(task)
}

// printInOrder prints the lines in the order of the input, waiting for each.
func (f *follower) printInOrder(ctx context.Context) error {
	select {
	case <-f.submitted: // the list has all tasks from here on
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for f.printed.left() > 0 {
		err := f.each(ctx, func(task *lessorv1.Task) error {
			if f.printed.has(lineOf(task)) {
				return nil
			}
			return f.printWhenEnded(ctx, task.GetTaskId())
		})
		if err != nil || f.printed.left() == 0 {
			return err
		}
		if again, err := f.submitLost(ctx); !again {
			return err
		}
	}
	return nil
}

// printWhenEnded waits until a task has ended and prints it.
func (f *follower) printWhenEnded(ctx context.Context, taskID string) error {
	for {
		task, err := f.get(ctx, taskID)
		if errors.Is(err, errGone) {
			return nil
		}
		if err != nil {
			return err
		}
		if final(task.GetState()) {
			return f.print(task)
		}
		if err := retryWhileAway(ctx, func() error { return f.await(ctx, taskID) }); err != nil {
			return err
		}
	}
}

// await returns when a task has ended or is gone, or when the stream ends.
func (f *follower) await(ctx context.Context, taskID string) error {
	opened := time.Now()
	stream, err := f.tasks.WatchTask(ctx, &lessorv1.WatchTaskRequest{TaskId: taskID})
	if err != nil {
		return err
	}
	for received := false; ; received = true {
		_, err := stream.Recv()
		if errors.Is(err, io.EOF) || status.Code(err) == codes.NotFound {
			return nil
		}
		if err != nil {
			return streamError(err, opened, received)
		}
	}
}

// each visits all tasks of the run in the order of the input.
func (f *follower) each(ctx context.Context, visit func(*lessorv1.Task) error) error {
	return eachTask(ctx, f.tasks, f.job.manifest.filter(), visit)
}
