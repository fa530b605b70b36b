package main

import (
	"context"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/session"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/runner"
	"github.com/lessor-dev/lessor/store/memstore"
)

// W9: if the worker of a run gets no new work because of its memory, the run says so once, and says
// once when there is new work again. Then it goes on. The clock is real: that of a bubble would
// stand still while the command waits for heartbeats.
func TestRunSaysThatItGetsNoNewWork(t *testing.T) {
	t.Attr("rules", "W9")
	co, err := coordinator.New(memstore.New(), coordinator.Config{
		Logger: slog.New(slog.DiscardHandler),
		Sessions: session.Config{
			HeartbeatInterval: 100 * time.Millisecond,
			Health:            session.Thresholds{MemPct: 90, DiskPct: session.NeverFull.DiskPct},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	lis, serving := bufconn.Listen(1<<20), make(chan error)
	alive, stop := context.WithCancel(t.Context())
	go func() { serving <- co.Serve(alive, lis, nil) }()
	var memory fullMemory
	memory.beats.Store(math.MaxInt64)
	cl, err := dial("passthrough:///coordinator", grpc.WithStreamInterceptor(memory.intercept),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	job, err := runner.Open(t.Context(), t.TempDir(), runner.Options{}, strings.NewReader("a\nb\n"), false)
	if err != nil {
		t.Fatal(err)
	}
	again := filepath.Join(t.TempDir(), "again")
	var notes noteWriter
	last := sync.OnceFunc(func() { memory.beats.Store(3) }) // of these, the run says nothing
	notes.written = func(note string) {
		switch {
		case strings.HasPrefix(note, "waiting: "):
			last()
		case strings.HasSuffix(note, " again\n"):
			if err := os.WriteFile(again, nil, 0o600); err != nil {
				t.Error(err)
			}
		}
	}
	run := runCmd{Addr: "coordinator:1", Jobs: 1, DrainTimeout: time.Second, Command: []string{
		// the first line may begin before the first heartbeat
		"sh", "-c", "until [ -e " + again + " ]; do sleep 0.01; done",
	}}
	a := &app{ctx: t.Context(), stopNow: t.Context(), streams: streams{out: io.Discard, err: &notes}}
	summary, err := newRunWork(run, a, job).workAndFollow(t.Context(), cl)
	if err != nil || summary.Done != 2 {
		t.Errorf("summary %+v, error %v, want 2 lines done", summary, err)
	}
	if want := []string{
		"waiting: the coordinator gives no new work: mem_pct is 99: no new work at 90 or more, until it falls to 85\n",
		"the coordinator gives new work again\n",
	}; !slices.Equal(notes.notes, want) {
		t.Errorf("the run says %q, want %q", notes.notes, want)
	}
	stop()
	for _, err := range []error{<-serving, cl.Close(), job.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
}

// fullMemory has a worker report that its memory is nearly full, for a number of heartbeats; then,
// that it is nearly free.
type fullMemory struct{ beats atomic.Int64 }

func (f *fullMemory) intercept(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer,
	opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	stream, err := open(ctx, desc, conn, method, opts...)
	return &memoryStream{stream, f}, err
}

type memoryStream struct {
	grpc.ClientStream
	memory *fullMemory
}

func (s *memoryStream) SendMsg(m any) error {
	if f, ok := m.(*lessorv1.SessionRequest); ok && len(f.GetHeartbeat().GetMetrics()) > 0 {
		f.GetHeartbeat().Metrics["mem_pct"] = 10
		if s.memory.beats.Add(-1) >= 0 {
			f.GetHeartbeat().Metrics["mem_pct"] = 99
		}
	}
	return s.ClientStream.SendMsg(m)
}

// noteWriter keeps the notes of a run. It calls written with each.
type noteWriter struct {
	notes   []string
	written func(note string)
}

func (w *noteWriter) Write(p []byte) (int, error) {
	w.notes = append(w.notes, string(p))
	w.written(string(p))
	return len(p), nil
}
