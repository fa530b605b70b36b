package bench

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// silent is a coordinator that never answers.
type silent struct{ lessorv1.TaskServiceClient }

func (silent) BatchDeleteTasks(
	ctx context.Context, _ *lessorv1.BatchDeleteTasksRequest, _ ...grpc.CallOption,
) (*lessorv1.BatchDeleteTasksResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A run that is stopped does not wait long for a coordinator that does not answer, and no longer at
// all if it is killed.
func TestStoppedRunHasPatience(t *testing.T) {
	for name, c := range map[string]struct{ stopped, killed, want time.Duration }{
		"stopped before":        {0, time.Hour, patience},
		"stopped meanwhile":     {time.Minute, time.Hour, time.Minute + patience},
		"killed before":         {0, 0, 0},
		"killed while it waits": {0, time.Second, time.Second},
		"stopped, then killed":  {time.Minute, time.Minute + 1, time.Minute + 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithTimeout(t.Context(), c.stopped)
				defer stop()
				killed, kill := context.WithTimeout(t.Context(), c.killed)
				defer kill()
				r := rig{Config: &Config{Addr: "there", Kill: killed.Done()}, tasks: silent{}}
				began := time.Now()
				if err := r.cleanUp(ctx); err == nil || time.Since(began) != c.want {
					t.Errorf("error %v after %v, want one after %v", err, time.Since(began), c.want)
				}
			})
		})
	}
}
