package reqcodec

import (
	"errors"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/convert"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// Request is a request that was decoded, or the reason why it cannot be decoded. A handler of a
// stream that has to know the size of a message receives it into a Request.
type Request struct {
	Into    proto.Message
	asks    Asking
	size    int // bytes of the message
	bad     *lease.FieldError
	refused bool // the gate will refuse the call
	skipped bool // the request was not read, or not decoded, see maxOfRefused
}

// bytesOfTask is what a task takes in memory besides the bytes of its message.
const bytesOfTask = 1 << 10

// Memory estimates how many bytes the request takes in memory.
func (r *Request) Memory() int {
	n := r.size
	if m, ok := r.Into.(interface{ GetTasks() []*lessorv1.TaskSpec }); ok {
		n += len(m.GetTasks()) * bytesOfTask
	}
	return n
}

// codec is a codec that returns no error when it decodes a Request: it stores the error in the
// Request.
type codec struct{ encoding.CodecV2 }

// NewCodec returns a codec that decodes as inner does, but refuses messages that are too large, and
// puts what is wrong with a Request into that.
func NewCodec(inner encoding.CodecV2) encoding.CodecV2 { return codec{boundedCodec{inner}} }

// Unmarshal reads a message.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*Request)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	r.size = data.Len()
	if r.refused && data.Len() > maxOfRefused {
		r.skipped = true
		return nil
	}
	switch err := c.CodecV2.Unmarshal(data, r.Into); {
	case errors.As(err, &r.bad):
	case err != nil:
		r.bad = &lease.FieldError{Field: "request", Problem: "cannot be read: " + err.Error()}
	case bool(r.asks):
		r.bad = convert.Unknown("", r.Into)
	}
	return nil
}
