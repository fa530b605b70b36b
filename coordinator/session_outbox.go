package coordinator

import (
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// Bounds of what waits for a worker that reads slowly. Work is bounded by its slots, everything else by these.
const (
	sendTimeout     = 30 * time.Second
	maxAnswers      = 4096    // answers that wait or are being decided; the reader waits for room
	maxDispatch     = 2 << 20 // bytes of the assignments of one frame, unless one alone is larger
	maxUnackedFrame = 1024    // dispatch frames whose leases are remembered for their ack
)

// outbox holds what is to be sent on a stream until its one writer has sent it. Frames are made at the last moment, so that what has
// come together goes together and times are those of the sending.
type outbox struct {
	ss *session

	mu      sync.Mutex
	changed *sync.Cond // work for the writer, or room for the reader
	queue   []outgoing
	granted []engine.Granted
	answers int // reserved, not yet sent
	closed  bool

	dispatches map[string][]leaseRef // sent and not acknowledged, by frame
	order      []string              // of dispatches, oldest first

	seq uint64 // of the last frame; the writer's own
}

// outgoing makes a frame when its turn has come; answers is the room that it gives back.
type outgoing struct {
	make    func(now lease.Now) *lessorv1.SessionResponse
	answers int
}

type leaseRef struct{ task, lease string }

func newOutbox(ss *session) *outbox {
	o := &outbox{ss: ss, dispatches: map[string][]leaseRef{}}
	o.changed = sync.NewCond(&o.mu)
	return o
}

// reserve waits until n more answers have room; false means that the stream is ending.
func (o *outbox) reserve(n int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.closed && o.answers > 0 && o.answers+n > maxAnswers {
		o.changed.Wait()
	}
	o.answers += n
	return !o.closed
}

func (o *outbox) put(out outgoing) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue = append(o.queue, out)
	o.changed.Broadcast()
}

// reply queues a frame that the reader causes, once there is room.
func (o *outbox) reply(make func(lease.Now) *lessorv1.SessionResponse) {
	if o.reserve(1) {
		o.put(outgoing{make: make, answers: 1})
	}
}

func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.changed.Broadcast()
}

// write sends until the outbox is closed and empty, or the stream fails.
func (o *outbox) write() {
	for {
		queue, granted, ok := o.take()
		if !ok {
			return
		}
		slow := time.AfterFunc(sendTimeout, func() {
			o.ss.end(status.Error(codes.ResourceExhausted, codeTimeout+": the worker reads too slowly"))
		})
		err := o.sendAll(queue, granted)
		slow.Stop()
		if err != nil {
			o.ss.end(err)
			o.close() // the reader must not wait for room
			return
		}
	}
}

// take waits for something to send.
func (o *outbox) take() ([]outgoing, []engine.Granted, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.queue) == 0 && len(o.granted) == 0 {
		if o.closed {
			return nil, nil, false
		}
		o.changed.Wait()
	}
	queue, granted := o.queue, o.granted
	o.queue, o.granted = nil, nil
	return queue, granted, true
}

func (o *outbox) sendAll(queue []outgoing, granted []engine.Granted) error {
	for _, out := range queue {
		if err := o.send(out.make(o.ss.c.engine.Now())); err != nil {
			return err
		}
		o.mu.Lock()
		o.answers -= out.answers
		o.changed.Broadcast()
		o.mu.Unlock()
	}
	if len(granted) == 0 {
		return nil
	}
	return o.sendWork(granted)
}

// send puts the envelope around a payload.
func (o *outbox) send(m *lessorv1.SessionResponse) error {
	o.seq++
	if m.Id == "" {
		m.Id = "c" + strconv.FormatUint(o.seq, 10)
	}
	m.Seq, m.Ts = o.seq, stamp(o.ss.c.engine.Now().Wall)
	m.Tenant, m.Sender = o.ss.who.Tenant, &lessorv1.Sender{Role: "coordinator", Id: coordinatorName}
	return o.ss.stream.Send(m)
}

// sendWork hands out leases, in frames of a bounded size.
func (o *outbox) sendWork(granted []engine.Granted) error {
	assignments, err := o.ss.c.assignments(granted)
	if err != nil {
		return err
	}
	for len(assignments) > 0 {
		n := fill(assignments)
		m := &lessorv1.SessionResponse{
			Id: "d" + strconv.FormatUint(o.seq+1, 10), Ack: &lessorv1.Ack{Request: true},
			Payload: &lessorv1.SessionResponse_Dispatch{Dispatch: &lessorv1.Dispatch{Assignments: assignments[:n]}},
		}
		o.expectAck(m.GetId(), assignments[:n])
		if err := o.send(m); err != nil {
			return err
		}
		assignments = assignments[n:]
	}
	return nil
}

// fill tells how many assignments go into one frame; at least one does.
func fill(all []*lessorv1.Assignment) int {
	bytes := 0
	for i, a := range all {
		if bytes += proto.Size(a); bytes > maxDispatch && i > 0 {
			return i
		}
	}
	return len(all)
}

func (o *outbox) expectAck(frame string, assignments []*lessorv1.Assignment) {
	refs := make([]leaseRef, len(assignments))
	for i, a := range assignments {
		refs[i] = leaseRef{task: a.GetTask().GetTaskId(), lease: a.GetLeaseId()}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dispatches[frame] = refs
	o.order = append(o.order, frame)
	if len(o.order) > maxUnackedFrame {
		delete(o.dispatches, o.order[0])
		o.order = o.order[1:]
	}
}

// dispatched returns the leases of a frame, once.
func (o *outbox) dispatched(frame string) []leaseRef {
	o.mu.Lock()
	defer o.mu.Unlock()
	refs := o.dispatches[frame]
	delete(o.dispatches, frame)
	return refs
}

func (o *outbox) dispatch(granted []engine.Granted) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.granted = append(o.granted, granted...)
	o.changed.Broadcast()
}

func (o *outbox) accept(corr string, a *lessorv1.Accept) {
	o.reply(func(lease.Now) *lessorv1.SessionResponse {
		return &lessorv1.SessionResponse{Corr: corr, Payload: &lessorv1.SessionResponse_Accept{Accept: a}}
	})
}

func (o *outbox) ack(frame string) {
	o.reply(func(lease.Now) *lessorv1.SessionResponse {
		return &lessorv1.SessionResponse{Corr: frame, Ack: &lessorv1.Ack{For: frame}}
	})
}

// fail answers a bad frame. Nothing was changed by it.
func (o *outbox) fail(corr, code, message, remediation string) {
	o.ss.logger().Warn("frame refused", "corr", corr, "code", code, "problem", message)
	o.reply(func(lease.Now) *lessorv1.SessionResponse {
		return &lessorv1.SessionResponse{Corr: corr, Payload: &lessorv1.SessionResponse_Error{
			Error: &lessorv1.Error{Code: code, Message: message, Remediation: remediation},
		}}
	})
}

// unavailable answers a frame that the engine did not take. A repeat may help.
func (o *outbox) unavailable(corr string, err error) {
	o.reply(func(lease.Now) *lessorv1.SessionResponse {
		return &lessorv1.SessionResponse{Corr: corr, Payload: &lessorv1.SessionResponse_Error{
			Error: &lessorv1.Error{Code: codeInternal, Message: err.Error(), RetryAfter: durationpb.New(time.Second)},
		}}
	})
}

// reset is the last frame of a session that the coordinator ends.
func (o *outbox) reset(code, reason string, retryAfter time.Duration) {
	o.ss.logger().Info("session reset", "code", code, "reason", reason)
	o.put(outgoing{make: func(lease.Now) *lessorv1.SessionResponse {
		return &lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Reset_{
			Reset_: &lessorv1.Reset{Code: code, Reason: reason, RetryAfter: durationpb.New(retryAfter)},
		}}
	}})
}

// verdicts answers a reports frame; err means that there is no verdict.
func (o *outbox) verdicts(corr string, reports []*lease.Report, ids []string, answers []lease.Answer, err error) {
	o.put(outgoing{answers: len(reports), make: func(now lease.Now) *lessorv1.SessionResponse {
		items := make([]*lessorv1.ReportVerdict, len(reports))
		for i, r := range reports {
			items[i] = &lessorv1.ReportVerdict{Error: itemError(err)}
			if err == nil {
				items[i] = reportVerdict(now, &answers[i])
			}
			items[i].TaskId, items[i].LeaseId = r.TaskID, r.LeaseID
			items[i].Kind, items[i].ReportId = lessorv1.ReportKind(r.Kind), ids[i]
		}
		return &lessorv1.SessionResponse{Corr: corr, Payload: &lessorv1.SessionResponse_Verdicts{
			Verdicts: &lessorv1.Verdicts{Verdicts: items},
		}}
	}})
}

// renewals answers a heartbeat frame; err means that there is no verdict.
func (o *outbox) renewals(corr string, reports []*lease.Report, answers []lease.Answer, err error) {
	o.put(outgoing{answers: len(reports), make: func(now lease.Now) *lessorv1.SessionResponse {
		items := make([]*lessorv1.LeaseAck, len(reports))
		for i, r := range reports {
			items[i] = &lessorv1.LeaseAck{TaskId: r.TaskID, LeaseId: r.LeaseID, Error: itemError(err)}
			if err == nil {
				items[i].Heartbeat = heartbeatResponse(now, &answers[i])
			}
		}
		return &lessorv1.SessionResponse{Corr: corr, Payload: &lessorv1.SessionResponse_HeartbeatAck{
			HeartbeatAck: &lessorv1.HeartbeatAck{Leases: items, ServerTime: stamp(now.Wall)},
		}}
	}})
}

// late answers acknowledgements. Those that came in time need no answer; the others are told to stop (W5).
func (o *outbox) late(reports []*lease.Report, answers []lease.Answer, err error) {
	o.mu.Lock()
	o.answers -= len(reports)
	o.changed.Broadcast()
	o.mu.Unlock()
	if err != nil {
		return // no verdict: the lease runs out, or the worker's Start is judged
	}
	for i, r := range reports {
		a := answers[i]
		if a.Verdict != lease.VerdictCancelled || a.Reason == lease.AlreadyReported {
			continue
		}
		o.stop(r.TaskID, r.LeaseID, a.Reason, a.Detail, 0)
	}
}

// cancel tells of leases to stop.
func (o *outbox) cancel(notices []engine.Notice) {
	for _, n := range notices {
		o.stop(n.Task.String(), n.LeaseID, n.Reason, n.Detail, n.Grace)
	}
}

func (o *outbox) stop(task, leaseID string, reason lease.Reason, detail string, grace time.Duration) {
	o.put(outgoing{make: func(lease.Now) *lessorv1.SessionResponse {
		return &lessorv1.SessionResponse{Corr: task, Payload: &lessorv1.SessionResponse_Cancel{Cancel: &lessorv1.Cancel{
			TaskId: task, LeaseId: leaseID, Reason: lessorv1.Reason(reason), Detail: detail, Grace: span(grace),
		}}}
	}})
}

func itemError(err error) *lessorv1.ItemError {
	if err == nil {
		return nil
	}
	return &lessorv1.ItemError{Code: codeInternal, RetryAfter: durationpb.New(time.Second), Message: err.Error()}
}

func reportVerdict(now lease.Now, a *lease.Answer) *lessorv1.ReportVerdict {
	return &lessorv1.ReportVerdict{
		Verdict: lessorv1.Verdict(a.Verdict), Reason: lessorv1.Reason(a.Reason), Detail: a.Detail,
		TaskState: lessorv1.TaskState(a.State), ShouldCancel: a.ShouldCancel, CancelReason: a.CancelReason,
		ExpiresAt: stampAt(now, a.ExpiresAt), ExpiresIn: left(now, a.ExpiresAt),
		CurrentAttempt: a.CurrentAttempt, RetryAt: stamp(a.RetryAt), Replayed: a.Replayed, ServerTime: stamp(now.Wall),
	}
}
