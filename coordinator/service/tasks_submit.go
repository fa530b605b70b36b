package service

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/coordinator/reqcodec"
	"github.com/lessor-dev/lessor/coordinator/submitlimit"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/turn"
)

// submitWindow is how many frames of a stream may wait for their answers. The next frame is read
// only when one of these is answered.
var submitWindow = 8

// SubmitStream makes the tasks of each frame. It reads a frame and hands it to the engine while
// earlier frames are still being committed. The answers come in the order of the frames. When the
// coordinator begins to stop, or the credential expires, the stream takes no more frames, and ends
// after the answers to those taken.
func (s *taskService) SubmitStream(
	stream grpc.BidiStreamingServer[lessorv1.SubmitStreamRequest, lessorv1.SubmitStreamResponse],
) error {
	// The headers tell the producer that the stream was accepted. If its credential ends before the
	// first answer, the producer can tell that from a refusal.
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	taking, cancel := s.untilStop(stream.Context())
	defer cancel()
	ctx, abort := untilAborted(stream.Context())
	defer abort(nil)
	window := make(chan struct{}, submitWindow)
	answers := make(chan chan submitAnswer, submitWindow)
	read := make(chan error, 1)
	go func() {
		defer close(answers)
		err := s.recovered(ctx, func() error { return s.readSubmits(taking, stream, window, answers) })
		read <- err
		if errors.Is(err, errPanic) {
			abort(errPanic) // a frame may wait for its answer
		}
	}()
	for more := true; ; {
		a, err := nextAnswer(ctx, taking, window, answers)
		if errors.Is(err, io.EOF) {
			err, more = <-read, false
		}
		if err != nil || !more {
			if ctx.Err() == nil {
				err = endInOrder(stream.Context(), err)
			}
			return refusal.Status(err)
		}
		if err := stream.Send(a); err != nil {
			return refusal.Status(err)
		}
	}
}

// untilAborted returns a context for the wait for answers. It ends with the stream and with its
// credential, but goes on if that has only expired: the producer, which may have a new one, is to
// know what became of its frames. For how long, package gate says.
func untilAborted(stream context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, abort := context.WithCancelCause(context.WithoutCancel(stream))
	unhook := context.AfterFunc(stream, func() {
		if expired(stream) == nil {
			abort(context.Cause(stream))
		}
	})
	return ctx, func(cause error) { unhook(); abort(cause) }
}

// endInOrder returns the error for the end of a stream after the answers to all frames that were
// taken. If that is the expiry of the credential, it says so.
func endInOrder(stream context.Context, err error) error {
	if bad := expired(stream); bad != nil && status.Code(refusal.Status(err)) == codes.Unauthenticated {
		return &refusal.AnsweredError{Cause: bad}
	}
	return err
}

// expired returns the end of the credential of a stream if it has expired; else nil.
func expired(stream context.Context) *auth.Error {
	if bad, ok := errors.AsType[*auth.Error](auth.Ended(stream)); ok && bad.Problem == auth.Expired {
		return bad
	}
	return nil
}

// nextAnswer waits for the next answer, in the order of the frames. It returns io.EOF when all
// frames are answered and no more come, and the cause of the end of taking when the frames that
// were taken before are answered. If ctx ends, it does not wait for them. A frame leaves the window
// when its turn has come.
func nextAnswer(
	ctx, taking context.Context, window <-chan struct{}, answers <-chan chan submitAnswer,
) (*lessorv1.SubmitStreamResponse, error) {
	var answer chan submitAnswer
	more := true
	select {
	case answer, more = <-answers:
	case <-taking.Done():
		select {
		case answer, more = <-answers:
		default:
			return nil, context.Cause(taking)
		}
	}
	if !more {
		return nil, io.EOF
	}
	<-window
	select {
	case a := <-answer:
		return a.response, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// submitAnswer is the answer to a frame, or the error that ends the stream.
type submitAnswer struct {
	response *lessorv1.SubmitStreamResponse
	err      error
}

// readSubmits reads frames until the producer closes its side of the stream. For each frame it puts
// a channel into answers. The answer to the frame arrives on that channel. readSubmits submits no
// frame after the end of ctx. It checks that after it has put the channel into answers, so that
// nextAnswer misses no frame that is submitted. It reads a frame only when the window and then the
// room have a place for it: a producer that does not read its answers must not keep room.
func (s *taskService) readSubmits(
	ctx context.Context,
	stream grpc.BidiStreamingServer[lessorv1.SubmitStreamRequest, lessorv1.SubmitStreamResponse],
	window chan<- struct{}, answers chan<- chan submitAnswer,
) error {
	expect := s.SubmitLimiter.Guess()
	for {
		select {
		case window <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		place, err := s.SubmitLimiter.Take(ctx, gate.Identify(ctx).Tenant, expect)
		if err != nil {
			return err
		}
		expect, err = s.readSubmit(ctx, stream, place, answers)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// readSubmit reads one frame for readSubmits and submits it. It returns how many bytes the frame
// takes.
func (s *taskService) readSubmit(
	ctx context.Context, stream grpc.ServerStream, place *submitlimit.Place, answers chan<- chan submitAnswer,
) (size int, err error) {
	submitted := false
	defer func() {
		if !submitted { // an error, or a panic
			place.Leave()
		}
	}()
	req := &lessorv1.SubmitStreamRequest{}
	frame := reqcodec.Request{Into: req}
	if err := stream.RecvMsg(&frame); err != nil {
		return 0, err
	}
	size = frame.Memory()
	place.Arrived(size)
	answer := make(chan submitAnswer, 1)
	answers <- answer // has room, as the window had
	if ctx.Err() != nil {
		answer <- submitAnswer{err: context.Cause(ctx)}
		return 0, context.Cause(ctx)
	}
	s.submitFrame(ctx, req, func(a submitAnswer) {
		place.Leave()
		answer <- a
	})
	submitted = true
	return size, nil
}

// submitFrame submits the valid specs of a frame. An error that concerns the whole frame ends the
// stream.
func (s *taskService) submitFrame(ctx context.Context, req *lessorv1.SubmitStreamRequest, answer func(submitAnswer)) {
	f := s.fields()
	f.Err = convert.UnknownItself(req)
	f.ID("request_id", req.GetRequestId())
	if len(req.GetTasks()) == 0 {
		f.Fail("tasks", "must not be empty")
	}
	f.Count("tasks", len(req.GetTasks()), s.Limits.MaxFrameItems())
	if f.Err != nil {
		answer(submitAnswer{err: f.Err})
		return
	}
	res := &lessorv1.SubmitStreamResponse{
		RequestId: req.GetRequestId(),
		Results:   make([]*lessorv1.SubmitResult, len(req.GetTasks())),
	}
	all, at, spans := s.submissions(ctx, req, res)
	who := gate.Identify(ctx)
	err := s.Quotas.Spend(who.Caller(), quota.Submits, len(all))
	if err == nil {
		err = s.Engine.SubmitEach(who.Tenant, all, func(results []engine.SubmitResult, err error) {
			for i := range results {
				s.refundSubmits(who, results[i].Err, 1)
				results[i].Err = s.ifTaskLimit(who, results[i].Err)
				spans.end(i, results[i].Task, cmp.Or(err, results[i].Err))
				res.Results[at[i]] = submitResult(&results[i], err)
			}
			answer(submitAnswer{response: res})
		})
	}
	if err != nil {
		for i, of := range at {
			spans.end(i, nil, err)
			res.Results[of] = &lessorv1.SubmitResult{Error: refusal.SubmitError(err)}
		}
		answer(submitAnswer{response: res})
	}
}

// submissions reads the specs of a frame and returns the valid ones. at holds the index of each of
// them in the frame. The results of invalid specs are set at once in res.
func (s *taskService) submissions(
	ctx context.Context, req *lessorv1.SubmitStreamRequest, res *lessorv1.SubmitStreamResponse,
) (all []engine.Submission, at []int, spans submitSpans) {
	spans = s.submitSpans(ctx, len(req.GetTasks()))
	tenant := gate.Identify(ctx).Tenant
	var read turn.Counter
	for i, m := range req.GetTasks() {
		read.Every(convert.SpecsPerTurn)
		sub, err := s.submission(m)
		if err != nil {
			res.Results[i] = &lessorv1.SubmitResult{Error: refusal.SubmitError(err)}
			continue
		}
		sub.Space.Tenant = tenant
		spans.begin(sub.Spec)
		all, at = append(all, sub), append(at, i)
	}
	return all, at, spans
}

func (s *taskService) submission(m *lessorv1.TaskSpec) (sub engine.Submission, err error) {
	w, bad := convert.Workspace("workspace_id", m.GetWorkspaceId(), s.Limits)
	if bad == nil {
		if bad = convert.UnknownInSpec("task", m); bad != nil {
			bad.Field = strings.TrimPrefix(bad.Field, "task.") // the paths of SubmitError are within the spec
		}
	}
	if bad != nil {
		return sub, bad
	}
	sub.Space.Workspace = w
	if sub.Spec, err = convert.ParseSpec(m, s.Limits); err == nil && sub.Spec.IdempotencyKey != "" {
		sub.Digest = convert.DigestOf(m)
	}
	return sub, err
}

func submitResult(result *engine.SubmitResult, err error) *lessorv1.SubmitResult {
	if err = errors.Join(err, result.Err); err != nil {
		return &lessorv1.SubmitResult{Error: refusal.SubmitError(err)}
	}
	return &lessorv1.SubmitResult{
		TaskId: result.Task.ID.String(), Created: result.Created,
		State: lessorv1.TaskState(result.Task.State()),
	}
}
