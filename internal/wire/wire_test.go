package wire

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// messageTypes returns all message types of lessor.v1.
func messageTypes(t testing.TB) (all []protoreflect.MessageType) {
	t.Helper()
	protoregistry.GlobalTypes.RangeMessages(func(mt protoreflect.MessageType) bool {
		if mt.Descriptor().ParentFile().Package() == "lessor.v1" {
			all = append(all, mt)
		}
		return true
	})
	if len(all) < 100 {
		t.Fatalf("%d message types of lessor.v1, want at least 100", len(all))
	}
	return all
}

// fill sets every field that is not in a oneof, and in each oneof the member with this index,
// modulo the number of members.
func fill(m protoreflect.Message, member int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if in := f.ContainingOneof(); in != nil && in.Fields().Get(member%in.Fields().Len()) != f {
			continue
		}
		switch {
		case f.IsMap():
			value := example(f.MapValue())
			m.Mutable(f).Map().Set(protoreflect.ValueOfString("k").MapKey(), value)
			m.Mutable(f).Map().Set(protoreflect.ValueOfString("").MapKey(), value)
		case f.IsList():
			for range 2 {
				if f.Kind() == protoreflect.MessageKind {
					fill(m.Mutable(f).List().AppendMutable().Message(), member)
				} else {
					m.Mutable(f).List().Append(example(f))
				}
			}
		case f.Kind() == protoreflect.MessageKind:
			fill(m.Mutable(f).Message(), member)
		default:
			m.Set(f, example(f))
		}
	}
}

func example(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("wörd")
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{0xff, 0})
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(math.Inf(-1))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(-1)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(math.MinInt64)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(math.MaxUint32)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(300)
	case protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(1 << 63)
	}
	panic("no example of a " + f.Kind().String())
}

// examples returns messages of a type that together have every field, and an empty message.
func examples(mt protoreflect.MessageType) (all []proto.Message) {
	for member := range 10 { // no oneof has more members, see TestNoOneofHasMoreThan10Members
		m := mt.New()
		fill(m, member)
		if len(all) == 0 || !proto.Equal(all[0], m.Interface()) {
			all = append(all, m.Interface())
		}
	}
	return append(all, mt.New().Interface())
}

func TestNoOneofHasMoreThan10Members(t *testing.T) {
	for _, mt := range messageTypes(t) {
		oneofs := mt.Descriptor().Oneofs()
		for i := range oneofs.Len() {
			if n := oneofs.Get(i).Fields().Len(); n > 10 {
				t.Errorf("%s has %d members, want at most 10: examples would leave some out", oneofs.Get(i).FullName(), n)
			}
		}
	}
}

// What the codec writes, protobuf reads as the same message, for every field of every message.
func TestProtobufReadsWhatTheCodecWrites(t *testing.T) {
	for _, mt := range messageTypes(t) {
		for _, m := range examples(mt) {
			b, err := NewCodec().Marshal(m)
			if err != nil {
				t.Fatalf("%T: %v", m, err)
			}
			again := mt.New().Interface()
			if err := proto.Unmarshal(b.Materialize(), again); err != nil || !proto.Equal(again, m) {
				t.Errorf("protobuf reads %v (%v), want %v", again, err, m)
			}
			b.Free()
		}
	}
}

// entriesOf counts the messages and the strings in the lists of a message.
func entriesOf(m protoreflect.Message) (messages, strings int) {
	inside := func(m protoreflect.Message) {
		inMessages, inStrings := entriesOf(m)
		messages, strings = messages+inMessages, strings+inStrings
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsList() && f.Kind() == protoreflect.StringKind:
			strings += v.List().Len()
		case f.Message() == nil || f.IsMap(): // the values of our maps are no messages
		case f.IsList():
			messages += v.List().Len()
			for i := range v.List().Len() {
				inside(v.List().Get(i).Message())
			}
		default:
			inside(v.Message())
		}
		return true
	})
	return messages, strings
}

// Entries counts, without decoding, the messages and strings in all lists of a message. Of a
// malformed message it counts those before the fault.
func TestEntries(t *testing.T) {
	var messages, strings int
	for _, mt := range messageTypes(t) {
		for _, m := range examples(mt) {
			raw, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			wantMessages, wantStrings := entriesOf(m.ProtoReflect())
			if gotMessages, gotStrings := Entries(m, raw); gotMessages != wantMessages || gotStrings != wantStrings {
				t.Errorf("%T has %d messages and %d strings in lists, want %d and %d",
					m, gotMessages, gotStrings, wantMessages, wantStrings)
			}
			messages, strings = messages+wantMessages, strings+wantStrings
		}
	}
	if messages == 0 || strings == 0 {
		t.Errorf("the examples have %d messages and %d strings in lists", messages, strings)
	}
	next := protowire.Number(len(shapeOf(&lessorv1.BatchSubmitTasksRequest{}))) // the first number that no field has
	unknown := string(protowire.AppendBytes(protowire.AppendTag(nil, next, protowire.BytesType), nil))
	for raw, want := range map[string]int{
		"\x0a\x00\x0a\x00\xff": 2, "\x0a\x00\x0a\x05": 1, "\x0a\x02\xff\xff\x0a\x00": 2, "\x08\x00\x0a\x00": 1, "\x7a\x00\x0a\x00": 1,
		unknown + "\x0a\x00": 1,
	} {
		if got, _ := Entries(&lessorv1.BatchSubmitTasksRequest{}, []byte(raw)); got != want {
			t.Errorf("%q has %d messages in lists, want %d", raw, got, want)
		}
	}
	if messages, strings := Entries(&descriptorpb.FileDescriptorSet{}, []byte("\x0a\x00")); messages+strings != 0 {
		t.Errorf("a message of another package has %d messages and %d strings in lists, want none", messages, strings)
	}
}

// Marshal gives what protobuf reads as the same message. Like protobuf's own, it refuses a string
// that is not UTF-8, also in a nested message.
func TestMarshalAgreesWithProtobuf(t *testing.T) {
	for _, mt := range messageTypes(t) {
		for _, m := range examples(mt) {
			b, err := Marshal(m)
			again := mt.New().Interface()
			if err == nil {
				err = proto.Unmarshal(b, again)
			}
			if err != nil || !proto.Equal(again, m) {
				t.Errorf("protobuf reads %v (%v), want %v", again, err, m)
			}
		}
	}
	for _, m := range []proto.Message{
		&lessorv1.TaskSpec{Queue: "\xff"},
		&lessorv1.TaskSpec{Labels: map[string]string{"team": "\xff"}},
		&lessorv1.TaskSpec{Affinity: &lessorv1.Affinity{Key: "\xff"}},
	} {
		if b, err := Marshal(m); err == nil {
			t.Errorf("Marshal(%v) = %q, want an error: a string is not UTF-8", m, b)
		}
	}
}

// The generated code reads all requests and answers of workers and producers, because it is faster
// than protobuf's reflection. Only messages with lists of enums are left to protobuf.
func TestWorkerAndProducerMessagesUseGeneratedCode(t *testing.T) {
	workers := lessorv1.File_lessor_v1_worker_service_proto.Services().ByName("WorkerService").Methods()
	tasks := lessorv1.File_lessor_v1_task_service_proto.Services().ByName("TaskService").Methods()
	var messages []protoreflect.MessageDescriptor
	for _, methods := range []protoreflect.MethodDescriptors{workers, tasks} {
		for i := range methods.Len() {
			messages = append(messages, methods.Get(i).Input(), methods.Get(i).Output())
		}
	}
	for _, d := range messages {
		mt, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range examples(mt) {
			raw, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := m.(generated); !ok || !shapeOf(m).fits(raw) && !hasEnums(m.ProtoReflect()) {
				t.Errorf("%T is read by reflection, want by the generated code", m)
			}
		}
	}
}

// hasEnums reports whether a message or a message within it has a list of enums.
func hasEnums(m protoreflect.Message) (has bool) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() || f.Kind() != protoreflect.MessageKind && f.Kind() != protoreflect.EnumKind:
		case f.IsList():
			has = has || f.Kind() == protoreflect.EnumKind || hasEnums(v.List().Get(0).Message())
		case f.Kind() == protoreflect.MessageKind:
			has = has || hasEnums(v.Message())
		}
		return !has
	})
	return has
}

// checkAgreement checks that unmarshal reads a message as protobuf does, or refuses it with the
// same error.
func checkAgreement(t *testing.T, mt protoreflect.MessageType, raw []byte) {
	t.Helper()
	want := mt.New().Interface()
	wantErr := proto.Unmarshal(raw, want)
	for _, piece = range []int{1, piece} {
		got := mt.New().Interface()
		err := unmarshal(raw, got)
		switch {
		case wantErr != nil:
			if err == nil || err.Error() != wantErr.Error() {
				t.Errorf("%s of %x: error %v, want that of protobuf: %v", mt.Descriptor().Name(), raw, err, wantErr)
			}
		case err != nil || !proto.Equal(got, want):
			t.Errorf("%s of %x is read as %v (%v), want %v as by protobuf", mt.Descriptor().Name(), raw, got, err, want)
		}
	}
}

// unmarshal reads or refuses a message as protobuf does, also if the message is cut off at any byte
// or has any byte changed.
func TestUnmarshalAgreesWithProtobuf(t *testing.T) {
	for _, mt := range messageTypes(t) {
		if _, ok := mt.New().Interface().(generated); !ok {
			continue // protobuf reads it anyway
		}
		for _, m := range examples(mt) {
			raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			raw = raw[:min(len(raw), 200)] // nested messages are tested as types of their own
			for i := range raw {
				checkAgreement(t, mt, raw[:i])
				for _, other := range []byte{0x80, 0xff, raw[i] + 1, raw[i] ^ 8} {
					changed := bytes.Clone(raw)
					changed[i] = other
					checkAgreement(t, mt, changed)
				}
			}
		}
	}
}

// unusualEncodings returns encodings that different decoders may read differently.
func unusualEncodings() map[string][]byte {
	text := func(number protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), s)
	}
	group := func(start, end protowire.Number) []byte {
		return protowire.AppendTag(protowire.AppendTag(nil, start, protowire.StartGroupType), end, protowire.EndGroupType)
	}
	open := bytes.Repeat(protowire.AppendTag(nil, 99, protowire.StartGroupType), 20_000)
	return map[string][]byte{
		"the last counts":               append(text(1, "a"), text(1, "b")...),
		"parts of a message":            append(text(7, "\x0a\x01x"), text(7, "\x10\x01")...),
		"another member of the oneof":   append(text(19, ""), text(21, "")...),
		"the same member twice":         append(text(24, "\x0a\x01r"), text(24, "")...),
		"no UTF-8":                      text(1, "\xff"),
		"no UTF-8 in a message":         text(7, "\x0a\x01\xff"),
		"no UTF-8 as a key":             text(21, "\x12\x05\x0a\x01\xff\x10\x01"),
		"a key of another type":         text(21, "\x12\x02\x08\x01"),
		"a value without a key":         text(21, "\x12\x02\x10\x01"),
		"an entry with more":            text(21, "\x12\x04\x10\x01\x18\x01"),
		"another type":                  protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 5),
		"unknown":                       text(99, "x"),
		"unknown in a message":          text(7, "\x7a\x01x"),
		"unknown in a timestamp":        text(2, "\x7a\x01x"),
		"a number beyond 64 bits":       append([]byte{6 << 3}, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f),
		"the largest number":            append([]byte{6 << 3}, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01),
		"a number in too many bytes":    {6 << 3, 0x81, 0x80, 0x00},
		"a tag in too many bytes":       {0x8a, 0x80, 0x00, 1, 'x'},
		"a boolean of 2":                text(7, "\x10\x02"),
		"the field 0":                   {0, 0},
		"a field beyond all":            protowire.AppendVarint(protowire.AppendVarint(nil, 1<<33|1<<3), 0),
		"a length beyond the end":       {0x0a, 0xff, 0xff, 0xff, 0xff, 0x07},
		"a negative length":             {0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
		"a group":                       group(99, 99),
		"a group that ends as another":  group(99, 98),
		"a group in a known field":      group(7, 7),
		"a group that does not end":     group(99, 99)[:2],
		"an end without a group":        protowire.AppendTag(nil, 99, protowire.EndGroupType),
		"groups in groups, without end": open,
		"groups in groups":              append(open, bytes.Repeat(protowire.AppendTag(nil, 99, protowire.EndGroupType), 20_000)...),
	}
}

func TestUnmarshalAgreesOnUnusualEncodings(t *testing.T) {
	for name, raw := range unusualEncodings() {
		t.Run(name, func(t *testing.T) {
			checkAgreement(t, (&lessorv1.SessionRequest{}).ProtoReflect().Type(), raw)
		})
	}
}

// unmarshal resets a message before it reads into it, as protobuf does.
func TestUnmarshalResetsTheMessage(t *testing.T) {
	m := &lessorv1.SessionRequest{Id: "1", Corr: "2"}
	if err := NewCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer("\x0a\x013")}, m); err != nil || !proto.Equal(m, &lessorv1.SessionRequest{Id: "3"}) {
		t.Errorf("got %v (%v), want only id 3", m, err)
	}
}

// The codec also writes and reads messages that are not of lessor.v1. A value that is no message is
// an error.
func TestCodecHandlesOtherMessages(t *testing.T) {
	c, want := NewCodec(), timestamppb.New(timestamppb.Now().AsTime())
	for name, write := range map[string]func() (mem.BufferSlice, error){
		"Marshal": func() (mem.BufferSlice, error) { return c.Marshal(want) },
		"Encode":  func() (mem.BufferSlice, error) { return Encode(want, Size(want), Buffers) },
	} {
		got := &timestamppb.Timestamp{}
		b, err := write()
		if err == nil {
			err = c.Unmarshal(b, got)
		}
		if err != nil || !proto.Equal(got, want) {
			t.Errorf("%s: got %v (%v), want %v", name, got, err, want)
		}
	}
	if _, err := c.Marshal(1); err == nil {
		t.Error("Marshal of a number = nil, want an error")
	}
	if err := c.Unmarshal(nil, new(int)); err == nil {
		t.Error("Unmarshal into a pointer to a number = nil, want an error")
	}
}

// countingPool is a pool that counts the buffers that were taken and given back.
type countingPool struct {
	b           []byte
	taken, back int
}

func (p *countingPool) Get(n int) *[]byte {
	p.taken++
	p.b = make([]byte, n)
	return &p.b
}

func (p *countingPool) Put(*[]byte) { p.back++ }

// A large message is written into a buffer of the pool. The pool gets the buffer back when it was
// sent, or at once if writing fails. A small message takes none.
func TestLargeMessageUsesThePool(t *testing.T) {
	m := &lessorv1.SessionRequest{Id: strings.Repeat("i", 5000)}
	pool := &countingPool{}
	b, err := Encode(m, Size(m), pool)
	if err != nil || pool.taken != 1 || pool.back != 0 {
		t.Fatalf("Encode of a large message: error %v, pool %+v, want one buffer taken and none given back", err, pool)
	}
	b.Free()
	if pool.back != 1 {
		t.Errorf("%d buffers came back after the message was sent, want 1", pool.back)
	}
	if _, err := Encode(m, Size(m)+1, pool); err == nil || pool.back != pool.taken {
		t.Errorf("a message that changed while it was written: error %v, %d of %d buffers came back, want an error and all buffers", err, pool.back, pool.taken)
	}
	m.Id = "i"
	if _, err := Encode(m, Size(m), pool); err != nil || pool.taken != 2 {
		t.Errorf("a small message: error %v, %d buffers taken in all, want the 2 of the messages before", err, pool.taken)
	}
}

func FuzzUnmarshal(f *testing.F) {
	for _, raw := range unusualEncodings() {
		if len(raw) < 1000 {
			f.Add(raw)
		}
	}
	of := []proto.Message{&lessorv1.SessionRequest{}, &lessorv1.SessionResponse{}, &lessorv1.SubmitTaskRequest{}}
	for _, m := range of {
		for _, m := range examples(m.ProtoReflect().Type()) {
			raw, _ := proto.Marshal(m)
			f.Add(raw)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, m := range of {
			checkAgreement(t, m.ProtoReflect().Type(), raw)
		}
	})
}

// reports returns a frame as a worker sends it: the starts and completions of n tasks.
func reports(n int) *lessorv1.SessionRequest {
	all := &lessorv1.Reports{}
	for i := range n {
		task, leaseID, now := fmt.Sprintf("t%016d", i), fmt.Sprintf("l%042d", i), timestamppb.New(timestamppb.Now().AsTime())
		all.Reports = append(all.Reports,
			&lessorv1.Report{Report: &lessorv1.Report_Start{Start: &lessorv1.StartRequest{
				TaskId: task, LeaseId: leaseID, Attempt: 1, WorkerId: "worker-1", StartedAt: now,
			}}},
			&lessorv1.Report{Report: &lessorv1.Report_Complete{Complete: &lessorv1.CompleteRequest{
				TaskId: task, LeaseId: leaseID, Attempt: 1, WorkerId: "worker-1", ReportId: leaseID,
				Output: []byte("output"), CompletedAt: now,
			}}})
	}
	return &lessorv1.SessionRequest{
		Id: "w12345", Ts: timestamppb.Now(), Tenant: "default", Seq: 12345,
		Sender: &lessorv1.Sender{Role: "worker", Id: "worker-1"},
		Ack:    &lessorv1.Ack{For: "d12344"}, Payload: &lessorv1.SessionRequest_Reports{Reports: all},
	}
}

// BenchmarkFrame writes and reads a frame of 20 reports, with the generated code that the
// coordinator and the SDK use, and by reflection.
func BenchmarkFrame(b *testing.B) {
	m := reports(10)
	raw, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	for name, fn := range map[string]func() error{
		"write":            func() error { s, err := NewCodec().Marshal(m); s.Free(); return err },
		"write/reflection": func() error { s, err := NewCodec().CodecV2.Marshal(m); s.Free(); return err },
		"read":             func() error { return unmarshal(raw, &lessorv1.SessionRequest{}) },
		"read/reflection":  func() error { return proto.Unmarshal(raw, &lessorv1.SessionRequest{}) },
		"check": func() error {
			if !shapeOf(m).fits(raw) {
				return fmt.Errorf("not plain")
			}
			return nil
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := fn(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
