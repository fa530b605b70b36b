package coordinator

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/wire"
)

// frame is a SessionRequest as it came, or the reason why it could not be read. grpc ends a stream at the first message that does not
// decode; a worker with one bad string should get an error frame instead and keep its leases.
type frame struct {
	msg  *lessorv1.SessionRequest
	size int // in bytes
	err  error
}

// frameCodec is a codec of messages, but for frames.
type frameCodec struct{ encoding.CodecV2 }

func newFrameCodec() frameCodec { return frameCodec{wire.NewCodec()} }

// Marshal writes what is sent, see encode.
func (frameCodec) Marshal(v any) (mem.BufferSlice, error) { return encode(v) }

// Unmarshal reads a frame, or a message.
func (c frameCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	f.msg, f.size = &lessorv1.SessionRequest{}, data.Len()
	f.err = c.CodecV2.Unmarshal(data, f.msg)
	return nil
}
