package session

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/auth"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// window is how many frames may be under way on a line in each direction, before the sender waits
// for the receiver.
const window = 8

// mostLate is how late a frame may be.
const mostLate = 1500 * time.Millisecond

// fate is what happens to a frame on its way.
type fate int

const (
	pass fate = iota
	drop
	double
	swap // it comes after the next one
	late // it comes after a while
	cut  // it is lost, and its line breaks
)

// odds are the chances of the fates in a thousand; all other frames pass.
var odds = map[fate]int{drop: 25, double: 25, swap: 25, late: 15, cut: 5}

// pipe is one direction of a line.
type pipe[T any] struct {
	mu      sync.Mutex // guards the rest
	changed *sync.Cond
	waiting []T
	held    []T  // comes after the next one
	blocked bool // nothing arrives for a while
	closed  bool // the sender says no more
	broken  bool // nothing arrives any more
	stuck   bool // the sender waits for the receiver
	rng     *rand.Rand
}

func newPipe[T any](seed uint64) *pipe[T] {
	p := &pipe[T]{rng: rand.New(rand.NewPCG(seed, 0))}
	p.changed = sync.NewCond(&p.mu)
	return p
}

// set changes the pipe, and wakes who waits for that.
func (p *pipe[T]) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.changed.Broadcast()
}

// room waits until the receiver takes more; false: the pipe is broken.
func (p *pipe[T]) room() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stuck = true
	for len(p.waiting) >= window && !p.broken && !p.closed {
		p.changed.Wait()
	}
	p.stuck = false
	return !p.broken && !p.closed
}

// draw returns the fate of the next frame.
func (p *pipe[T]) draw() (f fate, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.rng.IntN(1000)
	delay = time.Duration(p.rng.Int64N(int64(mostLate)))
	for _, f := range []fate{drop, double, swap, late, cut} {
		if n -= odds[f]; n < 0 {
			return f, delay
		}
	}
	return pass, delay
}

// send lets a frame suffer its fate. again makes a copy of the frame. cut: the line breaks.
func (p *pipe[T]) send(m T, f fate, delay time.Duration, again func(T) T) {
	if f == late {
		time.AfterFunc(delay, func() { p.set(func() { p.waiting = append(p.waiting, m) }) })
		return
	}
	p.set(func() {
		overtaken := p.held
		switch p.held = nil; f {
		case drop:
			p.held = overtaken
			return
		case double:
			p.waiting = append(p.waiting, m, again(m))
		case swap:
			p.held = []T{m}
		default:
			p.waiting = append(p.waiting, m)
		}
		p.waiting = append(p.waiting, overtaken...)
	})
}

// heal lets all frames pass, also the one that was to come after the next one. That one may set the
// slots to 0, and nothing would correct it later.
func (p *pipe[T]) heal() {
	p.set(func() {
		p.blocked = false
		p.waiting, p.held = append(p.waiting, p.held...), nil
	})
}

// get waits for a frame; false: none will come.
func (p *pipe[T]) get() (m T, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.broken && (p.blocked || len(p.waiting) == 0 && !p.closed) {
		p.changed.Wait()
	}
	if p.broken || len(p.waiting) == 0 {
		return m, false
	}
	m, p.waiting = p.waiting[0], p.waiting[1:]
	p.changed.Broadcast()
	return m, true
}

// standsStill reports whether frames wait on the line or before it.
func (p *pipe[T]) standsStill() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stuck || p.blocked || len(p.waiting) > 0
}

// line is one stream between a worker and the coordinator, whose frames meet faults. It is the
// coordinator's end, too: grpc.BidiStreamingServer.
type line struct {
	grpc.ServerStream
	w       *world
	name    string
	ctx     context.Context //nolint:containedctx // a stream has one
	cut     context.CancelFunc
	serving context.Context //nolint:containedctx // ends with the coordinator's end of the stream
	up      *pipe[*lessorv1.SessionRequest]
	down    *pipe[*lessorv1.SessionResponse]
	streams *Server
	ended   chan struct{}       // closed when the coordinator has ended the stream
	err     error               // with which it did; valid once ended is closed
	since   time.Time           // when it was opened
	greeted time.Time           // when its handshake came in; guarded by book.mu
	said    uint64              // seq of the newest frame on it; guarded by book.mu
	handed  map[string]*leaseOf // leases that were handed out on it, by id, and have not ended; guarded by book.mu
}

// dial opens a line to the coordinator; nil: it is not there.
func (w *world) dial(ctx context.Context, name string) *line {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.streams == nil {
		return nil
	}
	w.dialed++
	l := &line{
		w: w, name: fmt.Sprintf("%s/%d", name, w.dialed), ended: make(chan struct{}), since: time.Now(),
		handed: map[string]*leaseOf{},
		up:     newPipe[*lessorv1.SessionRequest](w.seeds.Uint64()), down: newPipe[*lessorv1.SessionResponse](w.seeds.Uint64()),
	}
	l.ctx, l.cut = context.WithCancel(ctx)
	context.AfterFunc(w.over, l.cut)
	serving, done := context.WithCancel(l.ctx)
	l.serving = serving
	context.AfterFunc(l.ctx, func() { l.down.set(func() { l.down.broken = true }) })
	context.AfterFunc(serving, func() { l.up.set(func() { l.up.broken = true }) })
	w.lines[l], l.streams = w.streams, w.streams
	streams := w.streams
	go func() {
		defer close(l.ended)
		l.err = streams.Serve(l, Caller{Identity: auth.Identity{Tenant: home.Tenant, Role: auth.Worker}})
		done()
		w.book.endOf(l)
		l.down.set(func() { l.down.closed = true })
		w.mu.Lock()
		delete(w.lines, l)
		w.mu.Unlock()
	}()
	return l
}

// await waits, while commits are slow, until nothing is under way on the lines of a worker, which
// it breaks. Where a line takes a session over from another one it waits until the other one's
// frame is handled, and the checks expect no session in between.
func (w *world) await(name string) {
	if w.slack == 0 {
		return
	}
	w.mu.Lock()
	streams := w.streams
	var mine []*line
	for l := range w.lines {
		if strings.HasPrefix(l.name, name+"/") {
			mine = append(mine, l)
		}
	}
	w.mu.Unlock()
	for _, l := range mine {
		l.cut()
		<-l.ended
	}
	for streams != nil && streams.resumes.taking() {
		time.Sleep(time.Millisecond)
	}
}

// taking reports whether a stream takes a frame of a session.
func (all *resumeTable) taking() bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, d := range all.byID {
		for _, mu := range []*waitLock{&d.in.mu, &d.takingOver} {
			if !mu.tryLock() {
				return true
			}
			mu.Unlock()
		}
	}
	return false
}

// open reports whether the coordinator still serves the line.
func (l *line) open() bool {
	select {
	case <-l.ended:
		return false
	default:
		return l.ctx.Err() == nil
	}
}

// Context is for grpc.ServerStream.
func (l *line) Context() context.Context { return l.serving }

// RecvMsg receives a frame on the coordinator's end.
func (l *line) RecvMsg(m any) error {
	f, ok := l.up.get()
	switch {
	case l.serving.Err() != nil:
		return status.FromContextError(l.serving.Err()).Err()
	case !ok:
		return io.EOF
	}
	l.w.book.delivered(l, f)
	*m.(*Frame) = Frame{msg: f, size: proto.Size(f)}
	return nil
}

// Recv is for grpc.BidiStreamingServer.
func (l *line) Recv() (*lessorv1.SessionRequest, error) {
	var f Frame
	err := l.RecvMsg(&f)
	return f.msg, err
}

// Send sends a frame from the coordinator's end.
func (l *line) Send(m *lessorv1.SessionResponse) error {
	m = proto.CloneOf(m)
	l.w.book.said(l, m)
	if !l.down.room() || l.serving.Err() != nil {
		return status.Error(codes.Canceled, "the stream has ended")
	}
	f, delay := l.w.fateOf(l.down.draw)
	if f == cut {
		l.cut()
		return nil
	}
	l.down.send(m, f, delay, proto.CloneOf[*lessorv1.SessionResponse])
	return nil
}

// sendUp sends a frame from the worker's end; false: the line has ended. The sender does not wait
// for the coordinator.
func (l *line) sendUp(m *lessorv1.SessionRequest) bool {
	if !l.open() {
		return false
	}
	f, delay := l.w.fateOf(l.up.draw)
	if f == cut {
		l.cut()
		return false
	}
	l.up.send(proto.CloneOf(m), f, delay, proto.CloneOf[*lessorv1.SessionRequest])
	return true
}

// fateOf draws a fate while there are faults.
func (w *world) fateOf(draw func() (fate, time.Duration)) (fate, time.Duration) {
	f, delay := draw()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calm {
		return pass, 0
	}
	w.fates[f]++
	return f, delay
}

// conn lets an SDK worker dial lines.
type conn struct {
	w    *world
	name string
}

// Invoke is for grpc.ClientConnInterface. Workers make no unary calls here.
func (conn) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return status.Error(codes.Unimplemented, "only sessions")
}

// NewStream opens a line.
func (c conn) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	c.w.await(c.name)
	l := c.w.dial(ctx, c.name)
	if l == nil {
		return nil, status.Error(codes.Unavailable, "the coordinator is not there")
	}
	return &end{line: l}, nil
}

// end is a worker's end of a line.
type end struct {
	grpc.ClientStream
	line *line
}

// Context is for grpc.ClientStream.
func (e *end) Context() context.Context { return e.line.ctx }

// CloseSend is for grpc.ClientStream.
func (e *end) CloseSend() error {
	e.line.up.set(func() { e.line.up.closed = true })
	return nil
}

// SendMsg sends a frame.
func (e *end) SendMsg(m any) error {
	if !e.line.up.room() || !e.line.sendUp(m.(*lessorv1.SessionRequest)) {
		return io.EOF
	}
	return nil
}

// RecvMsg receives a frame.
func (e *end) RecvMsg(m any) error {
	f, ok := e.line.down.get()
	switch {
	case ok:
		proto.Reset(m.(proto.Message))
		proto.Merge(m.(proto.Message), f)
		return nil
	case e.line.ctx.Err() != nil:
		return status.Error(codes.Unavailable, "the connection was cut")
	case e.line.err != nil:
		return e.line.err
	}
	return io.EOF
}

// tryLock locks l unless it is locked.
func (l *waitLock) tryLock() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	free := !l.held
	l.held = true
	return free
}
