package bench

import (
	"context"
	"maps"
	"time"

	"google.golang.org/grpc"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// backlog measures what n waiting tasks cost: memory before and after a restart, the time from the
// start of the process to its first answer, and the drain of the first tasks. The restart kills the
// process.
func backlog(n int) func(context.Context, *rig) (samples, error) {
	return func(ctx context.Context, r *rig) (samples, error) {
		if _, err := submitBulk(ctx, r, n); err != nil {
			return nil, err
		}
		if err := r.checkWaiting(ctx, n); err != nil {
			return nil, err
		}
		if err := r.waitIdle(ctx); err != nil {
			return nil, err
		}
		found := r.memorySamples(forBacklog("backlog_anonymous", n), forBacklog("backlog_mapped", n))
		took, err := r.restart(ctx)
		if err != nil {
			return nil, err
		}
		found[forBacklog("restart", n)] = millis(took)
		if err := r.waitIdle(ctx); err != nil {
			return nil, err
		}
		maps.Copy(found, r.memorySamples(forBacklog("restart_anonymous", n), forBacklog("restart_mapped", n)))
		if err := r.checkWaiting(ctx, n); err != nil {
			return nil, err
		}
		some := min(r.Tasks, n)
		committed, err := r.drainTasks(ctx, some)
		if err != nil {
			return nil, err
		}
		maps.Copy(found, r.ran.rate(forBacklog("drain_backlog", n), some))
		return found, r.checkWaiting(ctx, n-committed)
	}
}

// idleTime is how long a coordinator must be without work until it has given back the memory that
// only work needs.
const idleTime = 3 * time.Second

// waitIdle waits until the coordinator has given back what only work needs.
func (r *rig) waitIdle(ctx context.Context) error {
	select {
	case <-time.After(idleTime):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// memorySamples returns the coordinator's memory now, under two names, or nothing if it is not
// known.
func (r *rig) memorySamples(anonymous, mapped string) samples {
	m, ok := r.server.memory()
	if !ok {
		return samples{}
	}
	return samples{anonymous: m.anonymous, mapped: m.mapped}
}

// restart kills the coordinator and starts another one on its data. It returns the time from the
// start to the first answer.
func (r *rig) restart(ctx context.Context) (time.Duration, error) {
	r.server.kill()
	begin := time.Now()
	if err := r.server.restart(ctx, r.Config); err != nil {
		return 0, err
	}
	if err := r.reconnect(); err != nil {
		return 0, err
	}
	_, err := lessorv1.NewAdminServiceClient(r.conn).GetStatus(ctx, &lessorv1.GetStatusRequest{},
		grpc.WaitForReady(true))
	return time.Since(begin), err
}

// reconnect connects to the new port of a coordinator that was restarted.
func (r *rig) reconnect() error {
	conn, err := r.server.connect()
	if err != nil {
		return err
	}
	_ = r.conn.Close() // its peer is gone
	r.conn, r.tasks = conn, lessorv1.NewTaskServiceClient(conn)
	return nil
}
