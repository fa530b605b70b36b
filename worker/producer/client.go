package producer

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/traceparent"
	"github.com/lessor-dev/lessor/internal/wire"
	"github.com/lessor-dev/lessor/worker/internal/refused"
)

// Limits of a frame: the number of specs and their size in bytes, well below the largest message
// that a coordinator accepts.
const (
	maxSpecs   = 500
	maxBytes   = 1 << 20
	maxMessage = 4<<20 - 1<<10 // of a single spec; larger messages are not read (S7)
)

// Client submits tasks over one stream, and waits for them over another. It opens each when it is
// first needed, and again after each loss. It is safe for concurrent use.
type Client struct {
	tasks   lessorv1.TaskServiceClient
	waits   *waits
	trouble *trouble

	mu        sync.Mutex
	waiting   []*call // not yet sent
	closed    bool
	opening   bool  // a stream is being opened
	streamErr error // why the last stream was lost or could not be opened; nil after a frame was answered

	wake chan struct{} // holds one token while there is something new for the sender
	stop context.CancelFunc
	done chan struct{} // closed when the sender has ended
}

// call is one Submit in progress.
type call struct {
	ctx context.Context //nolint:containedctx // a call whose context has ended is not sent any more
	// spec is encoded, because the caller may change the message once Submit has returned, and it
	// may still have to be sent then.
	spec    []byte
	hasKey  bool // it has an idempotency_key
	retries int  // how often it was sent again after an answer
	// inDoubt: a try of it may have created the task, because its stream was lost, or the
	// coordinator did not say.
	inDoubt bool
	reply   chan reply // holds one
}

// answer ends a call. If an earlier try may have created the task, then a refusal of the repeat
// does not say whether it did, unless the refusal is about the spec.
func (c *call) answer(r reply) {
	if code := status.Code(r.err); c.inDoubt && r.err != nil && code != codes.InvalidArgument &&
		code != codes.AlreadyExists {
		r.err = outcomeUnknown(withoutReason(r.err))
	}
	c.reply <- r
}

type reply struct {
	result *lessorv1.SubmitResult
	err    error
}

// New makes a client on a connection, with the settings of the zero Config. The caller closes the
// connection, after the client.
func New(conn grpc.ClientConnInterface) *Client { return NewWithConfig(conn, Config{}) }

// NewWithConfig is New with other settings.
func NewWithConfig(conn grpc.ClientConnInterface, cfg Config) *Client {
	if c, ok := conn.(*grpc.ClientConn); conn == nil || ok && c == nil {
		panic("producer: the connection is nil") // here, and not in a goroutine of the first Submit
	}
	ctx, stop := context.WithCancel(context.Background())
	tasks, trouble := lessorv1.NewTaskServiceClient(conn), newTrouble(cfg)
	c := &Client{
		tasks: tasks, waits: newWaits(tasks, trouble), trouble: trouble, wake: make(chan struct{}, 1),
		stop: stop, done: make(chan struct{}),
	}
	go (&sender{client: c}).run(ctx)
	return c
}

// Submit creates one task and returns when the task is durable. The task belongs to the trace of
// ctx, if that has a span, unless the spec names another. The result's created is false if an
// earlier call with the same idempotency_key has created the task, or an earlier try of this call
// whose answer was lost. The error is a status with the code, field and metadata that SubmitTask
// would have given; the package comment says which codes mean that the outcome is unknown. Do not
// change the spec until Submit has returned. The spec may have at most 4 MiB less 1 KiB; if the
// coordinator accepts larger ones, submit them with SubmitTask.
func (c *Client) Submit(ctx context.Context, spec *lessorv1.TaskSpec) (*lessorv1.SubmitResult, error) {
	raw, err := encode(ctx, spec)
	if err != nil {
		return nil, err
	}
	one := &call{ctx: ctx, spec: raw, hasKey: spec.GetIdempotencyKey() != "", reply: make(chan reply, 1)}
	if !c.enqueue(one) {
		return nil, errClosed
	}
	select {
	case r := <-one.reply:
		return r.result, r.err
	case <-ctx.Done():
		return nil, c.contextError(ctx)
	case <-c.done:
		return one.finalReply()
	}
}

// contextError returns the error of a Submit whose ctx has ended. If there is no stream, the error
// says why.
func (c *Client) contextError(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streamErr == nil && c.opening {
		st := status.FromContextError(ctx.Err())
		return status.Errorf(st.Code(), "%s; no stream to the coordinator was opened in time: the connection or the source of its credentials is too slow", st.Message())
	}
	return contextEnded(ctx, "the last stream to the coordinator", c.streamErr)
}

// setStreamErr stores why there is no stream; nil means that there is one.
func (c *Client) setStreamErr(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streamErr = err
}

// setOpening stores whether a stream is being opened.
func (c *Client) setOpening(is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opening = is
}

// finalReply returns the reply of a call when the client was closed.
func (c *call) finalReply() (*lessorv1.SubmitResult, error) {
	select {
	case r := <-c.reply:
		return r.result, r.err
	default:
		return nil, errClosed
	}
}

// encode encodes a spec, with the trace of ctx unless it has one. It refuses a spec with which the
// coordinator could not read the whole frame.
func encode(ctx context.Context, spec *lessorv1.TaskSpec) ([]byte, error) {
	raw, err := wire.Marshal(spec)
	if err != nil { // a string is not valid UTF-8
		return nil, invalid(notUTF8(spec), "contains invalid UTF-8")
	}
	if trace := traceparent.Of(ctx); trace != "" && spec.GetTraceparent() == "" {
		raw = protowire.AppendString(protowire.AppendTag(raw, traceField, protowire.BytesType), trace)
	}
	if len(raw) > maxMessage {
		return nil, invalid(itself, "has %d bytes; the limit is %d", len(raw), maxMessage)
	}
	return raw, nil
}

// traceField is the number of TaskSpec.traceparent.
var traceField = (&lessorv1.TaskSpec{}).ProtoReflect().Descriptor().Fields().ByName("traceparent").Number()

var errClosed = status.Error(codes.Canceled, "the producer is closed")

// Close ends the client. Calls of Submit that are in progress return UNAVAILABLE or CANCELLED; a
// Wait goes on.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	<-c.done // each call in progress returns with it
	c.waits.close()
	return nil
}

func (c *Client) enqueue(all ...*call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.makeRoomLocked(len(all))
	c.waiting = append(c.waiting, all...)
	c.wakeSender()
	return true
}

// makeRoomLocked makes room for n more waiting calls. It first removes the calls whose callers have
// gone, because nothing else removes them while no stream can be opened.
func (c *Client) makeRoomLocked(n int) {
	if len(c.waiting)+n <= cap(c.waiting) {
		return
	}
	c.waiting = slices.DeleteFunc(c.waiting, func(one *call) bool { return one.ctx.Err() != nil })
	// doubles the capacity, so that this loop does not run at every call
	c.waiting = slices.Grow(c.waiting, len(c.waiting)+n)
}

// retryLater sends a call again that was refused because a quota is used up, after the wait that
// the refusal asks for (X5), or because the coordinator takes none, or that has a key and got no
// decision. It returns false if the call has no retries left, or if its deadline is before the end
// of the wait.
func (c *Client) retryLater(one *call, err error) bool {
	deadline, ends := one.ctx.Deadline()
	tries := one.retries
	if ends { // then only that bounds them: callers of one client compete, and some lose many times in a row
		tries = min(tries, refused.MaxRetries-1)
	}
	wait, ok := refused.Wait(err, tries)
	none := takesNone(err)
	undecided := !ok && !none && one.hasKey && repeatable(err)
	if none || undecided {
		asked, _ := refused.Asked(err)
		wait, ok = asked+backoff(one.retries), true
	}
	if !ok || ends && time.Until(deadline) < wait {
		return false
	}
	one.retries++
	one.inDoubt = one.inDoubt || undecided
	time.AfterFunc(wait, func() { c.enqueue(one) }) // if the client is closed by then, the call has its reply already
	return true
}

// requeue puts calls whose frame got no answer at the front of the queue. Only the sender calls it;
// it looks at the queue after its pause.
func (c *Client) requeue(all []*call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(all, c.waiting...)
}

// wakeSender wakes the sender.
func (c *Client) wakeSender() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// take removes the calls for the next frame from the queue. Calls whose callers have gone are
// dropped.
func (c *Client) take() (frame []*call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	used, bytes := 0, 0
	for _, one := range c.waiting {
		if len(frame) == maxSpecs || len(frame) > 0 && bytes+len(one.spec) > maxBytes {
			break
		}
		used++
		if one.ctx.Err() == nil {
			frame = append(frame, one)
			bytes += len(one.spec)
		}
	}
	left := copy(c.waiting, c.waiting[used:])
	clear(c.waiting[left:])
	c.waiting = c.waiting[:left]
	return frame
}

func (c *Client) empty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting) == 0
}
