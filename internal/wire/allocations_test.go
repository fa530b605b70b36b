//go:build !race

package wire

import (
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// A frame is written without anything but its buffer, and read into nothing but what it holds: the message, its lists and its strings.
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
		t.Errorf("%v allocations to write a frame (%v)", written, err)
	}
	data := mem.BufferSlice{mem.SliceBuffer(raw)}
	read := testing.AllocsPerRun(100, func() { err = c.Unmarshal(data, &lessorv1.SessionRequest{}) })
	// Of each report the item, its member, the message in it, five strings or bytes less one in a start, and a timestamp. The rest is the frame.
	if most := 10*(7+9) + 20.0; err != nil || read > most {
		t.Errorf("%v allocations to read a frame, at most %v were expected (%v)", read, most, err)
	}
}
