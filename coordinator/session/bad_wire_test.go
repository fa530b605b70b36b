package session_test

import (
	"context"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// W1, W14: a stream without a handshake is reset after handshakeWithin, even if the worker sends
// other frames.
func TestStreamWithoutAHandshake(t *testing.T) {
	t.Attr("rules", "W1 W14")
	for _, sendsFrames := range []bool{false, true} {
		wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
			worker := r.OpenStream(t, "w")
			for range 9 {
				time.Sleep(handshakeWithin / 10)
				if sendsFrames {
					worker.Send(&lessorv1.Error{})
				}
			}
			worker.WantNoFrame()
			time.Sleep(handshakeWithin / 10)
			wiretest.WantEqual(t, "code", wiretest.NextPayload[*lessorv1.Reset](worker).GetCode(), refusal.CodeTimeout)
			if err := worker.WaitForEnd(); err != nil {
				t.Errorf("the stream ended with %v, want OK", err)
			}
		})
	}
}

// A number of slots out of range is refused with the name of the field. 0 slots mean no new tasks.
// Other workers are not affected.
func TestSlotsAtTheirLimits(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker, other := r.OpenSession(t, "w", 1), r.OpenSession(t, "other", 1)
		worker.WantError(worker.Send(&lessorv1.Capacity{MaxParallel: 1 << 31}), refusal.CodeInvalid,
			"capacity.max_parallel: is 2147483648; the range is 0 to 10000")
		worker.WantError(worker.Send(wiretest.Registration(1<<31)), refusal.CodeInvalid,
			"max_parallel: is 2147483648; the range is 1 to 10000")
		worker.Send(&lessorv1.Capacity{MaxParallel: 0})
		worker.WantNoFrame()
		r.SubmitAll(t, 2)
		wiretest.WantCommitted(t, other.Report(wiretest.Completed(other.ReceiveAssignments(1)[0], "")))
		wiretest.WantCommitted(t, other.Report(wiretest.Completed(other.ReceiveAssignments(1)[0], "")))
		worker.WantNoFrame()
	})
}

// V2, V3: a report under a lease of another task or under a forged lease is REJECTED. The holder of
// the lease can still report.
func TestReportsUnderForeignLeases(t *testing.T) {
	t.Attr("rules", "V2 V3")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker, stranger := r.OpenSession(t, "w", 2), r.OpenSession(t, "stranger", 1)
		stranger.Send(&lessorv1.Capacity{MaxParallel: 0})
		stranger.WantNoFrame()
		r.SubmitAll(t, 2)
		work := worker.ReceiveAssignments(2)
		mixed := &lessorv1.Assignment{Task: work[0].GetTask(), LeaseId: work[1].GetLeaseId()}
		forged := &lessorv1.Assignment{Task: work[0].GetTask(), LeaseId: "A" + work[0].GetLeaseId()[1:] + "A"}
		unknown := &lessorv1.Assignment{Task: &lessorv1.Task{TaskId: "t0000000000000000"}, LeaseId: "x"}
		for i, v := range stranger.Report(wiretest.Completed(mixed, ""), wiretest.Completed(forged, ""), wiretest.Completed(unknown, "")) {
			want := []lessorv1.Reason{
				lessorv1.Reason_REASON_INVALID_LEASE, lessorv1.Reason_REASON_INVALID_LEASE, lessorv1.Reason_REASON_UNKNOWN_TASK,
			}[i]
			if v.GetVerdict() != lessorv1.Verdict_VERDICT_REJECTED || v.GetReason() != want {
				t.Errorf("report %d: %v, want REJECTED / %v", i, v, want)
			}
		}
		wiretest.WantCommitted(t, worker.Report(wiretest.Completed(work[0], ""), wiretest.Completed(work[1], "")))
	})
}

// W11: a worker that sends heartbeats without a pause, and reads the answers, delays only its own
// stream. The coordinator handles heartbeats at a limited rate, its memory does not grow, and other
// workers do not wait.
func TestFloodOfHeartbeats(t *testing.T) {
	t.Attr("rules", "W11")
	const duration = 2 * time.Second
	for name, leases := range map[string]int{"empty": 0, "full": 1000} {
		t.Run(name, func(t *testing.T) {
			wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
				flood, other := r.OpenUnreadStream(t, "flood"), r.OpenSession(t, "other", 1)
				flood.Send(wiretest.HandshakeOf("flood"))
				flood.Send(wiretest.Registration(1))
				flood.Send(&lessorv1.Capacity{MaxParallel: 0})
				synctest.Wait()
				takes := beatTakes + time.Duration(leases)*leaseTakes
				most := int64((beatsAhead + duration + beatsJudged) / takes)
				before, began := heapBytes(), time.Now()
				answered := floodHeartbeats(flood, leases, 4*most)
				for time.Since(began) < duration {
					time.Sleep(duration / 4)
					r.SubmitAll(t, 1)
					asked := time.Now()
					wiretest.WantCommitted(t, other.Report(wiretest.Completed(other.ReceiveAssignments(1)[0], "")))
					if waited := time.Since(asked); waited > 0 {
						t.Errorf("another worker has waited %v for its task and its verdict, want no wait", waited)
					}
				}
				if n := answered.Load(); n < most*9/10 || n > most+2 {
					t.Errorf("%d heartbeats were answered, want %d to %d", n, most*9/10, most+2)
				}
				if grown := heapBytes() - before; grown > 8<<20 {
					t.Errorf("the heap has grown by %d bytes, want at most %d", grown, 8<<20)
				}
			})
		})
	}
}

// W8, W11: if a stream is lost while a heartbeat waits for room for its answer, the heartbeats of
// the session's next stream do not wait for it.
func TestNewStreamDoesNotWaitForHeartbeatsOfTheOld(t *testing.T) {
	t.Attr("rules", "W8 W11")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		slow := r.OpenUnreadStream(t, "w")
		slow.Send(wiretest.HandshakeOf("w"))
		m, err := slow.Stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		slow.Send(wiretest.Registration(1))
		go func() {
			// until the stream is cut
			for slow.Stream.Send(slow.NewFrame(manyBeats(100, strings.Repeat("x", 200)))) == nil {
			}
		}()
		synctest.Wait()
		slow.Cut()
		synctest.Wait()
		worker, _ := r.OpenSessionWith(t, "w", 1, wiretest.ResumeFrom(m.GetAccept(), 1))
		last := worker.NewFrame(manyBeats(1, "x"))
		last.Id = "last"
		worker.SendFrame(last)
		for worker.NextFrame().GetCorr() != last.GetId() { // the answers to earlier heartbeats come first
		}
	})
}

// manyBeats returns a heartbeat that names this number of leases, all with the unknown id id.
func manyBeats(leases int, id string) *lessorv1.WorkerHeartbeat {
	beat := &lessorv1.WorkerHeartbeat{Healthy: true}
	for range leases {
		beat.Leases = append(beat.Leases, &lessorv1.HeartbeatRequest{TaskId: "t0000000000000000", LeaseId: id})
	}
	return beat
}

// floodHeartbeats sends up to most heartbeats without a pause, each with this number of leases.
// answered counts the answers.
func floodHeartbeats(worker *wiretest.Worker, leases int, most int64) (answered *atomic.Int64) {
	go func() {
		for range most {
			if worker.Stream.Send(worker.NewFrame(manyBeats(leases, "x"))) != nil {
				return
			}
		}
	}()
	answered = &atomic.Int64{}
	go func() {
		for {
			m, err := worker.Stream.Recv()
			if err != nil {
				return
			}
			if m.GetHeartbeatAck() != nil {
				answered.Add(1)
			}
		}
	}()
	return answered
}

// heapBytes returns the size of the heap after a garbage collection.
func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// frozenConn is a connection that can be frozen. While it is frozen, it loses all bytes in both
// directions and returns no error.
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

// W8: the coordinator notices by its pings that a connection is dead, and ends the stream. The
// worker can continue on a new stream.
func TestDeadConnectionIsNoticed(t *testing.T) {
	t.Attr("rules", "W8")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		var wire *frozenConn
		conn, err := grpc.NewClient("passthrough:///coordinator", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				c, err := r.Listener.DialContext(ctx)
				wire = &frozenConn{Conn: c}
				return wire, err
			}))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		own := r.Workers
		r.Workers = lessorv1.NewWorkerServiceClient(conn)
		worker := r.OpenSession(t, "w", 1)
		r.Workers = own
		r.SubmitAll(t, 1)
		work := worker.ReceiveAssignments(1)
		synctest.Wait()
		wire.frozen.Store(true)
		time.Sleep(pingAfter + pingTimeout + 5*time.Second)
		synctest.Wait()
		if w := r.ListedWorker(t, "w"); w != nil {
			t.Errorf("the worker is still listed: %v", w)
		}
		again := r.OpenSession(t, "w", 1)
		wiretest.WantCommitted(t, again.Report(wiretest.Completed(work[0], "")))
	})
}
