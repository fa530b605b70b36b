package workercheck

import (
	"sync/atomic"
	"time"
)

// interrupted runs a long task, does something to the worker's line meanwhile, and checks that the
// task is done in its first attempt, and that the worker goes on then.
func (r *rig) interrupted(by func() error) error {
	a, err := r.begin(r.cfg.Long, lasting)
	if err != nil {
		return err
	}
	var before, after int
	r.rec.look(func() { before = len(r.rec.known) })
	if err := by(); err != nil {
		return err
	}
	if _, err := r.committedFirst(a.task); err != nil {
		return err
	}
	if err := r.worksOn(); err != nil {
		return err
	}
	if r.rec.look(func() { after = len(r.rec.known) }); after > before {
		return wrong("it came back with another instance_id, and is now two workers, each with max_parallel tasks: the id is that of the process, the same on each stream")
	}
	return nil
}

// awayFor is how long the network or the coordinator is away.
const awayFor = 1500 * time.Millisecond

func networkDown(r *rig) error { return r.interrupted(r.downFor(awayFor, nil)) }

// downFor takes the network down for a while, in which between is called unless it is nil.
func (r *rig) downFor(d time.Duration, between func() error) func() error {
	return func() error {
		r.down()
		if between != nil {
			if err := between(); err != nil {
				return err
			}
		}
		if err := r.pause(d); err != nil {
			return err
		}
		return r.upAfter(d)
	}
}

func stopped(r *rig) error {
	return r.interrupted(func() error {
		r.rec.note("(the coordinator stops)")
		if err := r.shutdown(); err != nil {
			return err
		}
		if err := r.pause(beat / 5); err != nil { // what it said last is still on its way
			return err
		}
		return r.downFor(awayFor/2, r.restart)() // a process that has ended listens no more
	})
}

func crashed(r *rig) error {
	return r.interrupted(r.downFor(awayFor/2, func() error {
		if err := r.shutdown(); err != nil { // nobody sees how
			return err
		}
		return r.restart()
	}))
}

func away(r *rig) error {
	const late = 3 * time.Second
	r.down()
	r.launch()
	if err := r.pause(late); err != nil {
		return err
	}
	if how := r.worker.ended(); how != "" {
		return wrong("it has ended (%s) instead of waiting for the coordinator", how)
	}
	if err := r.upAfter(late); err != nil {
		return err
	}
	return r.worksOn()
}

func busy(r *rig) error {
	const wait = 3 * time.Second
	until := atomic.Pointer[time.Time]{}
	r.set(faults{busy: func() time.Duration {
		now := time.Now()
		at := now.Add(wait)
		if !until.CompareAndSwap(nil, &at) {
			at = *until.Load()
		}
		if left := at.Sub(now); left > crossing {
			return left.Round(time.Second / 10)
		}
		return 0
	}})
	r.launch()
	if err := r.await("it did not ask for work", func() bool { return len(r.rec.asked) > 0 }); err != nil {
		return err
	}
	if err := r.pause(wait - 2*crossing); err != nil {
		return err
	}
	var again time.Duration // after the first
	r.rec.look(func() {
		for _, at := range r.rec.asked {
			// several threads may ask at first, each for itself
			if after := at.Sub(r.rec.asked[0]); again == 0 && after > crossing {
				again = after
			}
		}
	})
	if again > 0 {
		return wrong("it asked for work again after %v, and was told (Retry-After, RetryInfo, retry_after) to wait for %v", again.Round(10*time.Millisecond), wait)
	}
	return r.worksOn()
}

func newer(r *rig) error {
	r.set(faults{distort: &distortion{newer: true}})
	return r.interrupted(func() error { return nil })
}

func clock(ahead time.Duration) func(*rig) error {
	return func(r *rig) error {
		r.set(faults{distort: &distortion{clock: ahead}})
		r.launch()
		task, err := r.submit(r.cfg.Long)
		if err != nil {
			return err
		}
		if _, err := r.committedFirst(task); err != nil {
			return err
		}
		return r.worksOn()
	}
}
