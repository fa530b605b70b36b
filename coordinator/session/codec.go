package session

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Frame is a SessionRequest as it came, or the reason why it could not be read. grpc ends a stream at the first message that does not
// decode; a worker with one bad string should get an error frame instead and keep its leases.
type Frame struct {
	msg  *lessorv1.SessionRequest
	size int // in bytes
	err  error
}

// Codec is a codec that reads frames, and messages as the one does that is in it.
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
