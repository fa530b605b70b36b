package limits

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

type queueOf struct{ space, name string }

var queues = []string{"a", "b", "c"}

// spec returns a random task for a workspace. Workers of the end of a history can run it.
func (w *world) spec(rng *rand.Rand, space string) *lessorv1.TaskSpec {
	s := &lessorv1.TaskSpec{
		WorkspaceId: space, Queue: pick(rng, queues...), Type: pick(rng, "", "x", "y"), Priority: pick[int32](rng, -1, 0, 0, 1),
		Payload:          make([]byte, pick(rng, 0, 10, 100, rng.IntN(2000))),
		HeartbeatTimeout: durationpb.New(pick(rng, 4*time.Second, 10*time.Second)), CancelGrace: durationpb.New(5 * time.Second),
		RetryPolicy: &lessorv1.RetryPolicy{
			MaxAttempts: pick[uint32](rng, 0, 2, 50), MaxLosses: pick[uint32](rng, 0, 2, 50),
			InitialBackoff: durationpb.New(time.Second), MaxBackoff: durationpb.New(5 * time.Second),
		},
	}
	if one(rng, 10) {
		s.Payload = make([]byte, 30<<10)
	}
	if one(rng, 2) {
		s.ConcurrencyKey, s.ConcurrencyLimit = pick(rng, "k", "l"), pick[uint32](rng, 1, 1, 2, 3)
	}
	if one(rng, 2) {
		s.FairnessKey = fmt.Sprint("f", rng.IntN(8))
	}
	if one(rng, 3) {
		s.RunId = "u"
	}
	if one(rng, 8) {
		s.Requirements = &lessorv1.Requirements{Features: []string{fmt.Sprint("gpu", rng.IntN(features))}}
	}
	switch rng.IntN(12) {
	case 0:
		s.ResourceRefs = []*lessorv1.ResourceRef{{ResourceId: "r", WorkerId: fmt.Sprint("w", rng.IntN(3))}}
	case 1, 2:
		s.Affinity = &lessorv1.Affinity{
			Key: pick(rng, "m", "n"), Mode: pick(rng, lessorv1.AffinityMode_AFFINITY_MODE_STICKY,
				lessorv1.AffinityMode_AFFINITY_MODE_PREFERRED),
			Ttl: durationpb.New(time.Second + upTo(rng, 10*time.Second)),
		}
	}
	now := time.Now()
	if one(rng, 8) {
		s.RunAt = timestamppb.New(now.Add(upTo(rng, 20*time.Second)))
	}
	if one(rng, 10) {
		s.Deadline = timestamppb.New(now.Add(20*time.Second + upTo(rng, time.Minute)))
	}
	if one(rng, 10) {
		s.AttemptTimeout = durationpb.New(time.Second + upTo(rng, 20*time.Second))
	}
	if one(rng, 10) {
		s.StartTimeout = durationpb.New(time.Second + upTo(rng, 20*time.Second))
	}
	if one(rng, 10) {
		s.Retention = durationpb.New(time.Second + upTo(rng, 20*time.Second))
	}
	if one(rng, 4) {
		s.Labels = map[string]string{"l": strconv.Itoa(rng.IntN(3))}
	}
	return s
}

// features is the number of features that tasks may require.
const features = 4

// specs returns at most n tasks of one workspace. Some have an idempotency key; all with the same
// key are alike, but for a few.
func (w *world) specs(tn *tenant, n int) []*lessorv1.TaskSpec {
	space := pick(w.rng, tn.spaces...)
	all := make([]*lessorv1.TaskSpec, 1+w.rng.IntN(n))
	like := one(w.rng, 4) // a line of tasks that are alike
	for i := range all {
		if i > 0 && like {
			all[i] = all[0]
			continue
		}
		all[i] = w.spec(w.rng, space)
		if !like && one(w.rng, 5) {
			key := fmt.Sprint("i", w.rng.IntN(12))
			spec := w.spec(w.fate(tn.name+space+key), space)
			spec.RunAt, spec.Deadline = nil, nil // depend on the time of the first submit
			if spec.IdempotencyKey = key; one(w.rng, 8) {
				spec.Priority++
			}
			all[i] = spec
		}
	}
	return all
}

// submits submits a task, or a batch.
func (w *world) submits(tn *tenant) {
	if one(w.rng, 2) {
		w.submitOne(tn, w.specs(tn, 1)[0])
		return
	}
	specs := w.specs(tn, 12)
	w.note("%s submits %d", tn.name, len(specs))
	w.ask(tn, "BatchSubmitTasks", 0, func(ctx context.Context, c *client) error {
		began := time.Now()
		res, err := c.tasks.BatchSubmitTasks(ctx, &lessorv1.BatchSubmitTasksRequest{Tasks: specs})
		for i, r := range res.GetResults() {
			w.book.submitted(tn, specs[i], r.GetTaskId(), r.GetCreated(), began)
		}
		// it makes more tasks than the tenant may have
		if status.Code(err) == codes.InvalidArgument && strings.Contains(err.Error(), "quota of tasks") {
			w.count("BatchSubmitTasks", "more than the quota")
			return nil
		}
		return err
	})
}

func (w *world) submitOne(tn *tenant, spec *lessorv1.TaskSpec) {
	w.ask(tn, "SubmitTask", 0, func(ctx context.Context, c *client) error {
		began := time.Now()
		res, err := c.tasks.SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: spec})
		if err == nil {
			w.book.submitted(tn, spec, res.GetTask().GetTaskId(), res.GetCreated(), began)
		}
		return err
	})
}

// floods makes many calls of one kind at once.
func (w *world) floods(tn *tenant) {
	n := 20 + w.rng.IntN(60)
	kind := w.rng.IntN(4)
	w.note("%s floods: %d of kind %d", tn.name, n, kind)
	for range n {
		switch kind {
		case 0:
			w.submitOne(tn, w.specs(tn, 1)[0])
		case 1:
			w.ask(tn, "GetQueue", 0, func(ctx context.Context, c *client) error {
				_, err := c.admin.GetQueue(ctx, &lessorv1.GetQueueRequest{Name: "a"})
				return err
			})
		case 2:
			w.leaseOnce(tn, fmt.Sprint("flood", w.rng.IntN(9)), pick(w.rng, tn.spaces...), 1, pick(w.rng, 0, time.Second), "")
		case 3:
			w.commands(tn)
		}
	}
}

// storms lets all tenants flood at once.
func (w *world) storms(*tenant) {
	for _, tn := range w.tenants {
		w.floods(tn)
	}
}

// hammers makes calls without a pause for a while, many at a time, for two tenants. All of them
// together make one task.
func (w *world) hammers(tn *tenant) {
	w.hammer(tn)
	w.hammer(pick(w.rng, w.tenants...))
}

func (w *world) hammer(tn *tenant) {
	callers, until, kind := 5+w.rng.IntN(20), time.Now().Add(upTo(w.rng, time.Second)), w.rng.IntN(5)
	spec := &lessorv1.TaskSpec{
		WorkspaceId: "default", Queue: "hammered", IdempotencyKey: "hammer",
		RunAt: timestamppb.New(w.begun.Add(time.Minute)),
	}
	batch := &lessorv1.BatchSubmitTasksRequest{Tasks: slices.Repeat([]*lessorv1.TaskSpec{spec}, 4)}
	w.note("%s hammers: %d callers, kind %d", tn.name, callers, kind)
	if kind == 3 {
		tn.ruled.Store(queueOf{"default", "hammered"}, true)
	}
	what := []string{"Submit", "BatchSubmit", "GetQueue", "UpdateQueue", "Lease"}[kind]
	for n := range callers {
		w.busy.Go(func() {
			for time.Now().Before(until) {
				err := w.call(tn, "hammer with "+what, 0, func(ctx context.Context, c *client) (err error) {
					switch kind {
					case 0:
						_, err = c.tasks.SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: spec})
					case 1:
						_, err = c.tasks.BatchSubmitTasks(ctx, batch)
					case 2:
						_, err = c.admin.GetQueue(ctx, &lessorv1.GetQueueRequest{Name: "a"})
					case 3:
						_, err = c.admin.UpdateQueue(ctx,
							&lessorv1.UpdateQueueRequest{
								WorkspaceId: "default", Name: "hammered",
								FairnessWeights: map[string]float64{"f": 1},
							})
					case 4:
						_, err = c.workers.Lease(ctx,
							&lessorv1.LeaseRequest{WorkerId: fmt.Sprint("h", n), Queues: []string{"hammered"}})
					}
					return err
				})
				if time.Sleep(10 * time.Millisecond); err != nil { // otherwise no time passes where commits take none
					time.Sleep(50 * time.Millisecond)
				}
			}
		})
	}
}

// fills makes the disk full for a while: then no task is made.
func (w *world) fills(*tenant) {
	w.note("the disk is full")
	w.full.Store(true)
	time.AfterFunc(upTo(w.rng, 5*time.Second), func() { w.full.Store(false) })
}

// streams sends frames of tasks on a stream, and reads the answers to them, at once or late.
func (w *world) streams(tn *tenant) {
	n := 1 + w.rng.IntN(12)
	frames := make([]*lessorv1.SubmitStreamRequest, n)
	for i := range frames {
		frames[i] = &lessorv1.SubmitStreamRequest{RequestId: strconv.Itoa(i), Tasks: w.specs(tn, 8)}
	}
	late, abandons := time.Duration(0), one(w.rng, 6)
	if one(w.rng, 4) {
		late = upTo(w.rng, 2*time.Second)
	}
	w.note("%s submits %d frames, reads them %v late, abandons them %v", tn.name, n, late, abandons)
	w.ask(tn, "SubmitStream", time.Duration(n)*late, func(ctx context.Context, c *client) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := c.tasks.SubmitStream(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		w.busy.Go(func() {
			for _, f := range frames {
				if stream.Send(f) != nil {
					return // Recv says why
				}
			}
			_ = stream.CloseSend()
		})
		for i := 0; ; i++ {
			if time.Sleep(late); abandons && i == n/2 {
				return nil
			}
			res, err := stream.Recv()
			switch {
			case errors.Is(err, io.EOF) && i < n:
				w.problem("%s: a stream of %d frames has ended after %d answers", tn.name, n, i)
				return nil
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return err
			case res.GetRequestId() != strconv.Itoa(i):
				w.problem("%s: the answer %d of a stream is about frame %s", tn.name, i, res.GetRequestId())
			}
			for j, r := range res.GetResults() {
				if e := r.GetError(); e != nil {
					w.check(tn, nil, "a result of SubmitStream", status.Error(codes.Code(e.GetStatus()), e.GetMessage()))
					continue
				}
				w.book.submitted(tn, frames[i].GetTasks()[j], r.GetTaskId(), r.GetCreated(), began)
			}
		}
	})
}

// sweeps is a bulk call. It is repeated with the page tokens until it has gone over all tasks,
// unless a call fails.
func (w *world) sweeps(tn *tenant) {
	filter := &lessorv1.TaskFilter{WorkspaceId: pick(w.rng, tn.spaces...), Queue: pick(w.rng, queues...)}
	if one(w.rng, 2) {
		filter.Labels = map[string]string{"l": "1"}
	}
	call, name := w.bulkCall(pick(w.rng, 0, 0, 1, 1, 2, 3), filter)
	deletes := name == "BatchDeleteTasks" || name == "PurgeQueue"
	w.note("%s: %s of queue %s in %s", tn.name, name, filter.GetQueue(), filter.GetWorkspaceId())
	w.busy.Go(func() {
		if deletes {
			defer w.book.deleting(tn, filter.GetWorkspaceId(), name == "PurgeQueue")()
		}
		for token, pages := "", 0; ; pages++ {
			err := w.call(tn, name, 0, func(ctx context.Context, c *client) error {
				res, err := call(ctx, c, token)
				token = res.GetNextPageToken()
				return err
			})
			switch {
			case err != nil || token == "":
				return
			case pages > 2000:
				w.problem("%s: %s does not come to its end", tn.name, name)
				return
			}
		}
	})
}

type bulkCall func(ctx context.Context, c *client, token string) (*lessorv1.BatchResult, error)

func (w *world) bulkCall(kind int, f *lessorv1.TaskFilter) (call bulkCall, name string) {
	switch kind {
	case 0:
		return func(ctx context.Context, c *client, token string) (*lessorv1.BatchResult, error) {
			res, err := c.tasks.BatchCancelTasks(ctx, &lessorv1.BatchCancelTasksRequest{Filter: f, PageToken: token})
			return res.GetResult(), err
		}, "BatchCancelTasks"
	case 1:
		return func(ctx context.Context, c *client, token string) (*lessorv1.BatchResult, error) {
			res, err := c.tasks.BatchRetryTasks(ctx, &lessorv1.BatchRetryTasksRequest{Filter: f, PageToken: token})
			return res.GetResult(), err
		}, "BatchRetryTasks"
	case 2:
		return func(ctx context.Context, c *client, token string) (*lessorv1.BatchResult, error) {
			res, err := c.tasks.BatchDeleteTasks(ctx,
				&lessorv1.BatchDeleteTasksRequest{Filter: f, PageToken: token, Force: len(f.GetLabels()) > 0})
			return res.GetResult(), err
		}, "BatchDeleteTasks"
	}
	return func(ctx context.Context, c *client, token string) (*lessorv1.BatchResult, error) {
		res, err := c.admin.PurgeQueue(ctx,
			&lessorv1.PurgeQueueRequest{WorkspaceId: f.GetWorkspaceId(), Name: f.GetQueue(), PageToken: token})
		return res.GetResult(), err
	}, "PurgeQueue"
}

// reads is a call that changes nothing.
func (w *world) reads(tn *tenant) {
	space, id := pick(w.rng, tn.spaces...), w.book.anyTask(w.rng, tn)
	if size := 1 + w.rng.Uint32N(10); id != "" {
		w.read(tn, space, id, size)
	}
}

// read reads one of the tasks or a list.
func (w *world) read(tn *tenant, space, id string, size uint32) {
	switch w.rng.IntN(9) {
	case 8:
		w.ask(tn, "GET task", 0, func(ctx context.Context, c *client) error { return w.readOverHTTP(ctx, tn, c, id) })
	case 0:
		w.ask(tn, "GetTask", 0, func(ctx context.Context, c *client) error { return w.readTask(ctx, c, id) })
	case 1:
		w.busy.Go(func() { w.listAll(tn, space, size) })
	case 2:
		w.ask(tn, "ListQueues", 0, func(ctx context.Context, c *client) error {
			_, err := c.admin.ListQueues(ctx, &lessorv1.ListQueuesRequest{WorkspaceId: space, PageSize: size})
			return err
		})
	case 3:
		w.ask(tn, "ListWorkers", 0, func(ctx context.Context, c *client) error {
			began := time.Now()
			res, err := c.admin.ListWorkers(ctx, &lessorv1.ListWorkersRequest{PageSize: size})
			w.book.shown(tn, res.GetWorkers(), began)
			return err
		})
	default:
		w.ask(tn, "ExplainTask", 0, func(ctx context.Context, c *client) error {
			res, err := c.tasks.ExplainTask(ctx, &lessorv1.ExplainTaskRequest{TaskId: id})
			if err == nil && res.GetState() == lessorv1.TaskState_TASK_STATE_READY && len(res.GetFindings()) == 0 {
				w.problem("%s: nothing explains why %s waits: %v", tn.name, id, res)
			}
			return err
		})
	}
}

// readTask reads a task, which must be as callers were told.
func (w *world) readTask(ctx context.Context, c *client, id string) error {
	known := w.book.known(id)
	res, err := c.tasks.GetTask(ctx, &lessorv1.GetTaskRequest{TaskId: id})
	w.book.read(known, id, res.GetTask(), err)
	return err
}

// listAll lists all tasks of a workspace, page by page: each task that was there all the time is in
// the list, and none is in it twice.
func (w *world) listAll(tn *tenant, space string, size uint32) (ids []string) {
	known := w.book.tasksOf(tn, space)
	seen := map[string]bool{}
	for token := ""; ; {
		err := w.call(tn, "ListTasks", 0, func(ctx context.Context, c *client) error {
			res, err := c.tasks.ListTasks(ctx,
				&lessorv1.ListTasksRequest{Filter: &lessorv1.TaskFilter{WorkspaceId: space}, PageSize: size, PageToken: token})
			for _, t := range res.GetTasks() {
				if id := t.GetTaskId(); seen[id] {
					w.problem("%s: %s is listed twice", tn.name, id)
				}
				seen[t.GetTaskId()] = true
				ids = append(ids, t.GetTaskId())
			}
			if err == nil {
				token = res.GetNextPageToken()
			}
			return err
		})
		switch {
		case status.Code(err) == codes.ResourceExhausted:
			time.Sleep(time.Second)
		case err != nil:
			return ids
		case token == "":
			w.book.listed(known, seen)
			return ids
		}
	}
}

// watches watches a task or a run, at times slowly, until the watch ends or is given up.
func (w *world) watches(tn *tenant) {
	req := &lessorv1.WatchTaskRequest{TaskId: w.book.anyTask(w.rng, tn)}
	if req.GetTaskId() == "" || one(w.rng, 3) {
		req = &lessorv1.WatchTaskRequest{RunId: "u", WorkspaceId: pick(w.rng, tn.spaces...)}
	}
	slow, life := upTo(w.rng, time.Second), upTo(w.rng, time.Minute)
	if one(w.rng, 2) {
		slow = 0
	}
	w.note("%s watches %v for %v, slow %v", tn.name, req, life, slow)
	w.busy.Go(func() {
		l := w.now.Load()
		if l == nil {
			return
		}
		ctx, with := tn.withToken(context.Background())
		ctx, cancel := context.WithTimeout(ctx, life)
		defer cancel()
		stream, err := l.clients[tn.name].tasks.WatchTask(ctx, req)
		last := map[string]uint64{}
		for err == nil {
			var m *lessorv1.WatchTaskResponse
			if m, err = stream.Recv(); err == nil && m.GetHistory() != nil {
				if seq := m.GetHistory().GetSequence(); seq <= last[m.GetTaskId()] {
					w.problem("%s: a watch of %v tells event %d of %s after %d",
						tn.name, req, seq, m.GetTaskId(), last[m.GetTaskId()])
				}
				last[m.GetTaskId()] = m.GetHistory().GetSequence()
			}
			time.Sleep(slow)
		}
		if !errors.Is(err, io.EOF) && ctx.Err() == nil {
			w.check(tn, with, "WatchTask", err)
		}
	})
}

// awaits waits for the ends of tasks on one stream, to which it adds others again and again, and
// reads the answers, at times slowly.
func (w *world) awaits(tn *tenant) {
	slow, life := upTo(w.rng, time.Second), upTo(w.rng, time.Minute)
	if one(w.rng, 2) {
		slow = 0
	}
	known := map[string]*task{}
	requests := make([]*lessorv1.AwaitTasksRequest, 1+w.rng.IntN(5))
	for i := range requests {
		requests[i] = &lessorv1.AwaitTasksRequest{}
		for range w.rng.IntN(6) {
			id := cmp.Or(w.book.anyTask(w.rng, tn), "nothing")
			if known[id] == nil { // what is known later may be newer than the answer
				known[id] = w.book.known(id)
			}
			requests[i].Add = append(requests[i].Add, id)
			if one(w.rng, 4) {
				requests[i].Forget = append(requests[i].Forget, id)
			}
		}
	}
	w.note("%s waits for %v for %v, slow %v", tn.name, requests, life, slow)
	w.busy.Go(func() {
		l := w.now.Load()
		if l == nil {
			return
		}
		ctx, with := tn.withToken(context.Background())
		ctx, cancel := context.WithTimeout(ctx, life)
		defer cancel()
		stream, err := l.clients[tn.name].tasks.AwaitTasks(ctx)
		if err == nil {
			w.busy.Go(func() {
				for _, req := range requests {
					if stream.Send(req) != nil {
						return // Recv says why
					}
					time.Sleep(slow)
				}
				_ = stream.CloseSend()
			})
		}
		for err == nil {
			var m *lessorv1.AwaitTasksResponse
			m, err = stream.Recv()
			for _, t := range m.GetTasks() {
				w.awaited(tn, known[t.GetTaskId()], t)
			}
			time.Sleep(slow)
		}
		if !errors.Is(err, io.EOF) && ctx.Err() == nil {
			w.check(tn, with, "AwaitTasks", err)
		}
	})
}

// awaited checks an answer of AwaitTasks.
func (w *world) awaited(tn *tenant, known *task, m *lessorv1.AwaitedTask) {
	var err error
	if e := m.GetError(); e != nil {
		err = status.Error(codes.Code(e.GetStatus()), e.GetMessage())
	}
	w.check(tn, nil, "a task of AwaitTasks", err)
	if m.GetTask() != nil || status.Code(err) == codes.NotFound {
		w.book.read(known, m.GetTaskId(), m.GetTask(), err)
	}
	if !words.Final(m.GetState()) && err == nil || m.GetTask() != nil && m.GetTask().GetState() != m.GetState() {
		w.problem("%s: told of the end of a task that is %v: %v", tn.name, m.GetState(), m.GetTask())
	}
}
