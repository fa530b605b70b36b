package coordinator

import (
	"context"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// pipe carries the answers of a local stream. CloseSend starts the handler in its own goroutine,
// which must end when ctx does.
type pipe struct {
	ctx     context.Context //nolint:containedctx // a grpc stream returns its context from Context
	handle  func(grpc.ServerStream) error
	request proto.Message      // nil once the handler has it
	answers chan proto.Message // not buffered, so that the handler cannot run ahead of the caller
	ended   chan struct{}
	err     error // returned by the handler; valid after ended is closed
}

func newPipe(ctx context.Context, handle func(grpc.ServerStream) error) *callerEnd {
	return &callerEnd{&pipe{ctx: ctx, handle: handle, answers: make(chan proto.Message), ended: make(chan struct{})}}
}

// callerEnd is the caller's side of the pipe, handlerEnd that of the handler.
type (
	callerEnd  struct{ *pipe }
	handlerEnd struct{ *pipe }
)

// Context returns the context of the call, on either side.
func (p *pipe) Context() context.Context { return p.ctx }

// SendMsg keeps the request, which must be the only one.
func (e *callerEnd) SendMsg(m any) error {
	e.request = m.(proto.Message)
	return nil
}

// CloseSend starts the handler.
func (e *callerEnd) CloseSend() error {
	go func() {
		defer close(e.ended)
		e.err = e.handle(handlerEnd{e.pipe})
	}()
	return nil
}

// RecvMsg waits for the next answer. After the last answer it returns the error of the call, or
// io.EOF.
func (e *callerEnd) RecvMsg(m any) error {
	select {
	case answer := <-e.answers:
		proto.Merge(m.(proto.Message), answer)
		return nil
	case <-e.ended:
	}
	if e.err != nil {
		return e.err
	}
	return io.EOF
}

// Header is empty.
func (e *callerEnd) Header() (metadata.MD, error) { return nil, nil }

// Trailer is empty.
func (e *callerEnd) Trailer() metadata.MD { return nil }

// SendMsg hands an answer to the caller.
func (e handlerEnd) SendMsg(m any) error {
	select {
	case e.answers <- m.(proto.Message):
		return nil
	case <-e.ctx.Done():
		return e.ctx.Err()
	}
}

// RecvMsg returns the request, and then the end of the caller's side.
func (e handlerEnd) RecvMsg(m any) error {
	if e.request == nil {
		return io.EOF
	}
	proto.Merge(m.(proto.Message), e.request)
	e.request = nil
	return nil
}

// SetHeader does nothing: nobody reads headers.
func (e handlerEnd) SetHeader(metadata.MD) error { return nil }

// SendHeader does nothing.
func (e handlerEnd) SendHeader(metadata.MD) error { return nil }

// SetTrailer does nothing.
func (e handlerEnd) SetTrailer(metadata.MD) {}
