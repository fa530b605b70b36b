package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// queue is the queue of every phase, in a workspace of its own.
const queue = "bench"

// rig is what a phase works with: a coordinator, a connection for its producers, and its own
// workspace.
type rig struct {
	*Config
	server    *coordinator
	conn      *grpc.ClientConn
	tasks     lessorv1.TaskServiceClient
	workspace string
	payload   []byte
	change    func(*lessorv1.TaskSpec) // changes the spec of each task; nil: does not
	ran       span                     // the part of the phase that is measured
}

func (c *Config) newRig(s *coordinator) (*rig, error) {
	conn, err := s.connect()
	if err != nil {
		return nil, err
	}
	r := &rig{Config: c, server: s, conn: conn, tasks: lessorv1.NewTaskServiceClient(conn)}
	r.workspace = "bench-" + strings.ToLower(rand.Text())
	r.payload = make([]byte, c.Payload)
	_, _ = rand.Read(r.payload) // never fails
	return r, nil
}

func (r *rig) spec() *lessorv1.TaskSpec {
	s := &lessorv1.TaskSpec{WorkspaceId: r.workspace, Queue: queue, Type: "noop", Payload: r.payload}
	if r.change != nil {
		r.change(s)
	}
	return s
}

// errCounts begins every error of a run that lost tasks, or had too many.
var errCounts = errors.New("the counts differ")

// checkWaiting compares how many tasks were acknowledged with how many wait for a worker, or for
// their time.
func (r *rig) checkWaiting(ctx context.Context, acknowledged int) error {
	res, err := lessorv1.NewAdminServiceClient(r.conn).GetQueue(ctx,
		&lessorv1.GetQueueRequest{WorkspaceId: r.workspace, Name: queue})
	if err != nil {
		return err
	}
	if waiting := res.GetQueue().GetReady() + res.GetQueue().GetScheduled(); waiting != uint64(acknowledged) {
		return fmt.Errorf("%w: %d tasks were acknowledged, but %d are waiting", errCounts, acknowledged, waiting)
	}
	return nil
}

// checkCompleted compares how many tasks were acknowledged with how many reports were committed,
// and with what the coordinator lists.
func (r *rig) checkCompleted(ctx context.Context, acknowledged int, committed int) error {
	total, completed := 0, 0
	for token := ""; ; {
		res, err := r.tasks.ListTasks(ctx, &lessorv1.ListTasksRequest{
			Filter: &lessorv1.TaskFilter{WorkspaceId: r.workspace}, PageSize: 1000, PageToken: token,
		})
		if err != nil {
			return err
		}
		for _, task := range res.GetTasks() {
			total++
			if task.GetState() == lessorv1.TaskState_TASK_STATE_COMPLETED {
				completed++
			}
		}
		if token = res.GetNextPageToken(); token == "" {
			break
		}
	}
	if acknowledged != committed || acknowledged != completed || acknowledged != total {
		return fmt.Errorf("%w: %d tasks were acknowledged, %d completions committed; the coordinator lists %d tasks, %d of them COMPLETED",
			errCounts, acknowledged, committed, total, completed)
	}
	return nil
}

// cleanUp deletes the workspace's tasks from a coordinator at Addr, even if ctx has ended.
func (r *rig) cleanUp(ctx context.Context) error {
	if r.Addr == "" {
		return nil
	}
	for token := ""; ; {
		next, err := r.deleteTasks(ctx, token)
		if err != nil || next == "" {
			return err
		}
		token = next
	}
}

// deleteTasks makes one call of cleanUp, and returns the token of the next one, or "".
func (r *rig) deleteTasks(ctx context.Context, token string) (next string, err error) {
	ctx, done := r.patient(ctx)
	defer done()
	res, err := r.tasks.BatchDeleteTasks(ctx, &lessorv1.BatchDeleteTasksRequest{
		Filter: &lessorv1.TaskFilter{WorkspaceId: r.workspace}, All: true, Force: true, PageToken: token,
	})
	return res.GetResult().GetNextPageToken(), err
}
