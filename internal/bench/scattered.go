package bench

import (
	"context"
	"crypto/rand"
	"maps"
	mathrand "math/rand/v2"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Tasks with something random, whose entries in an index of the coordinator have their places all over it.

// withKey gives a task a random idempotency key.
func withKey(s *lessorv1.TaskSpec) { s.IdempotencyKey = rand.Text() }

// Delayed tasks wait for a random time in this span from now on, so that none of them runs during the measurement.
const (
	leastDelay = time.Hour
	mostDelay  = 10 * 24 * time.Hour
)

// delayed delays a task.
func delayed(s *lessorv1.TaskSpec) {
	s.RunAt = timestamppb.New(time.Now().Add(leastDelay + mathrand.N(mostDelay-leastDelay)))
}

// scattered measures what tasks with something random cost that are submitted after n like them, and the memory and the restart with all of them.
func scattered(name string, n int, change func(*lessorv1.TaskSpec)) phase {
	return phase{forBacklog(name, n), func(ctx context.Context, r *rig) (samples, error) {
		r.change = change
		if _, err := submitBulk(ctx, r, n); err != nil {
			return nil, err
		}
		end := r.server.begin()
		_, err := submitBulk(ctx, r, r.Tasks)
		r.ran = end()
		if err == nil {
			err = r.checkWaiting(ctx, n+r.Tasks)
		}
		if err == nil {
			err = r.waitIdle(ctx)
		}
		if err != nil {
			return nil, err
		}
		found := r.ran.rate(forBacklog(name+"_enqueue", n), r.Tasks)
		maps.Copy(found, r.memorySamples(forBacklog(name+"_anonymous", n), forBacklog(name+"_mapped", n)))
		took, err := r.restart(ctx)
		if err != nil {
			return nil, err
		}
		found[forBacklog(name+"_restart", n)] = millis(took)
		return found, r.checkWaiting(ctx, n+r.Tasks)
	}}
}

func scatteredMetrics(name, what string, n int) []metric {
	return []metric{
		{forBacklog(name+"_enqueue", n), unitRate, what + ": enqueue of --tasks more, frames of 500", []string{"enqueue_bulk"}},
		{forBacklog(name+"_anonymous", n), unitSize, what + ": anonymous memory (Pss_Anon)", nil},
		{forBacklog(name+"_mapped", n), unitSize, what + ": mapped files beside it (Pss_File)", nil},
		{forBacklog(name+"_restart", n), unitTime, what + ": restart after SIGKILL, to the first answer", nil},
	}
}
