package workercheck

import (
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// idle is for workers that send heartbeats for their tasks alone.
func idle(r *rig) error {
	r.launch()
	if err := r.await("it did not ask for work", func() bool { return len(r.rec.asked) > 0 }); err != nil {
		return err
	}
	if err := r.pause(5 * r.sessionBeat); err != nil { // three that are missing end the session
		return err
	}
	var silent bool
	r.rec.look(func() { silent = slices.Contains(r.rec.resets, codeTimeout) })
	if silent {
		return wrong("its session was ended for want of heartbeats (%s): one is due every heartbeat_interval of the accept, here %v, with or without leases",
			codeTimeout, r.sessionBeat)
	}
	return r.worksOn()
}

// forgotten is for workers that show for ever what only the coordinator before could know, such as
// a session token.
func forgotten(r *rig) error {
	if _, err := r.begin(r.cfg.Long); err != nil {
		return err
	}
	r.down()
	if err := r.shutdown(); err != nil {
		return err
	}
	if err := r.renew(); err != nil {
		return err
	}
	// ids begin anew with the store, and the id of the first task is known to the worker
	if _, err := r.submit("", func(s *lessorv1.TaskSpec) { s.Queue += "-other" }); err != nil {
		return err
	}
	r.up()
	return r.worksAfter("the coordinator has lost its store, and knows nothing of the worker's session and lease; it must begin anew")
}

// displaced is for workers that insist on a session which has ended.
func displaced(r *rig) error {
	a, err := r.begin(r.cfg.Long, lasting)
	if err != nil {
		return err
	}
	if err := r.displace(); err != nil {
		return err
	}
	if _, err := r.committedFirst(a.task); err != nil {
		return within("after another stream of its instance has ended its session (STALE_BINDING), so that its token is of no more use", err)
	}
	return r.worksOn()
}

// displace opens a stream of the worker's instance, which ends the worker's own, and then loses it.
func (r *rig) displace() error {
	var opening *lessorv1.SessionRequest
	r.rec.look(func() { opening = proto.CloneOf(r.rec.hello) })
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	s, err := lessorv1.NewWorkerServiceClient(r.conn).Session(ctx)
	if err != nil {
		return err
	}
	r.rec.note("(another stream of the worker's instance)")
	opening.Id, opening.GetHandshake().Resume = "displace", nil
	if err := s.Send(opening); err != nil {
		return err
	}
	if _, err := s.Recv(); err != nil {
		return err
	}
	if err := s.Send(&lessorv1.SessionRequest{Id: "displace-2", Payload: &lessorv1.SessionRequest_Register{Register: &lessorv1.Register{
		Queues: []string{r.cfg.Queue + "-other"}, Capabilities: &lessorv1.Capabilities{Concurrency: &lessorv1.Concurrency{MaxParallel: 1}},
	}}}); err != nil {
		return err
	}
	return r.pause(crossing)
}

func kicked(r *rig) error {
	// so that what goes on meanwhile is done, and shows
	const stays = MinLong + 3*time.Second
	a, err := r.begin(r.cfg.Long)
	if err != nil {
		return err
	}
	r.rec.note("(kick the worker, requeue its tasks)")
	err = r.eachWorker(func(w *lessorv1.Worker) error {
		_, err := r.workers.KickWorker(r.ctx, &lessorv1.KickWorkerRequest{
			WorkerId: w.GetWorkerId(), Reason: "checked", Requeue: true, RetryAfter: durationpb.New(stays),
		})
		return err
	})
	if err != nil {
		return err
	}
	if err := r.remove(a.task); err != nil { // no second attempt
		return err
	}
	if err := r.await("it was not told", func() bool { return !a.lost.IsZero() }); err != nil {
		return err
	}
	if err := r.worksAfter("it was kicked, and told to stay away for " + stays.String()); err != nil {
		return err
	}
	return r.quiet(a, r.rec.gone(a), "it was kicked and told that its leases have ended")
}

// eachWorker calls do for all workers that the coordinator knows.
func (r *rig) eachWorker(do func(*lessorv1.Worker) error) error {
	list, err := r.workers.ListWorkers(r.ctx, &lessorv1.ListWorkersRequest{})
	if err != nil {
		return err
	}
	for _, w := range list.GetWorkers() {
		if err := do(w); err != nil {
			return err
		}
	}
	return nil
}
