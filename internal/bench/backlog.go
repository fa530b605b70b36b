package bench

import (
	"context"
	"maps"
	"time"

	"google.golang.org/grpc"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// backlog measures what many waiting tasks cost: memory before and after a restart, the time from the start of the process to its first
// answer, and the drain of the first of them. The process before it was killed.
func backlog(ctx context.Context, r *rig) (samples, error) {
	n, err := submitBulk(ctx, r, r.Backlog)
	if err != nil {
		return nil, err
	}
	if err := r.checkWaiting(ctx, n); err != nil {
		return nil, err
	}
	before := r.server.memory()
	took, err := r.restart(ctx)
	if err != nil {
		return nil, err
	}
	after := r.server.memory()
	if err := r.checkWaiting(ctx, n); err != nil {
		return nil, err
	}
	found := samples{
		"backlog_resident": before.resident, "backlog_anonymous": before.anonymous,
		"restart_resident": after.resident, "restart_anonymous": after.anonymous, "restart": millis(took),
	}
	some := min(r.Tasks, n)
	committed, err := r.drainTasks(ctx, some)
	if err != nil {
		return nil, err
	}
	maps.Copy(found, r.throughput("drain_backlog", some))
	return found, r.checkWaiting(ctx, n-committed)
}

// restart kills the coordinator and starts another one on its data. It returns the time from the start to the first answer.
func (r *rig) restart(ctx context.Context) (time.Duration, error) {
	r.server.kill()
	begin := time.Now()
	if err := r.server.again(ctx, r.Config); err != nil {
		return 0, err
	}
	if err := r.reconnect(); err != nil {
		return 0, err
	}
	_, err := lessorv1.NewAdminServiceClient(r.conn).GetStatus(ctx, &lessorv1.GetStatusRequest{}, grpc.WaitForReady(true))
	return time.Since(begin), err
}

// reconnect follows a coordinator that was restarted to its new port.
func (r *rig) reconnect() error {
	conn, err := r.connect(r.server.grpc)
	if err != nil {
		return err
	}
	_ = r.conn.Close() // its peer is gone
	r.conn, r.tasks = conn, lessorv1.NewTaskServiceClient(conn)
	return nil
}
