package wire

import (
	"fmt"
	"runtime"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Buffers is the pool for messages that are written or read. The default pool of grpc has no size
// between 32 KiB and 1 MiB: a frame of 33 KiB would take 1 MiB, which is cleared each time, and
// held for as long as nobody reads the frame.
var Buffers = mem.NewTieredBufferPool(256, 4<<10, 16<<10, 32<<10, 64<<10, 128<<10, 256<<10, 512<<10, 1<<20,
	2<<20, 4<<20)

// generated is a message with generated code for encoding.
type generated interface {
	proto.Message
	SizeVT() int
	MarshalToSizedBufferVT(b []byte) (int, error)
	UnmarshalVT(b []byte) error
}

// Codec is the codec of grpc, except for the messages of lessor.v1.
type Codec struct{ encoding.CodecV2 }

// NewCodec returns a Codec.
func NewCodec() Codec { return Codec{encoding.GetCodecV2(grpcproto.Name)} }

// Marshal writes a message.
func (c Codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(generated)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	return Encode(m, Size(m), Buffers)
}

// Marshal writes a message of lessor.v1 faster than proto.Marshal, unless it has a list of enums.
// Unlike a Codec, it refuses strings that are not UTF-8, as proto.Marshal does.
func Marshal(m proto.Message) ([]byte, error) {
	if ours, ok := m.(generated); ok {
		b := make([]byte, ours.SizeVT())
		if write(b, m) == nil && shapeOf(m).fits(b) {
			return b, nil
		}
	}
	return proto.Marshal(m)
}

// Unmarshal reads a message. It gives up the processor after each piece of it.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	b := data.MaterializeToBuffer(Buffers)
	defer b.Free()
	return unmarshal(b.ReadOnlyData(), m)
}

// Size returns how many bytes a message takes.
func Size(m proto.Message) int {
	if ours, ok := m.(generated); ok {
		return ours.SizeVT()
	}
	return proto.Size(m)
}

// Encode encodes a message of the given Size into a buffer of the pool, or, if it is small, into a
// new buffer.
func Encode(m proto.Message, size int, pool mem.BufferPool) (mem.BufferSlice, error) {
	if mem.IsBelowBufferPoolingThreshold(size) {
		b := make([]byte, size)
		return mem.BufferSlice{mem.SliceBuffer(b)}, write(b, m)
	}
	b := pool.Get(size)
	if err := write(*b, m); err != nil {
		pool.Put(b)
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(b, pool)}, nil
}

// write encodes a message of exactly len(b) bytes into b.
func write(b []byte, m proto.Message) error {
	n, err := 0, error(nil)
	if ours, ok := m.(generated); ok {
		n, err = ours.MarshalToSizedBufferVT(b)
	} else {
		var written []byte
		written, err = proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b[:0], m)
		n = len(written)
	}
	if err == nil && n != len(b) {
		err = fmt.Errorf("%T took %d bytes instead of %d: it was changed while it was encoded", m, n, len(b))
	}
	return err
}

// unmarshal does the same as proto.Unmarshal, but faster for plain messages of lessor.v1.
func unmarshal(raw []byte, m proto.Message) error {
	proto.Reset(m)
	if ours, ok := m.(generated); ok && shapeOf(m).fits(raw) {
		if inPieces(raw, ours.UnmarshalVT) == nil {
			return nil
		}
		proto.Reset(m)
	}
	return inPieces(raw, func(b []byte) error { return proto.UnmarshalOptions{Merge: true}.Unmarshal(b, m) })
}

// piece is how many bytes of a message are decoded before others have a turn (package turn). Most
// take some dozens of microseconds, entries of maps up to 0.4 ms.
var piece = 16 << 10

// inPieces gives an encoded message to decode, which adds what it reads to the message, and so
// reads the fields in pieces as it reads them at once. It gives up the processor after each piece.
// Fields within a field are not parted.
func inPieces(raw []byte, decode func([]byte) error) error {
	for len(raw) > piece {
		end := 0
		for end < piece {
			_, _, n := protowire.ConsumeField(raw[end:])
			if n < 0 { // decode says what is wrong
				return decode(raw)
			}
			end += n
		}
		if err := decode(raw[:end]); err != nil {
			return err
		}
		raw = raw[end:]
		runtime.Gosched()
	}
	return decode(raw)
}
