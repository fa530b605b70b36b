package coordinator

import (
	"context"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// W1: whoever opens a stream and does not say who it is, is not waited for, whatever else it says.
func TestStreamWithoutAHandshake(t *testing.T) {
	t.Attr("rules", "W1 W14")
	for _, talks := range []bool{false, true} {
		serve(t, nil, func(t *testing.T, r *rig) {
			tk := r.talk(t, "w")
			for range 9 {
				time.Sleep(handshakeWithin / 10)
				if talks {
					tk.say(&lessorv1.Error{})
				}
			}
			tk.quiet()
			time.Sleep(handshakeWithin / 10)
			wantText(t, "code", hear[*lessorv1.Reset](tk).GetCode(), codeTimeout)
			if err := tk.over(); err != nil {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

// Slots beyond all reason are refused by name, 0 is none, and neither touches anybody else.
func TestSlotsAtTheirLimits(t *testing.T) {
	serve(t, nil, func(t *testing.T, r *rig) {
		tk, other := r.work(t, "w", 1), r.work(t, "other", 1)
		tk.refused(tk.say(&lessorv1.Capacity{MaxParallel: 1 << 31}), codeInvalid, "capacity.max_parallel: is 2147483648; the range is 0 to 10000")
		tk.refused(tk.say(registration(1<<31)), codeInvalid, "max_parallel: is 2147483648; the range is 1 to 10000")
		tk.say(&lessorv1.Capacity{MaxParallel: 0})
		tk.quiet()
		r.submitAll(t, 2)
		did(t, other.judge(completed(other.given(1)[0], "")))
		did(t, other.judge(completed(other.given(1)[0], "")))
		tk.quiet()
	})
}

// Who reports under leases that are not its own, or are none, gets the verdicts that the lease ids deserve; whose they are loses nothing.
func TestReportsUnderForeignLeases(t *testing.T) {
	t.Attr("rules", "V2 V3")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk, stranger := r.work(t, "w", 2), r.work(t, "stranger", 1)
		stranger.say(&lessorv1.Capacity{MaxParallel: 0})
		stranger.quiet()
		r.submitAll(t, 2)
		work := tk.given(2)
		mixed := &lessorv1.Assignment{Task: work[0].GetTask(), LeaseId: work[1].GetLeaseId()}
		forged := &lessorv1.Assignment{Task: work[0].GetTask(), LeaseId: "A" + work[0].GetLeaseId()[1:] + "A"}
		nowhere := &lessorv1.Assignment{Task: &lessorv1.Task{TaskId: "t0000000000000000"}, LeaseId: "x"}
		for i, v := range stranger.judge(completed(mixed, ""), completed(forged, ""), completed(nowhere, "")) {
			want := []lessorv1.Reason{
				lessorv1.Reason_REASON_INVALID_LEASE, lessorv1.Reason_REASON_INVALID_LEASE, lessorv1.Reason_REASON_UNKNOWN_TASK,
			}[i]
			if v.GetVerdict() != lessorv1.Verdict_VERDICT_REJECTED || v.GetReason() != want {
				t.Errorf("report %d: %v, want REJECTED / %v", i, v, want)
			}
		}
		did(t, tk.judge(completed(work[0], ""), completed(work[1], "")))
	})
}

// W11: a worker that sends heartbeats without end, and reads, keeps its own stream busy: memory stays as it was, and others are served.
func TestFloodOfHeartbeats(t *testing.T) {
	t.Attr("rules", "W11")
	serve(t, nil, func(t *testing.T, r *rig) {
		const frames = 20_000
		flood, other := r.mute(t, "flood"), r.work(t, "other", 1)
		flood.say(hello("flood"))
		flood.say(registration(1))
		synctest.Wait()
		var stop atomic.Bool
		go func() {
			for range frames {
				if err := flood.stream.Send(flood.frame(&lessorv1.WorkerHeartbeat{Healthy: true})); err != nil {
					t.Error(err)
					break
				}
			}
			stop.Store(true)
		}()
		before := heap()
		answers := 0
		for answers < frames {
			m, err := flood.stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if m.GetHeartbeatAck() != nil {
				answers++
			}
			if answers%5000 == 0 {
				r.submitAll(t, 1)
				did(t, other.judge(completed(other.given(1)[0], "")))
			}
		}
		if grown := heap() - before; grown > 8<<20 {
			t.Errorf("the heap has grown by %d bytes", grown)
		}
		if !stop.Load() {
			t.Error("more answers than heartbeats")
		}
	})
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// frozenConn is a line that can be lost without anybody being told: nothing comes through any more, in either direction.
type frozenConn struct {
	net.Conn
	frozen atomic.Bool
}

func (c *frozenConn) Write(b []byte) (int, error) {
	if c.frozen.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *frozenConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.frozen.Load() {
			return n, err
		}
	}
}

// W8: a half open line is found out by the coordinator's pings, and its session is as if the stream had been cut.
func TestHalfOpenLine(t *testing.T) {
	t.Attr("rules", "W8")
	serve(t, nil, func(t *testing.T, r *rig) {
		var line *frozenConn
		conn, err := grpc.NewClient("passthrough:///coordinator", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				c, err := r.listener.DialContext(ctx)
				line = &frozenConn{Conn: c}
				return line, err
			}))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		own := r.workers
		r.workers = lessorv1.NewWorkerServiceClient(conn)
		tk := r.work(t, "w", 1)
		r.workers = own
		r.submitAll(t, 1)
		work := tk.given(1)
		synctest.Wait()
		line.frozen.Store(true)
		time.Sleep(pingAfter + pingTimeout + 5*time.Second)
		synctest.Wait()
		if w := r.worker(t, "w"); w != nil {
			t.Errorf("still listed: %v", w)
		}
		again := r.work(t, "w", 1)
		did(t, again.judge(completed(work[0], "")))
	})
}
