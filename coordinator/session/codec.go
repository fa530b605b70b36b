package session

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Frame is a SessionRequest, or the reason why it could not be decoded. Without it, gRPC would end
// the stream at the first message that it cannot decode. With it, a worker that sends one bad
// string gets an error frame and keeps its leases.
type Frame struct {
	msg  *lessorv1.SessionRequest
	size int // in bytes
	err  error
}

// Codec wraps a codec so that it can also decode into a *Frame.
type Codec struct{ encoding.CodecV2 }

// Unmarshal decodes a *Frame or a message. For a *Frame, the error of the decoding goes into the
// Frame, and Unmarshal returns nil.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*Frame)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	f.msg, f.size = &lessorv1.SessionRequest{}, data.Len()
	f.err = c.CodecV2.Unmarshal(data, f.msg)
	return nil
}
