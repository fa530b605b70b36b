package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// TaskType is the type of the tasks of every run.
const TaskType = "lessor-run"

const (
	// maxBatch and maxBatchBytes bound one submit, well below the limits of a coordinator (S7).
	maxBatch      = 500
	maxBatchBytes = 1 << 20
)

// How long the tasks of a run are kept after their end: only the coordinator knows what is done when a run is resumed. The store of an
// embedded coordinator holds nothing else.
const (
	embeddedRetention = 10 * 365 * 24 * time.Hour
	sharedRetention   = 30 * 24 * time.Hour
)

// Heartbeats on a shared coordinator: when the process of a run is killed and started again, the lines that were under
// way wait for the end of their leases.
const (
	sharedHeartbeatInterval = 5 * time.Second
	sharedHeartbeatTimeout  = 20 * time.Second
)

// epochOf asks for the epoch of the coordinator; see Config.Epoch.
type epochOf func(context.Context) (uint32, error)

// now returns the epoch, 0 if it is not known.
func (ask epochOf) now(ctx context.Context) (epoch uint32, err error) {
	if ask == nil {
		return 0, nil
	}
	err = retryWhileAway(ctx, func() (err error) {
		epoch, err = ask(ctx)
		return err
	})
	return epoch, err
}

// submitter submits the lines of a job.
type submitter struct {
	job   *Job
	tasks lessorv1.TaskServiceClient
	epoch epochOf

	begun chan struct{} // closed when the coordinator has the first tasks
	done  chan struct{} // closed when it has all tasks

	batch []*lessorv1.TaskSpec
	bytes int
}

func newSubmitter(j *Job, tasks lessorv1.TaskServiceClient, epoch epochOf) *submitter {
	s := &submitter{job: j, tasks: tasks, epoch: epoch, begun: make(chan struct{}), done: make(chan struct{})}
	if j.manifest.Submitted {
		close(s.begun)
		close(s.done)
	}
	return s
}

// run submits, in order, every line that may not have been submitted before.
func (s *submitter) run(ctx context.Context) error {
	if closed(s.done) {
		return nil
	}
	if err := s.submitLines(ctx, func(int64) bool { return true }); err != nil {
		return err
	}
	close(s.done)
	return nil
}

// submitLines submits the chosen lines, and saves the epoch from before: if the coordinator is restored meanwhile, it may have lost some of them.
func (s *submitter) submitLines(ctx context.Context, choose func(number int64) bool) error {
	epoch, err := s.epoch.now(ctx)
	if err != nil {
		return err
	}
	if err := s.submitChosen(ctx, choose); err != nil {
		return err
	}
	return s.job.submitted(epoch)
}

func (s *submitter) submitChosen(ctx context.Context, choose func(number int64) bool) error {
	f, err := os.Open(s.job.path("input"))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	lines := newLineReader(f, s.job.manifest.Options.Nulls)
	for {
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			return s.flush(ctx)
		}
		if err != nil {
			return err
		}
		if !choose(lines.number) {
			continue
		}
		if err := s.add(ctx, lines.number, line); err != nil {
			return err
		}
	}
}

func (s *submitter) add(ctx context.Context, number int64, line []byte) error {
	if len(s.batch) == maxBatch || s.bytes+len(line) > maxBatchBytes {
		if err := s.flush(ctx); err != nil {
			return err
		}
	}
	s.batch = append(s.batch, s.job.spec(number, line))
	s.bytes += len(line)
	return nil
}

// flush submits the batch. Its tasks have idempotency keys, so that it may be repeated (T1).
func (s *submitter) flush(ctx context.Context) error {
	if len(s.batch) == 0 {
		return nil
	}
	err := s.submit(ctx, s.batch)
	if err == nil && !closed(s.begun) {
		close(s.begun)
	}
	s.batch, s.bytes = s.batch[:0], 0
	return err
}

// submit submits tasks. Batches may have fewer tasks on this coordinator than usual (S7): one that is refused is tried again in halves.
func (s *submitter) submit(ctx context.Context, tasks []*lessorv1.TaskSpec) error {
	err := retryWhileAway(ctx, func() error {
		_, err := s.tasks.BatchSubmitTasks(ctx, &lessorv1.BatchSubmitTasksRequest{Tasks: tasks})
		return err
	})
	violations := violationsOf(err)
	if half := len(tasks) / 2; half > 0 && aboutAll(violations) {
		if err := s.submit(ctx, tasks[:half]); err != nil {
			return err
		}
		return s.submit(ctx, tasks[half:])
	}
	return byLine(err, violations, tasks)
}

// aboutAll reports whether a batch was refused for its number of tasks, and not for one of them.
func aboutAll(violations []*errdetails.BadRequest_FieldViolation) bool {
	return slices.ContainsFunc(violations, func(v *errdetails.BadRequest_FieldViolation) bool { return v.GetField() == "tasks" })
}

// violationsOf returns what is wrong with a request that was refused.
func violationsOf(err error) []*errdetails.BadRequest_FieldViolation {
	for _, d := range status.Convert(err).Details() {
		if bad, ok := d.(*errdetails.BadRequest); ok {
			return bad.GetFieldViolations()
		}
	}
	return nil
}

// byLine names the lines of the input in the error of a refused batch. Users do not know which lines were in the batch.
func byLine(err error, violations []*errdetails.BadRequest_FieldViolation, tasks []*lessorv1.TaskSpec) error {
	var texts []string
	for _, v := range violations {
		var i int
		var field string
		if n, _ := fmt.Sscanf(v.GetField(), "tasks[%d].%s", &i, &field); n == 2 && i >= 0 && i < len(tasks) {
			v.Field = fmt.Sprintf("line %s: %s", tasks[i].GetTaskKey(), field)
		}
		texts = append(texts, v.GetField()+": "+v.GetDescription())
	}
	if texts == nil {
		return err
	}
	st := status.New(status.Code(err), strings.Join(texts, "; "))
	if detailed, err := st.WithDetails(&errdetails.BadRequest{FieldViolations: violations}); err == nil {
		st = detailed
	}
	return st.Err()
}

// spec returns the task of one line. It must be the same in every process that works on the run.
func (j *Job) spec(number int64, line []byte) *lessorv1.TaskSpec {
	m, key := j.manifest, strconv.FormatInt(number, 10)
	spec := &lessorv1.TaskSpec{
		WorkspaceId:    m.Options.Workspace,
		Queue:          m.RunID,
		Type:           TaskType,
		Payload:        append([]byte(nil), line...),
		RunId:          m.RunID,
		TaskKey:        key,
		IdempotencyKey: m.RunID + "/" + key,
		RetryPolicy:    &lessorv1.RetryPolicy{MaxAttempts: m.Options.MaxAttempts},
		Retention:      durationpb.New(embeddedRetention),
	}
	if m.Options.Timeout != 0 {
		spec.AttemptTimeout = durationpb.New(m.Options.Timeout)
	}
	if m.Options.Addr != "" {
		spec.Retention = durationpb.New(sharedRetention)
		spec.HeartbeatInterval = durationpb.New(sharedHeartbeatInterval)
		spec.HeartbeatTimeout = durationpb.New(sharedHeartbeatTimeout)
	}
	return spec
}
