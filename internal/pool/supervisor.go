package pool

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Supervisor runs the workers of a file.
type Supervisor struct {
	log    *slog.Logger
	token  string
	pools  []*pool // by id
	counts *counts
}

// pool is an entry of the file.
type pool struct {
	id      string
	workers []*worker // by their numbers
}

// Options are what a supervisor needs beside the file.
type Options struct {
	// Token is the bearer token of the notifications. Required.
	Token string
	// URL is where the workers reach the listener, for example http://127.0.0.1:9200. Required.
	URL string
	// Output gets what the processes print. Required.
	Output io.Writer
	// Log must not wait for a reader: nothing else goes on while a line is logged. Required.
	Log *slog.Logger
}

// patience is how long the output of a process that has ended may hold up the supervisor. It is
// less than a service manager adds to the drain timeout.
const patience = 5 * time.Second

// New returns a supervisor that has not started anything.
func New(c *Config, o Options) *Supervisor {
	s := &Supervisor{log: o.Log, token: o.Token, counts: newCounts()}
	out := newOutput(o.Output)
	environment := os.Environ()
	for i := range c.Pools {
		config := &c.Pools[i]
		p := &pool{id: config.ID}
		for _, place := range config.places() {
			id := fmt.Sprintf("%s-%d", config.ID, place.number)
			prefix := "[" + id + "] "
			w := &worker{
				id:      id,
				gpu:     place.gpu,
				config:  config,
				launch:  runProcess,
				counts:  s.counts,
				log:     o.Log.With("pool_id", config.ID, "worker_id", id),
				failure: make(chan struct{}, 1),
				command: command{
					args:     config.Command,
					dir:      config.Dir,
					env:      environ(environment, config, id, place.gpu, o.URL, o.Token),
					stdout:   &lines{out: out, prefix: prefix},
					stderr:   &lines{out: out, prefix: prefix},
					patience: patience,
				},
			}
			w.view.WorkerId, w.view.GpuDevice = id, place.gpu
			w.setState(starting)
			p.workers = append(p.workers, w)
		}
		s.pools = append(s.pools, p)
		s.counts.of(config.ID)
	}
	slices.SortFunc(s.pools, func(a, b *pool) int { return strings.Compare(a.id, b.id) })
	return s
}

// place is where a worker is: on a GPU, or one of several.
type place struct {
	number uint32
	gpu    *uint32
}

func (p *Entry) places() []place {
	var places []place
	if len(p.GPUs) == 0 {
		for i := range p.Workers {
			places = append(places, place{number: uint32(i)}) //nolint:gosec // at most 256
		}
		return places
	}
	for _, n := range slices.Sorted(slices.Values(p.GPUs)) {
		gpu := uint32(n) //nolint:gosec // at most 1,023
		places = append(places, place{gpu, &gpu})
	}
	return places
}

// Run starts the workers, and serves l until the last one has stopped: when ctx ends they are
// drained, when kill ends they are killed. Before that it returns only if all workers have ended by
// themselves and are not to be restarted, or if l fails. It closes l.
func (s *Supervisor) Run(ctx, kill context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := s.serve(l, cancel)
	var all sync.WaitGroup
	for _, p := range s.pools {
		for _, w := range p.workers {
			all.Go(func() { w.run(ctx, kill) })
		}
	}
	all.Wait()
	return server.close()
}

// pool returns a pool of the file; nil: there is none of this name.
func (s *Supervisor) pool(id string) *pool {
	for _, p := range s.pools {
		if p.id == id {
			return p
		}
	}
	return nil
}

// worker returns a worker of the pool; nil: there is none of this name.
func (p *pool) worker(id string) *worker {
	for _, w := range p.workers {
		if w.id == id {
			return w
		}
	}
	return nil
}

func (p *pool) show() *lessorv1.Pool {
	v := &lessorv1.Pool{PoolId: p.id}
	for _, w := range p.workers {
		worker := w.show()
		v.Workers = append(v.Workers, worker)
		if worker.GetState() == ready {
			v.WorkersReady++
		}
	}
	return v
}
