package reqcodec

import (
	"testing"

	"google.golang.org/grpc/mem"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/wire"
)

// The error for a request that cannot be decoded names the field "request".
func TestRequestThatCannotBeDecoded(t *testing.T) {
	r := Request{Into: &lessorv1.GetTaskRequest{}}
	err := NewCodec(wire.NewCodec()).Unmarshal(mem.BufferSlice{mem.SliceBuffer{0xff}}, &r)
	if err != nil || r.bad == nil || r.bad.Field != "request" {
		t.Errorf("the error is %v and the fault %v, want no error and a fault of the field request", err, r.bad)
	}
}
