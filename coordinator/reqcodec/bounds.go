package reqcodec

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/wire"
	"github.com/lessor-dev/lessor/lease"
)

// A message can take a hundred times its size when it is decoded: an empty task in a list has two
// bytes, and takes hundreds in memory; an empty string takes tens, with the copies of its growing
// list (X5). The message of a unary call is decoded before the gate sees the call, and the handlers
// can count the entries of a list only when they are decoded. So both are bounded before.

const (
	// MaxEntries is how many entries the lists of a message may have in all. No request within
	// lease.DefaultLimits has so many.
	MaxEntries = 100_000
	// stringsOfEntry is how many strings in lists count as one entry.
	stringsOfEntry = 8
)

// maxOfRefused is the longest message, in bytes, that is decoded for a call without a valid
// credential. The gate refuses such a call, and takes from its message only what goes into the
// audit; if nothing does, the message is not even read.
const maxOfRefused = 4 << 10

// maxOfOthers is the longest message, in bytes, that is read for the services of health and
// reflection. Health checks need no credential, and a watch keeps the name in its request for as
// long as it lasts.
const maxOfOthers = 4 << 10

// errNotDecoded ends a call whose message was not decoded, and which the gate has let in all the
// same. It can happen only if the clock was set back.
var errNotDecoded = refusal.New(codes.Unavailable, refusal.CodeToken,
	"the credential was not valid when the call began: repeat the call", nil)

// boundedCodec is a codec that returns a lease.FieldError for a message whose lists have too many
// entries, and an error for a long message of a service that is not ours.
type boundedCodec struct{ encoding.CodecV2 }

// Unmarshal reads a message.
func (c boundedCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if ok && data.Len() > maxOfOthers &&
		m.ProtoReflect().Descriptor().ParentFile().Package() != lessorv1.File_lessor_v1_task_proto.Package() {
		return fmt.Errorf("the request has %d bytes; the limit is %d", data.Len(), maxOfOthers)
	}
	if !ok || data.Len() <= 2*MaxEntries { // an entry has at least two bytes
		return c.CodecV2.Unmarshal(data, v)
	}
	whole := data.MaterializeToBuffer(wire.Buffers)
	defer whole.Free()
	messages, strings := wire.Entries(m, whole.ReadOnlyData())
	if n := messages + strings/stringsOfEntry; n > MaxEntries {
		return &lease.FieldError{
			Field:   "request",
			Problem: fmt.Sprintf("has %d entries in its lists; the limit is %d", n, MaxEntries),
		}
	}
	return c.CodecV2.Unmarshal(mem.BufferSlice{whole}, v)
}
