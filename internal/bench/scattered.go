package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// scatteredKind is a kind of tasks with something random, whose entries in an index of the
// coordinator have their places all over it.
type scatteredKind struct {
	name, what string
	change     func(*lessorv1.TaskSpec) // makes a task one of them
}

var scatteredKinds = []scatteredKind{
	{"keys", "random idempotency keys", withKey},
	{"delayed", "random delays", delayed},
}

// withKey gives a task a random idempotency key.
func withKey(s *lessorv1.TaskSpec) { s.IdempotencyKey = rand.Text() }

// Delayed tasks wait for a random time in this span from now on, so that none of them runs during
// the measurement.
const (
	leastDelay = time.Hour
	mostDelay  = 10 * 24 * time.Hour
)

// delayed delays a task.
func delayed(s *lessorv1.TaskSpec) {
	s.RunAt = timestamppb.New(time.Now().Add(leastDelay + mathrand.N(mostDelay-leastDelay)))
}

// phase measures what tasks of the kind cost that are submitted after n like them, and the memory
// and the restart with all of them.
func (k scatteredKind) phase(n int) phase {
	return phase{forBacklog(k.name, n), func(ctx context.Context, r *rig) (samples, error) {
		r.change = k.change
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
		found := r.ran.rate(forBacklog(k.name+"_enqueue", n), r.Tasks)
		maps.Copy(found, r.memorySamples(forBacklog(k.name+"_anonymous", n), forBacklog(k.name+"_mapped", n)))
		took, err := r.restart(ctx)
		if err != nil {
			return nil, err
		}
		found[forBacklog(k.name+"_restart", n)] = millis(took)
		return found, r.checkWaiting(ctx, n+r.Tasks)
	}}
}

func (k scatteredKind) metrics(n int) []metric {
	what := fmt.Sprintf("%d tasks with %s", n, k.what)
	return []metric{
		{
			forBacklog(k.name+"_enqueue", n), unitRate, what + ": enqueue of --tasks more, frames of 500",
			[]string{"enqueue_bulk"},
		},
		{forBacklog(k.name+"_anonymous", n), unitSize, what + ": anonymous memory (Pss_Anon)", nil},
		{forBacklog(k.name+"_mapped", n), unitSize, what + ": mapped files beside it (Pss_File)", nil},
		{forBacklog(k.name+"_restart", n), unitTime, what + ": restart after SIGKILL, to the first answer", nil},
	}
}
