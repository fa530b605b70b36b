//go:build !race

package wire

import (
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Writing a frame allocates only its buffer. Reading a frame allocates only what it holds:
// messages, lists and strings.
func TestAllocations(t *testing.T) {
	m, c := reports(10), NewCodec()
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	written := testing.AllocsPerRun(100, func() {
		b := make([]byte, m.SizeVT())
		err = write(b, m)
	})
	if err != nil || written > 1 {
		t.Errorf("%v allocations to write a frame (%v), want at most 1", written, err)
	}
	spec := &lessorv1.TaskSpec{Queue: "mail", Payload: make([]byte, 100), Labels: map[string]string{"team": "blue"}}
	encoded := testing.AllocsPerRun(100, func() { _, err = Marshal(spec) })
	if err != nil || encoded > 1 { // protobuf's own Marshal after it would allocate again
		t.Errorf("%v allocations to marshal a plain spec (%v), want at most 1", encoded, err)
	}
	data := mem.BufferSlice{mem.SliceBuffer(raw)}
	read := testing.AllocsPerRun(100, func() { err = c.Unmarshal(data, &lessorv1.SessionRequest{}) })
	// Each of the 10 pairs of reports takes up to 7 + 9 objects: for each report the item, its
	// oneof member, the message in it, a timestamp, and the strings and bytes. 20 are for the
	// frame.
	if most := 10*(7+9) + 20.0; err != nil || read > most {
		t.Errorf("%v allocations to read a frame (%v), want at most %v", read, err, most)
	}
}
