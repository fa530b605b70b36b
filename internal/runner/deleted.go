package runner

import (
	"context"
	"errors"
	"io"
	"io/fs"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// RestoreDeleted has Run submit the lines again whose tasks are gone, because somebody has deleted
// them or their retention is over. It returns how many they are. Call it before the worker begins.
func (j *Job) RestoreDeleted(ctx context.Context, tasks lessorv1.TaskServiceClient) (lines int64, err error) {
	if !j.manifest.Submitted { // Run submits all lines, and what the coordinator has stays
		return 0, nil
	}
	there := newMarks(j.Lines())
	err = eachTask(ctx, tasks, j.manifest.filter(), func(task *lessorv1.Task) error {
		there.mark(LineOf(task))
		return nil
	})
	if err != nil || there.left() == 0 {
		return 0, err
	}
	j.there = there
	return there.left(), nil
}

// reportDeleted tells which lines will not be printed because their tasks are gone.
func (f *follower) reportDeleted() error {
	if f.printed.left() == 0 {
		return nil
	}
	err := f.job.eachLine(func(number int64, line []byte) error {
		if f.printed.has(number) {
			return nil
		}
		task := &lessorv1.Task{Spec: f.job.spec(number, line)}
		if f.record != nil {
			return f.screen.output(func(w io.Writer) error { return f.record(w, task, "") })
		}
		f.screen.Note("line %d deleted: %s: the coordinator has no task of it any more", number, quoteLine(task))
		return nil
	})
	// the data directory was removed meanwhile; the summary has the number of these lines
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
