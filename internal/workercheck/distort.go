package workercheck

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// distortion changes what the worker is told into what another coordinator, or another machine,
// would tell.
type distortion struct {
	// newer adds fields that no worker knows.
	newer bool
	// clock is by how much the coordinator's wall clock is ahead.
	clock time.Duration
}

// unknownField is a field that no message has.
const unknownField = 1987

// message changes a message and all within it.
func (d *distortion) message(m protoreflect.Message) {
	if t, ok := m.Interface().(*timestamppb.Timestamp); ok {
		shifted := timestamppb.New(t.AsTime().Add(d.clock))
		t.Seconds, t.Nanos = shifted.GetSeconds(), shifted.GetNanos()
		return
	}
	if d.newer {
		b := protowire.AppendTag(m.GetUnknown(), unknownField, protowire.BytesType)
		m.SetUnknown(protowire.AppendString(b, "from the future"))
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			if f.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					d.message(v.Message())
					return true
				})
			}
		case f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				d.message(v.List().Get(i).Message())
			}
		default:
			d.message(v.Message())
		}
		return true
	})
}

// times are the fields of the HTTP API with times of the coordinator.
var times = map[string]bool{
	"expiresAt": true, "serverTime": true, "tokenExpiresAt": true, "enqueuedAt": true,
	"deadline": true, "retryAt": true,
}

// opaque are fields with the JSON of users.
var opaque = map[string]bool{"payload": true, "output": true, "checkpoint": true, "labels": true, "metadata": true}

// json returns a value of the HTTP API as changed.
func (d *distortion) json(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = d.json(v[i])
		}
	case map[string]any:
		for name, of := range v {
			if s, ok := of.(string); ok && times[name] {
				v[name] = d.time(s)
			} else if !opaque[name] {
				v[name] = d.json(of)
			}
		}
		if d.newer {
			v["someday"] = map[string]any{"from": "the future"}
		}
	}
	return v
}

func (d *distortion) time(s string) string {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return s
	}
	return t.Add(d.clock).Format(time.RFC3339Nano)
}
