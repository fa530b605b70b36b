package coordinator

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"math"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/convert"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store/memstore"
)

// minusZero is a double.
var minusZero = protowire.AppendFixed64(nil, math.Float64bits(math.Copysign(0, -1)))

// A frame is read, and then says what its bytes say, or is refused in words that are UTF-8; never does it end its stream.
func FuzzFrame(f *testing.F) {
	for _, m := range []proto.Message{
		hello("w"), registration(1), &lessorv1.WorkerHeartbeat{Healthy: true}, &lessorv1.Reports{Reports: []*lessorv1.Report{{}}}, &lessorv1.Goodbye{Reason: "r"},
	} {
		frame := &lessorv1.SessionRequest{Id: "1", Tenant: "t", Seq: 1 << 40, Flags: []string{"f"}, Ack: &lessorv1.Ack{For: "x"}}
		setPayload(frame, m)
		raw, _ := proto.Marshal(frame)
		f.Add(raw)
		f.Add(bytes.ReplaceAll(raw, []byte("w"), []byte("\xff")))
		f.Add(raw[:len(raw)-1])
	}
	f.Add(bytes.Repeat(protowire.AppendTag(nil, 99, protowire.StartGroupType), 1000))
	codec := newCodec()
	f.Fuzz(func(t *testing.T, raw []byte) {
		var got frame
		if err := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, &got); err != nil {
			t.Fatalf("the stream would end: %v", err)
		}
		if got.msg == nil || got.size != len(raw) {
			t.Fatalf("%d bytes became %+v", len(raw), got)
		}
		if got.err != nil {
			if !utf8.ValidString(unreadable(got.err)) {
				t.Errorf("refused as %q", unreadable(got.err))
			}
			return
		}
		if bytes.Contains(raw, minusZero) {
			return // it is written as 0, see package wire
		}
		b, err := codec.Marshal(got.msg)
		if err != nil {
			t.Fatalf("what was read can not be written: %v", err)
		}
		known, again := &lessorv1.SessionRequest{}, &lessorv1.SessionRequest{}
		discard := proto.UnmarshalOptions{DiscardUnknown: true}
		if err := errors.Join(discard.Unmarshal(raw, known), discard.Unmarshal(b.Materialize(), again)); err != nil || !proto.Equal(again, known) {
			t.Errorf("%v becomes %v (%v)", known, again, err)
		}
		b.Free()
		_ = kindOf(got.msg)
		_ = payloadName(got.msg)
	})
}

// Where a request can not be read since a string is no UTF-8, its field is named; that is so for every kind of request.
func FuzzInvalidUTF8(f *testing.F) {
	raw, _ := proto.Marshal(&lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q", Labels: map[string]string{"k": "v"}}})
	f.Add(raw)
	f.Add(bytes.ReplaceAll(raw, []byte("k"), []byte("\xff")))
	f.Add([]byte{0x0a, 0x03, 0x0a, 0x01, 0xff})
	f.Fuzz(func(t *testing.T, raw []byte) {
		m := &lessorv1.SubmitTaskRequest{}
		err := readingCodec{newFrameCodec().CodecV2}.unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, m)
		path := invalidUTF8(m.ProtoReflect().Descriptor(), raw)
		if err == nil && path != "" {
			t.Errorf("%x is read, and %s is no UTF-8", raw, path)
		}
		var field *lease.FieldError
		if errors.As(err, &field) && (field.Field != path || !utf8.ValidString(field.Error())) {
			t.Errorf("%x: %v names another field than %s", raw, err, path)
		}
	})
}

// A page token has one text, and is of one list. A cursor that somebody made up does no harm: the lists answer, or refuse it by name.
func FuzzPageToken(f *testing.F) {
	list := newListing("tasks", "default", &lessorv1.TaskFilter{})
	f.Add(list.token([]byte("12345678")), []byte("12345678"))
	f.Add(list.token(nil)+"\n", []byte{})
	f.Add("A", []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Add("", []byte("q\x00q"))
	r := newPages(f)
	f.Fuzz(func(t *testing.T, token string, cursor []byte) {
		check := &convert.Fields{Limits: lease.DefaultLimits()}
		if got := list.cursor(check, token); check.Err == nil && token != "" && list.token(got) != token {
			t.Errorf("%q is taken for %q", token, list.token(got))
		}
		if got := list.cursor(&convert.Fields{}, list.token(cursor)); !bytes.Equal(got, cursor) && len(cursor) > 0 {
			t.Errorf("%x comes back as %x", cursor, got)
		}
		for name, ask := range r.lists {
			for _, token := range []string{token, list.token(cursor), forged(name, cursor)} {
				if err := ask(r.ctx, token); err != nil && status.Code(err).String() != "InvalidArgument" {
					t.Errorf("%s after %q: %v", name, token, err)
				}
			}
		}
	})
}

// forged is a token of a list with a cursor of somebody's own.
func forged(kind string, cursor []byte) string {
	var m proto.Message = &lessorv1.TaskFilter{}
	switch kind {
	case "queues":
		m = &lessorv1.ListQueuesRequest{WorkspaceId: convert.DefaultWorkspace}
	case "workers":
		m = &lessorv1.ListWorkersRequest{}
	case "audit":
		m = &lessorv1.ListAuditEventsRequest{}
	}
	return newListing(kind, DefaultTenant, m).token(cursor)
}

// pages are all lists of a coordinator with something in each.
type pages struct {
	ctx   context.Context //nolint:containedctx // of all calls of the test
	lists map[string]func(ctx context.Context, token string) error
}

func newPages(f *testing.F) *pages {
	f.Helper()
	c, err := New(memstore.New(), Config{})
	if err != nil {
		f.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- c.engine.Run(ctx) }()
	f.Cleanup(func() {
		c.stopAll()
		stop()
		if err := <-ran; err != nil {
			f.Error(err)
		}
	})
	p := &pages{ctx: as(ctx, everyone)}
	tasks := &taskService{edge: c.edge}
	admin := &adminService{edge: c.edge, census: c.engine, revoker: c.engine, open: newSessions()}
	for _, queue := range []string{"q", "p"} {
		if _, err := tasks.SubmitTask(p.ctx, &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: queue}}); err != nil {
			f.Fatal(err)
		}
	}
	p.lists = map[string]func(ctx context.Context, token string) error{
		"tasks": func(ctx context.Context, token string) error {
			_, err := tasks.ListTasks(ctx, &lessorv1.ListTasksRequest{PageToken: token})
			return err
		},
		"queues": func(ctx context.Context, token string) error {
			_, err := admin.ListQueues(ctx, &lessorv1.ListQueuesRequest{PageToken: token})
			return err
		},
		"workers": func(ctx context.Context, token string) error {
			_, err := admin.ListWorkers(ctx, &lessorv1.ListWorkersRequest{PageToken: token})
			return err
		},
		"audit": func(ctx context.Context, token string) error {
			_, err := admin.ListAuditEvents(ctx, &lessorv1.ListAuditEventsRequest{PageToken: token})
			return err
		},
	}
	return p
}

// The header of a credential has one reading: what is taken is the whole of what follows the word.
func FuzzBearer(f *testing.F) {
	f.Add("Bearer lsr_a.b.c")
	f.Add("bearer  x")
	f.Add("Bearer")
	f.Add("Basic " + base64.StdEncoding.EncodeToString([]byte("a:b")))
	f.Fuzz(func(t *testing.T, header string) {
		token, err := bearer([]string{header})
		if bad := (*auth.Error)(nil); err != nil && !errors.As(err, &bad) {
			t.Errorf("%q: %v", header, err)
		}
		if err == nil && (token == "" || len(header) != len("bearer ")+len(token)) {
			t.Errorf("%q is taken for %q", header, token)
		}
		if _, err := bearer([]string{header, header}); err == nil {
			t.Errorf("%q is taken twice", header)
		}
	})
}
