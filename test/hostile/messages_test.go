//go:build faults

package hostile

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/base64"
	"io"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// messageAttacks are attacks by malformed messages and credentials.
var messageAttacks = []attack{
	{"junk tokens", 16, 1_100, junkTokens},
	{"malformed messages", 4, 300, malformedMessages},
	{"malformed prefixes", 4, 200, func(a *attackRun) {
		a.repeatBursts(func(w *wire) int {
			for _, body := range prefixes() {
				_ = w.WriteData(w.open(submitCall, a.h.tokens[evil], body.more...), true, body.data)
			}
			return len(prefixes())
		})
	}},
	{"calls of nothing", 4, 300, func(a *attackRun) {
		a.repeatBursts(func(w *wire) int {
			for _, path := range []string{"", "/", "lessor.v1.TaskService/GetTask", "//", "/lessor.v1.TaskService", "/lessor.v1.TaskService/", "/a/../b", "/" + strings.Repeat("a", 5000), "/\x00/\xff"} {
				w.callOnce(path, a.h.tokens[evil], nil)
			}
			return 9
		})
	}},
	{"gzip bombs", 2, 6, func(a *attackRun) {
		bomb := gzipped(32 << 20)
		a.repeatBursts(func(w *wire) int {
			id := w.open(submitCall, a.h.tokens[evil], hpack.HeaderField{Name: "grpc-encoding", Value: "gzip"})
			data := prefixed(bomb)
			data[0] = 1
			for len(data) > 16<<10 {
				_ = w.WriteData(id, false, data[:16<<10])
				data = data[16<<10:]
			}
			_ = w.WriteData(id, true, data)
			return 1
		})
	}},
	{"connection flood", 2, 100, connectionFlood},
}

type body struct {
	data []byte
	more []hpack.HeaderField
}

// prefixes returns bodies whose prefix does not fit the rest, and some with bad headers.
func prefixes() []body {
	return []body{
		{data: nil},
		{data: []byte{0}},
		{data: []byte{0, 0, 0, 0}},
		{data: []byte{0, 0xff, 0xff, 0xff, 0xff}},
		{data: []byte{0, 0x7f, 0xff, 0xff, 0xff, 1}},
		{data: []byte{0, 0, 0, 0, 9, 1}},
		{data: []byte{1, 0, 0, 0, 0}},
		{data: []byte{2, 0, 0, 0, 0}},
		{data: []byte{0xff, 0, 0, 0, 1, 1}},
		{data: append(prefixed(nil), prefixed(nil)...)}, // a unary call has only one message
		{data: []byte{1, 0, 0, 0, 1, 1}, more: []hpack.HeaderField{{Name: "grpc-encoding", Value: "nonsense"}}},
		{data: prefixed(nil), more: []hpack.HeaderField{{Name: "grpc-timeout", Value: "99999999999S"}}},
		{data: prefixed(nil), more: []hpack.HeaderField{{Name: "grpc-timeout", Value: "-1S"}}},
		{data: prefixed(nil), more: []hpack.HeaderField{{Name: "x-bin", Value: "!"}}},
	}
}

func gzipped(n int) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(make([]byte, n))
	_ = z.Close()
	return b.Bytes()
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

var _ encoding.CodecV2 = rawCodec{}

// unary lists all unary calls of our services.
func unary(t *testing.T) (all []string) {
	t.Helper()
	for _, desc := range []grpc.ServiceDesc{
		lessorv1.TaskService_ServiceDesc, lessorv1.WorkerService_ServiceDesc, lessorv1.AdminService_ServiceDesc,
		lessorv1.AuthService_ServiceDesc,
	} {
		for _, m := range desc.Methods {
			all = append(all, "/"+desc.ServiceName+"/"+m.MethodName)
		}
	}
	return all
}

// malformed returns messages that cannot be decoded.
func malformed() [][]byte {
	deep := bytes.Repeat([]byte{0x0a, 0xff, 0xff, 0x03}, 5_000) // each claims to be longer than the rest
	groups := append(bytes.Repeat(protowire.AppendTag(nil, 2000, protowire.StartGroupType), 20_000),
		bytes.Repeat(protowire.AppendTag(nil, 2000, protowire.EndGroupType), 20_000)...)
	return [][]byte{
		{0xff},
		{0x0a},
		{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1},
		bytes.Repeat([]byte{0x80}, 100),
		{0x07},
		{0x0c},
		{0x0b},
		{0x0a, 0x02, 0xff, 0xfe},
		{0x00, 0x00},
		deep, groups, bytes.Repeat([]byte{0x0b}, 100_000),
	}
}

// malformedMessages sends malformed messages and random bytes to every unary call. None of them may
// be answered as a fault of the server or of the credential.
func malformedMessages(a *attackRun) {
	conn := a.dialAs(a.h.tokens[evil])
	calls := unary(a.t)
	for i := 0; !a.ended(); i++ {
		all := malformed()
		noise := make([]byte, 1+i%300)
		_, _ = rand.Read(noise) // never fails
		message := append(all, noise)[i%(len(all)+1)]
		call := calls[(i/(len(all)+1))%len(calls)]
		var answer []byte
		switch err := conn.Invoke(a.ctx, call, message, &answer, grpc.ForceCodecV2(rawCodec{})); status.Code(err) {
		case codes.Internal, codes.Unknown, codes.Unavailable, codes.DataLoss, codes.Unauthenticated:
			if !a.ended() {
				a.t.Errorf("%s of %x: error %v, want none that blames the coordinator or the credential",
					call, message[:min(len(message), 32)], err)
			}
		default:
			a.countAnswer(status.Code(err).String())
			a.hit(1)
		}
	}
}

// junkTokens sends credentials that are not valid. The refusals are UNAUTHENTICATED, or
// RESOURCE_EXHAUSTED when there were too many.
func junkTokens(a *attackRun) {
	conn := a.dialAs("")
	good := a.h.tokens[honest]
	noise := make([]byte, 6000)
	for i := 0; !a.ended(); i++ {
		_, _ = rand.Read(noise) // never fails
		text := base64.RawURLEncoding.EncodeToString(noise)
		token := []string{
			"Bearer " + text[:i%6000], "Bearer lsr_" + text[:200], "Bearer " + good[:len(good)-1], "Bearer " + good + "A", "Basic " + good, "bearer", "",
			"Bearer " + good[:len(good)-10] + text[:10], "Bearer  " + good, strings.Repeat("Bearer ", 500),
		}[i%10]
		_, err := lessorv1.NewTaskServiceClient(conn).GetTask(metadata.AppendToOutgoingContext(a.ctx, "authorization",
			token), &lessorv1.GetTaskRequest{})
		switch code := status.Code(err); code {
		case codes.Unauthenticated, codes.ResourceExhausted:
			a.countAnswer(code.String())
			a.hit(1)
		default:
			if !a.ended() {
				a.t.Errorf("token %.40q: error %v, want UNAUTHENTICATED or RESOURCE_EXHAUSTED", token, err)
			}
		}
	}
}

// connectionFlood opens connections and keeps them. A hit is one that the coordinator closes at
// once; the others are sent its SETTINGS first. It has an address of its own, because a new
// connection from an address may take the place of an older one, but the slow clients must be ended
// for what they are.
func connectionFlood(a *attackRun) {
	for !a.ended() {
		conn := a.dialFrom(dialerOf(3), a.h.grpc)
		if conn == nil {
			return
		}
		go func() {
			n, _ := io.Copy(io.Discard, conn)
			_ = conn.Close()
			if n == 0 && !a.ended() {
				a.hit(1)
			}
		}()
	}
}
