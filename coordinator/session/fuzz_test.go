package session

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/convert"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/wire"
)

// minusZero is the encoding of the double -0.
var minusZero = protowire.AppendFixed64(nil, math.Float64bits(math.Copysign(0, -1)))

// Any bytes are either decoded as the frame that they encode, or refused with a message in valid
// UTF-8. No bytes end the stream.
func FuzzFrame(f *testing.F) {
	for _, m := range []*lessorv1.SessionRequest{
		{Payload: &lessorv1.SessionRequest_Handshake{Handshake: &lessorv1.Handshake{Protocol: Protocol, Worker: &lessorv1.WorkerInfo{Name: "w"}}}},
		{Payload: &lessorv1.SessionRequest_Register{Register: &lessorv1.Register{Queues: []string{"w"}}}},
		{Payload: &lessorv1.SessionRequest_Heartbeat{Heartbeat: &lessorv1.WorkerHeartbeat{Healthy: true}}},
		{Payload: &lessorv1.SessionRequest_Reports{Reports: &lessorv1.Reports{Reports: []*lessorv1.Report{{}}}}},
		{Payload: &lessorv1.SessionRequest_Goodbye{Goodbye: &lessorv1.Goodbye{Reason: "w"}}},
	} {
		m.Id, m.Tenant, m.Seq, m.Flags, m.Ack = "1", "t", 1<<40, []string{"f"}, &lessorv1.Ack{For: "x"}
		raw, _ := proto.Marshal(m)
		f.Add(raw)
		f.Add(bytes.ReplaceAll(raw, []byte("w"), []byte("\xff")))
		f.Add(raw[:len(raw)-1])
	}
	f.Add(bytes.Repeat(protowire.AppendTag(nil, 99, protowire.StartGroupType), 1000))
	codec := Codec{convert.Codec{CodecV2: wire.NewCodec()}}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var got Frame
		if err := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, &got); err != nil {
			t.Fatalf("the stream would end: %v", err)
		}
		if got.msg == nil || got.size != len(raw) {
			t.Fatalf("%d bytes were decoded as %+v, want a message of that size", len(raw), got)
		}
		if got.err != nil {
			if !utf8.ValidString(unreadable(got.err)) {
				t.Errorf("the refusal %q is not valid UTF-8", unreadable(got.err))
			}
			return
		}
		if bytes.Contains(raw, minusZero) {
			return // package wire encodes -0 as 0
		}
		b, err := codec.Marshal(got.msg)
		if err != nil {
			t.Fatalf("the decoded frame cannot be encoded: %v", err)
		}
		known, again := &lessorv1.SessionRequest{}, &lessorv1.SessionRequest{}
		discard := proto.UnmarshalOptions{DiscardUnknown: true}
		if err := errors.Join(discard.Unmarshal(raw, known), discard.Unmarshal(b.Materialize(), again)); err != nil || !proto.Equal(again, known) {
			t.Errorf("the frame %v was decoded and encoded as %v (%v)", known, again, err)
		}
		b.Free()
		_ = kindOf(got.msg)
		_ = payloadName(got.msg)
	})
}
