package runner

import (
	"context"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
)

// TaskType is the type of the tasks of every run.
const TaskType = "lessor-run"

const (
	// maxBatch and maxBatchBytes bound one submit. They are below the default limits of a
	// coordinator (S7).
	maxBatch      = 500
	maxBatchBytes = 1 << 20
)

// How long the tasks of a run are kept after their end. It must be long, because only the
// coordinator knows which lines are done when a run is resumed. It may be very long in an embedded
// coordinator, whose store holds only this run.
const (
	embeddedRetention = 10 * 365 * 24 * time.Hour
	sharedRetention   = 30 * 24 * time.Hour
	// temporaryRetention is for a run on a shared coordinator that nobody will resume. Its lines
	// need their tasks until they are printed, and whoever takes the outputs may stop for a night.
	temporaryRetention = 24 * time.Hour
)

// Heartbeats. A lease on an embedded coordinator lives as long as it can, since the coordinator
// cannot outlive the worker: it would be lost only if the process stood still, after Ctrl-Z for
// example, while the commands went on. On a shared coordinator heartbeats are short, because after
// a kill and restart of the run's process, the lines that were running wait until their leases
// expire.
const (
	embeddedHeartbeatInterval = 30 * time.Second
	embeddedHeartbeatTimeout  = 24 * time.Hour // the longest that there is (S7)

	sharedHeartbeatInterval = 5 * time.Second
	SharedHeartbeatTimeout  = 20 * time.Second // how long they wait at most
)

// maxLosses is as high as a coordinator accepts (S7). A lease is lost when the process that works
// on the run is killed, and then the line is to run again, however often that happens.
const maxLosses = 1_000_000

// submitter submits the lines of a job.
type submitter struct {
	job   *Job
	tasks lessorv1.TaskServiceClient
	epoch func(context.Context) (uint32, error) // see Config.Epoch

	begun chan struct{} // closed when the coordinator has the first tasks
	done  chan struct{} // closed when it has all tasks

	temporary bool // the tasks get the temporaryRetention

	full func() // called when the tenant's quota of tasks is used up

	batch []*lessorv1.TaskSpec
	bytes int
}

func newSubmitter(j *Job, cfg Config) *submitter {
	s := &submitter{job: j, tasks: cfg.Tasks, epoch: cfg.Epoch, begun: make(chan struct{}), done: make(chan struct{})}
	// in order, a line may wait long for one before it
	s.temporary = j.manifest.Options.Temporary && j.manifest.Options.Addr != "" && !cfg.KeepOrder
	s.full = sync.OnceFunc(func() {
		cfg.Screen.Note("the tenant's quota of tasks is used up: lines are submitted as tasks end")
	})
	if j.manifest.Submitted && (j.there == nil || j.there.count > 0) {
		close(s.begun)
	}
	if j.manifest.Submitted && j.there == nil {
		close(s.done)
	}
	return s
}

// run submits, in order, every line that may not have been submitted before, or that RestoreDeleted
// has found.
func (s *submitter) run(ctx context.Context) error {
	if closed(s.done) {
		return nil
	}
	if err := s.submitLines(ctx, func(number int64) bool { return s.job.there == nil || !s.job.there.has(number) }); err != nil {
		return err
	}
	close(s.done)
	return nil
}

// fetchEpoch asks the coordinator for its epoch.
func (s *submitter) fetchEpoch(ctx context.Context) (epoch uint32, err error) {
	err = retryWhileAway(ctx, func() (err error) {
		epoch, err = s.epoch(ctx)
		return err
	})
	return epoch, err
}

// submitLines submits the chosen lines, and saves the epoch that the coordinator had before. If the
// coordinator is restored during the submit, the saved epoch is then an old one, and the lines that
// were lost are submitted again.
func (s *submitter) submitLines(ctx context.Context, choose func(number int64) bool) error {
	epoch, err := s.fetchEpoch(ctx)
	if err != nil {
		return err
	}
	if s.job.manifest.Submitted {
		if err := s.job.saveUnordered(); err != nil {
			return err
		}
	}
	if err := s.submitChosen(ctx, choose); err != nil {
		return err
	}
	return s.job.saveSubmitted(epoch)
}

func (s *submitter) submitChosen(ctx context.Context, choose func(number int64) bool) error {
	err := s.job.eachLine(func(number int64, line []byte) error {
		if !choose(number) {
			return nil
		}
		return s.add(ctx, number, line)
	})
	if err != nil {
		return err
	}
	return s.flush(ctx)
}

func (s *submitter) add(ctx context.Context, number int64, line []byte) error {
	if len(s.batch) == maxBatch || s.bytes+len(line) > maxBatchBytes {
		if err := s.flush(ctx); err != nil {
			return err
		}
	}
	spec := s.job.spec(number, line)
	if s.temporary {
		spec.Retention = durationpb.New(temporaryRetention)
	}
	s.batch = append(s.batch, spec)
	s.bytes += len(line)
	return nil
}

// flush submits the batch. The call may be repeated, because its tasks have idempotency keys (T1).
func (s *submitter) flush(ctx context.Context) error {
	if len(s.batch) == 0 {
		return nil
	}
	err := s.submit(ctx, s.batch)
	s.batch, s.bytes = s.batch[:0], 0
	return err
}

// submit submits tasks in one batch. If the coordinator refuses the batch because it has too many
// tasks (S7), or more than the tenant's quota of tasks allows or has room for (X5), submit submits
// each half. For a single task it waits until there is room, however long the tasks before it take.
func (s *submitter) submit(ctx context.Context, tasks []*lessorv1.TaskSpec) error {
	for {
		noRoom, err := s.call(ctx, tasks)
		if half := len(tasks) / 2; half > 0 && (noRoom || detail.TooManyTasks(err)) {
			if err := s.submit(ctx, tasks[:half]); err != nil {
				return err
			}
			return s.submit(ctx, tasks[half:])
		}
		if !noRoom {
			return nameLine(err, tasks)
		}
		if err := awaitRoom(ctx); err != nil {
			return err
		}
	}
}

// call submits tasks in one call. It reports whether the coordinator refused them because the
// tenant's quota of tasks has no room.
func (s *submitter) call(ctx context.Context, tasks []*lessorv1.TaskSpec) (noRoom bool, err error) {
	noRoom, err = callForRoom(ctx, func() error {
		_, err := s.tasks.BatchSubmitTasks(ctx, &lessorv1.BatchSubmitTasksRequest{Tasks: tasks})
		return err
	})
	switch {
	case noRoom:
		s.full()
	case err == nil && !closed(s.begun):
		close(s.begun)
	}
	return noRoom, err
}

// nameLine puts the line of the input into the error of a refused batch, because users do not know
// which lines the batch had.
func nameLine(err error, tasks []*lessorv1.TaskSpec) error {
	i, problem, ok := detail.BadTask(err, len(tasks))
	if !ok {
		return err
	}
	return status.Errorf(status.Code(err), "line %s: %s", tasks[i].GetTaskKey(), problem)
}

// keyPrefix is what the idempotency keys of a run's lines begin with; the number of the line
// follows.
func keyPrefix(runID string) string { return runID + "/" }

func idempotencyKey(runID string, line int64) string {
	return keyPrefix(runID) + strconv.FormatInt(line, 10)
}

// spec returns the spec of the task of one line. It must be the same in every process that works on
// the run (T1).
func (j *Job) spec(number int64, line []byte) *lessorv1.TaskSpec {
	m := j.manifest
	spec := &lessorv1.TaskSpec{
		WorkspaceId:    m.Options.Workspace,
		Queue:          m.RunID,
		Type:           TaskType,
		Payload:        append([]byte(nil), line...),
		RunId:          m.RunID,
		TaskKey:        strconv.FormatInt(number, 10),
		IdempotencyKey: idempotencyKey(m.RunID, number),
		RetryPolicy:    &lessorv1.RetryPolicy{MaxAttempts: m.Options.MaxAttempts, MaxLosses: maxLosses},

		Retention:         durationpb.New(embeddedRetention),
		HeartbeatInterval: durationpb.New(embeddedHeartbeatInterval),
		HeartbeatTimeout:  durationpb.New(embeddedHeartbeatTimeout),
	}
	if m.Options.Addr != "" {
		spec.Retention = durationpb.New(sharedRetention)
		spec.HeartbeatInterval = durationpb.New(sharedHeartbeatInterval)
		spec.HeartbeatTimeout = durationpb.New(SharedHeartbeatTimeout)
	}
	return spec
}
