package recvlimit

import (
	"bytes"
	"maps"
	"testing"

	"golang.org/x/net/http2"
)

// FuzzReceived: whatever a client sends, and in whatever pieces, the same messages have begun, and
// no bytes count when the connection is closed.
func FuzzReceived(f *testing.F) {
	var b bytes.Buffer
	out := http2.NewFramer(&b, nil)
	_ = out.WriteSettings()
	_ = out.WriteDataPadded(1, false, append([]byte{0, 0, 0, 1, 0}, make([]byte, 100)...), make([]byte, 7))
	_ = out.WriteData(3, true, []byte{0, 0, 0, 0, 1, 1})
	_ = out.WriteRSTStream(1, http2.ErrCodeCancel)
	f.Add(b.Bytes(), uint16(100))
	f.Fuzz(func(t *testing.T, sent []byte, piece uint16) {
		l := quiet(1 << 40)
		whole, pieces := newClient(t, l).c, newClient(t, l).c
		whole.received(sent)
		for rest := sent; len(rest) > 0; {
			n := min(len(rest), 1+int(piece))
			pieces.received(rest[:n])
			rest = rest[n:]
		}
		if got, want := pieces.have(), whole.have(); !maps.Equal(got, want) || whole.bytes != pieces.bytes || whole.bytes < 0 {
			t.Errorf("in pieces, %d bytes count of %v, and %d of %v otherwise", pieces.bytes, got, whole.bytes, want)
		}
		_, _ = whole.Close(), pieces.Close()
		wantBytes(t, "closed", l, 0)
	})
}

// have returns how many bytes of each message have come.
func (c *conn) have() map[uint32]int {
	all := map[uint32]int{}
	for id, m := range c.messages {
		all[id] = m.begun + m.have
	}
	return all
}
