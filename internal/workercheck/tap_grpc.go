package workercheck

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/uncompressed"
)

// maxMessage is the largest message that is carried, in bytes.
const maxMessage = 64 << 20

func (t *tap) server() *grpc.Server {
	// as with a coordinator: docs/workers.md, the channel
	pings := keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}
	return grpc.NewServer(grpc.UnknownServiceHandler(uncompressed.Stream(t.carry)),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.KeepaliveEnforcementPolicy(pings))
}

var (
	errCut  = status.Error(codes.Unavailable, "the connection was lost")
	errEnd  = errors.New("the call ends well")
	errOver = errors.New("the call is over")
)

// carry is a call of the worker, of any method: also a unary one is two streams of messages.
func (t *tap) carry(_ any, near grpc.ServerStream) error {
	name, _ := grpc.MethodFromServerStream(near)
	method, err := methodOf(name)
	if err != nil {
		return err
	}
	c := &call{tap: t, near: near, method: method, session: method.FullName() == "lessor.v1.WorkerService.Session"}
	if c.session {
		t.rec.opens()
		c.leave = sync.OnceFunc(t.rec.leaves)
		defer c.leave()
		defer t.rec.note("(the stream ends)")
	}
	ctx, end := context.WithCancelCause(near.Context())
	defer end(errOver)
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, md.Copy())
	}
	far, err := t.coordinator().NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		name, grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage))
	if err != nil {
		return err
	}
	c.far = far
	go func() {
		if err := c.up(); err != nil {
			end(err) // ends down, too
		}
	}()
	if err := c.down(); err != nil {
		if cause := context.Cause(ctx); cause != nil && near.Context().Err() == nil {
			err = cause
		}
		if errors.Is(err, errEnd) {
			return nil
		}
		if near.Context().Err() == nil && !errors.Is(err, errCut) {
			t.rec.refuse(string(method.Name()), err)
		}
		return err
	}
	near.SetTrailer(far.Trailer())
	return nil
}

// methodOf returns the method with a name such as /lessor.v1.WorkerService/Lease.
func methodOf(name string) (protoreflect.MethodDescriptor, error) {
	full := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(name, "/"), "/", "."))
	d, _ := protoregistry.GlobalFiles.FindDescriptorByName(full)
	if m, ok := d.(protoreflect.MethodDescriptor); ok {
		return m, nil
	}
	return nil, status.Errorf(codes.Unimplemented, "unknown method %s", name)
}

// call is one call under way.
type call struct {
	*tap
	near    grpc.ServerStream
	far     grpc.ClientStream
	method  protoreflect.MethodDescriptor
	session bool                 // the call is a stream
	said    atomic.Pointer[word] // what a unary call says; nil: nothing about an attempt
	sent    dispatches           // of a stream
	leave   func()               // the stream is over, or the worker has said goodbye
}

// up carries what the worker sends. Its error ends the call.
func (c *call) up() error {
	for {
		m, err := receive(c.near, c.method.Input())
		if errors.Is(err, io.EOF) {
			return c.far.CloseSend()
		}
		if err != nil {
			return err
		}
		if err := c.hearMessage(m); err != nil {
			return err
		}
		if c.session && c.parted() {
			continue
		}
		if err := c.far.SendMsg(m); err != nil && !errors.Is(err, io.EOF) { // EOF: down gets the reason
			return err
		}
	}
}

// down carries what the coordinator sends.
func (c *call) down() error {
	for {
		m, err := receive(c.far, c.method.Output())
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if c.session && c.parted() {
			continue
		}
		cut := c.tellMessage(m)
		if cut != nil {
			return cut
		}
		if d := c.now().distort; d != nil {
			d.message(m.ProtoReflect())
		}
		for i := range c.copies(m) {
			if i > 0 {
				c.grant(m.(*lessorv1.SessionResponse).GetDispatch().GetAssignments()) // for the transcript
			}
			if err := c.near.SendMsg(m); err != nil {
				return err
			}
		}
	}
}

func (c *call) copies(m proto.Message) int {
	if frame, ok := m.(*lessorv1.SessionResponse); ok && frame.GetDispatch() != nil && c.now().twice {
		return 2
	}
	return 1
}

// receive reads a message of the type.
func receive(from interface{ RecvMsg(m any) error }, of protoreflect.MessageDescriptor) (proto.Message, error) {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(of.FullName())
	if err != nil {
		return nil, err
	}
	m := kind.New().Interface()
	return m, from.RecvMsg(m)
}

// report is what Start, Heartbeat, Complete, Fail and Release have in common.
type report interface {
	proto.Message
	GetTaskId() string
	GetLeaseId() string
	GetAttempt() uint32
}
