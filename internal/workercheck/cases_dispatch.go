package workercheck

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// ackedWithin is how long a worker may take to acknowledge a dispatch: less than the long task
// takes, whose outcome would do, too, and than the 5 s after which the grant ends.
const ackedWithin = 3 * time.Second

// acks is for workers that acknowledge only in passing, by a heartbeat which happens to be early
// enough.
func acks(r *rig) error {
	r.launch()
	task, err := r.submit(r.cfg.Long, lasting,
		func(s *lessorv1.TaskSpec) { s.HeartbeatInterval = durationpb.New(20 * time.Second) })
	if err != nil {
		return err
	}
	a, err := r.taken(task)
	if err != nil {
		return err
	}
	return r.awaitFor(ackedWithin, fmt.Sprintf("it acknowledged the dispatch of %v neither by an ack, nor by a start or a heartbeat", a),
		func() bool { return a.acked || len(a.words) > 0 })
}

func unheard(r *rig) error {
	r.set(faults{parts: func(a *attempt) bool { return a.number > 1 }})
	r.launch()
	task, err := r.submit(*r.cfg.Failing, lasting, func(s *lessorv1.TaskSpec) { s.RetryPolicy.MaxAttempts = 1 })
	if err != nil {
		return err
	}
	if _, err := r.committed(task); err != nil {
		return err
	}
	r.rec.note("(retry %s)", task)
	if _, err := r.tasks.RetryTask(r.ctx, &lessorv1.RetryTaskRequest{TaskId: task}); err != nil { // whatever the category
		return err
	}
	var second *attempt
	if err := r.await("it took no second attempt of "+task, func() bool {
		if all := r.rec.of(task); len(all) > 1 {
			second = all[1]
		}
		return second != nil
	}); err != nil {
		return err
	}
	if err := r.pause(settle); err != nil {
		return err
	}
	var early *word
	r.rec.look(func() {
		if all := second.outcomes(); len(all) > 0 {
			early = all[0]
		}
	})
	if early != nil {
		return wrong("it reported %v, of which the coordinator had heard nothing: it must begin when its start, or a heartbeat, is answered", early)
	}
	r.down() // what was not carried is lost with the connections
	r.set(faults{})
	r.up()
	return r.worksOn()
}

func dispatchAgain(r *rig) error {
	r.set(faults{parts: func(*attempt) bool { return true }})
	r.launch()
	task, err := r.submit(r.cfg.Long, lasting)
	if err != nil {
		return err
	}
	a, err := r.taken(task)
	if err != nil {
		return err
	}
	if err := r.pause(crossing); err != nil { // so that it has begun
		return err
	}
	r.down()
	if err := r.shutdown(); err != nil {
		return err
	}
	if err := r.restart(); err != nil {
		return err
	}
	r.set(faults{})
	r.up()
	if _, err := r.committedFirst(a.task); err != nil {
		return err
	}
	if err := r.pause(settle); err != nil {
		return err
	}
	return r.once()
}

func dispatchTwice(r *rig) error {
	r.set(faults{twice: true})
	r.launch()
	if err := r.worksOn(); err != nil {
		return err
	}
	if err := r.pause(settle); err != nil {
		return err
	}
	return r.once()
}
