package session

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Frame is a SessionRequest, or the reason why it could not be decoded. gRPC itself ends a stream at the first message that it cannot decode;
// a worker that sends one bad string should instead get an error frame, and keep its leases.
type Frame struct {
	msg  *lessorv1.SessionRequest
	size int // in bytes
	err  error
}

// Codec wraps a codec so that it can also read into a *Frame.
type Codec struct{ encoding.CodecV2 }

// Unmarshal reads a frame, or a message.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*Frame)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	f.msg, f.size = &lessorv1.SessionRequest{}, data.Len()
	f.err = c.CodecV2.Unmarshal(data, f.msg)
	return nil
}
