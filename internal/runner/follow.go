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

// follower prints the lines of a run until all have ended.
type follower struct {
	*printer
	ended        <-chan string   // ids of tasks that may have ended
	eventsMissed <-chan struct{} // signalled when events may be missing
	submit       *submitter      // its own goroutine does not use it any more once done is closed
}

// printAsTheyEnd prints the lines in the order in which they end.
//
// The events say which lines have ended. If an earlier process began the run, or events may be
// missing, it lists all tasks instead (sweep).
func (f *follower) printAsTheyEnd(ctx context.Context) error {
	s := &sweeps{due: f.job.Resumed, submitted: f.submit.done}
	for f.printed.left() > s.gone {
		next := f.printNext
		if s.due {
			next = f.sweepOnce
		}
		if err := next(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// sweeps is what is known from the sweeps of a run.
type sweeps struct {
	due bool // the next step is a sweep
	// early: the last sweep began before every line was submitted, so it cannot say which tasks are
	// gone.
	early bool
	// gone has the lines that will never be printed: neither printed nor open after a sweep that
	// was not early.
	gone      int64
	submitted <-chan struct{} // closed when every line is submitted; nil once that was noticed
}

// printNext waits for what happens next, and prints a line that has ended.
func (f *follower) printNext(ctx context.Context, s *sweeps) error {
	select {
	case id := <-f.ended:
		known, err := f.printIfEnded(ctx, id)
		s.due = !known
		return err
	case <-f.eventsMissed:
		s.due = true
	case <-s.submitted:
		s.submitted, s.due = nil, s.early
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// sweepOnce makes a sweep. If a line is neither printed nor open after it, its task is gone:
// somebody deleted it, or a restore of the coordinator has lost it (submitLost).
func (f *follower) sweepOnce(ctx context.Context, s *sweeps) error {
	s.early = !closed(f.submit.done)
	open, err := f.sweep(ctx)
	if err != nil {
		return err
	}
	s.due = false
	if s.early {
		return nil
	}
	if s.gone = f.printed.left() - open; s.gone <= 0 {
		return nil
	}
	if s.due, err = f.submitLost(ctx); s.due {
		s.gone = 0
	}
	return err
}

// submitLost is called when the tasks of some lines are gone. If the coordinator was restored after
// they were submitted, submitLost submits all unprinted lines again. For those that still have a
// task this changes nothing (T1). A line whose task somebody deleted before the restore looks like
// a lost one, and is submitted, too.
func (f *follower) submitLost(ctx context.Context) (submitted bool, err error) {
	before := f.job.manifest.Epoch
	now, err := f.submit.fetchEpoch(ctx)
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

// sweep lists all tasks, prints those that have ended, and returns how many lines are open. A
// printed line is not open, even if its task was retried later.
func (f *follower) sweep(ctx context.Context) (open int64, err error) {
	err = f.each(ctx, func(task *lessorv1.Task) error {
		if words.Final(task.GetState()) {
			if known, err := f.printIfEnded(ctx, task.GetTaskId()); err != nil || !known {
				return err
			}
		}
		if f.printed.lacks(LineOf(task)) { // also if somebody has retried the task since it was listed
			open++
		}
		return nil
	})
	return open, err
}

// printRest prints the lines that have ended and were not printed yet. It only counts those after a
// gap: an output that could not be written or, with untilOpen, a line that has not ended. It
// returns no error if it cannot reach the coordinator, because the run already ends for another
// reason.
func (f *follower) printRest(ctx context.Context, untilOpen bool) error {
	gap := f.screen.outputFailed()
	err := f.eachInOrder(ctx, func(task *lessorv1.Task) error {
		switch {
		case !words.Final(task.GetState()):
			gap = gap || untilOpen
		case !gap:
			_, err := f.printIfEnded(ctx, task.GetTaskId())
			return err
		case f.printed.mark(LineOf(task)):
			f.tally.print(task)
		}
		return nil
	})
	if status.Code(err) != codes.Unknown || ctx.Err() != nil {
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
	case <-f.submit.done: // from now on the list has all tasks
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for f.printed.left() > 0 {
		err := f.eachInOrder(ctx, func(task *lessorv1.Task) error { return f.printWhenEnded(ctx, task.GetTaskId()) })
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
		if words.Final(task.GetState()) {
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
	header, _ := stream.Header()
	for received := false; ; received = true {
		_, err := stream.Recv()
		if errors.Is(err, io.EOF) || status.Code(err) == codes.NotFound {
			return nil
		}
		if err != nil {
			return streamError(ctx, err, opened, header != nil, received)
		}
	}
}

// eachInOrder is each in the order of the input, also if lines were submitted again: a list has
// their tasks after the others.
func (f *follower) eachInOrder(ctx context.Context, visit func(*lessorv1.Task) error) error {
	if !f.job.manifest.Unordered {
		return f.each(ctx, visit)
	}
	next := int64(1)
	return f.each(ctx, func(task *lessorv1.Task) error {
		for line := LineOf(task); next < line; next++ {
			if err := f.visitLine(ctx, next, visit); err != nil {
				return err
			}
		}
		next = max(next, LineOf(task)+1)
		return visit(task)
	})
}

// visitLine visits the task of a line, if it has one and was not printed.
func (f *follower) visitLine(ctx context.Context, line int64, visit func(*lessorv1.Task) error) error {
	if !f.printed.lacks(line) {
		return nil
	}
	filter := f.job.manifest.filter()
	filter.IdempotencyKey = idempotencyKey(f.job.RunID(), line)
	return eachTask(ctx, f.tasks, filter, visit)
}

// each visits the tasks of the lines that were not printed, in the order of their submit. It leaves
// out tasks of the run that are no lines of it, such as those that a command has submitted with
// LESSOR_RUN_ID.
func (f *follower) each(ctx context.Context, visit func(*lessorv1.Task) error) error {
	return eachTask(ctx, f.tasks, f.job.manifest.filter(), func(task *lessorv1.Task) error {
		if !f.printed.lacks(LineOf(task)) {
			return nil
		}
		return visit(task)
	})
}
