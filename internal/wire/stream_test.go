package wire

import (
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// W6: each wait for an acknowledgement is twice as long as the one before, up to a longest one, and
// a little longer at random.
func TestWaitsBeforeResends(t *testing.T) {
	t.Attr("rules", "W6")
	for tries, least := range []time.Duration{
		200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond,
		3200 * time.Millisecond, 4 * time.Second, 4 * time.Second, 4 * time.Second,
	} {
		for range 100 {
			if wait := ResendWait(tries); wait < least || wait > least*5/4 {
				t.Fatalf("after %d resends the wait is %v, want %v to %v", tries, wait, least, least*5/4)
			}
		}
	}
}

// A payload of a newer version is unknown, and so is what cannot be read. A field of the envelope
// that is unknown is none.
func TestUnknownPayload(t *testing.T) {
	field := func(number protowire.Number) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), []byte("new"))
	}
	for name, c := range map[string]struct {
		unknown []byte
		want    bool
	}{
		"nothing":         {nil, false},
		"in the envelope": {field(15), false},
		"a payload":       {field(16), true},
		"both":            {append(field(15), field(900)...), true},
		"not readable":    {[]byte{0xff}, true},
	} {
		frame := &lessorv1.SessionRequest{}
		frame.ProtoReflect().SetUnknown(c.unknown)
		if got := HasUnknownPayload(frame); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
