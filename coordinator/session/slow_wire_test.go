package session_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/memstore"
)

// W11: if a worker sends frames but never reads, the coordinator reads its frames until the buffers
// for the answers are full. Then it reads no more from this stream, and ends the stream after
// defaultSend. Without these bounds, each kind of frame would fill the coordinator's memory.
func TestWorkerThatNeverReads(t *testing.T) {
	t.Attr("rules", "W11")
	big := strings.Repeat("x", 100<<10)
	for name, tt := range map[string]struct {
		payload proto.Message
		most    int64 // more frames than the coordinator reads before the buffers are full
	}{
		"reports": {&lessorv1.Reports{Reports: []*lessorv1.Report{{}}}, 20_000},
		"reports with large ids": {&lessorv1.Reports{Reports: []*lessorv1.Report{
			{Report: &lessorv1.Report_Start{Start: &lessorv1.StartRequest{TaskId: big}}},
		}}, 100},
		"empty heartbeats": {&lessorv1.WorkerHeartbeat{Healthy: true}, 20_000},
		"bad frames":       {&lessorv1.Capacity{MaxParallel: convert.MaxParallel + 1}, 20_000},
	} {
		t.Run(name, func(t *testing.T) {
			wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
				slow, other := r.OpenUnreadStream(t, "slow"), r.OpenSession(t, "other", 1)
				slow.Send(wiretest.HandshakeOf("slow"))
				slow.Send(wiretest.Registration(1))
				synctest.Wait()
				began := time.Now()
				var sent atomic.Int64
				go func() {
					for sent.Load() <= 2*tt.most && slow.Stream.Send(slow.NewFrame(tt.payload)) == nil {
						sent.Add(1)
					}
				}()
				synctest.Wait()
				r.SubmitAll(t, 3)
				work := other.ReceiveAssignments(1)
				time.Sleep(defaultSend - time.Since(began) - time.Millisecond)
				wiretest.WantCommitted(t, other.Report(wiretest.Completed(work[0], "")))
				if r.ListedWorker(t, "slow") == nil {
					t.Error("the session has ended before its time")
				}
				synctest.Wait()
				// checked now, because the coordinator reads and drops more frames while the stream
				// ends
				if taken := sent.Load(); taken > tt.most {
					t.Errorf("%d frames were read from a worker that reads nothing, want at most %d", taken, tt.most)
				}
				time.Sleep(defaultSend / 6) // heartbeats are answered at a limited rate, and so fill the buffers later
				synctest.Wait()
				if w := r.ListedWorker(t, "slow"); w != nil {
					t.Errorf("the worker is still listed after %v: %v", time.Since(began), w)
				}
				var err error
				for err == nil {
					_, err = slow.Stream.Recv()
				}
				if status.Code(err) != codes.ResourceExhausted || refusal.CodeOf(err) != refusal.CodeTimeout {
					t.Errorf("the stream ended with %v, want RESOURCE_EXHAUSTED and %s", err, refusal.CodeTimeout)
				}
			})
		})
	}
}

// W11: a worker that reads slowly keeps its session, however many frames wait to be sent to it.
func TestWorkerThatReadsSlowly(t *testing.T) {
	t.Attr("rules", "W11")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		const frames, items = 30, 1000
		worker := r.OpenUnreadStream(t, "w")
		worker.Send(wiretest.HandshakeOf("w"))
		worker.Send(wiretest.Registration(1))
		report := &lessorv1.Reports{}
		for range items {
			report.Reports = append(report.Reports, wiretest.Started(nil))
		}
		go func() {
			for range frames {
				if err := worker.Stream.Send(worker.NewFrame(report)); err != nil {
					t.Error(err)
				}
			}
		}()
		for verdicts := 0; verdicts < frames; {
			time.Sleep(defaultSend / 3)
			m, err := worker.Stream.Recv()
			if err != nil {
				t.Fatalf("the stream ended after %d of %d frames: %v", verdicts, frames, err)
			}
			if m.GetVerdicts() != nil {
				verdicts++
			}
		}
	})
}

// W11: a worker that does not read its dispatches gets no more tasks, whatever it sends.
func TestWorkerThatReadsNoTasksGetsNoMore(t *testing.T) {
	t.Attr("rules", "W11")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		slow := r.OpenUnreadStream(t, "slow")
		slow.Send(wiretest.HandshakeOf("slow"))
		slow.Send(wiretest.Registration(8))
		for range 8 { // more than the flow-control windows hold
			r.Submit(t, func(s *lessorv1.TaskSpec) { s.Payload = make([]byte, 1<<20) })
		}
		for range 4 {
			time.Sleep(6 * time.Second)
			slow.Send(&lessorv1.Capacity{MaxParallel: 8})
		}
		synctest.Wait()
		res, err := r.Tasks.ListTasks(t.Context(), &lessorv1.ListTasksRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range res.GetTasks() {
			if task.GetAttempt() > 1 || task.GetState() != lessorv1.TaskState_TASK_STATE_READY {
				t.Errorf("a task was granted %d times and is %v, want at most once and READY", task.GetAttempt(), task.GetState())
			}
		}
	})
}

// W11: while too many bytes wait to be sent to a worker, it gets no more tasks, even if it has free
// slots. Other workers get them, and so does this worker as soon as it reads.
func TestWorkerWithAFullQueueGetsNoTasks(t *testing.T) {
	t.Attr("rules", "W11")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		slow := r.OpenUnreadStream(t, "slow")
		slow.Send(wiretest.HandshakeOf("slow"))
		slow.Send(wiretest.Registration(100))
		large := &lessorv1.Reports{Reports: []*lessorv1.Report{wiretest.Completed(&lessorv1.Assignment{}, strings.Repeat("x", 3<<20))}}
		for range 2 { // answers that were sent do not count any more, and make no room either
			slow.Send(large)
		}
		for answers := 0; answers < 2; {
			m, err := slow.Stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if m.GetVerdicts() != nil {
				answers++
			}
		}
		synctest.Wait()
		const tasks = 20
		for range tasks { // 1 MiB each; 4 MiB may wait
			r.Submit(t, func(s *lessorv1.TaskSpec) { s.Payload = make([]byte, 1<<20) })
		}
		synctest.Wait()
		first := r.ListedWorker(t, "slow").GetLeases()
		if first < 4 || first > 8 {
			t.Errorf("a worker that reads nothing holds %d tasks of 1 MiB, want 4 to 8", first)
		}
		other := r.OpenSession(t, "other", 2)
		for range 2 {
			other.ReceiveAssignments(1)
		}
		got := 0
		for got < tasks-2 {
			m, err := slow.Stream.Recv()
			if err != nil {
				t.Fatalf("the stream ended after %d tasks: %v", got, err)
			}
			got += len(m.GetDispatch().GetAssignments())
		}
	})
}

// workerWithFullBuffers returns a worker that has read only its accept. It holds four tasks, whose
// dispatches it has not read; the last dispatch waits in the coordinator.
func workerWithFullBuffers(t *testing.T, r *wiretest.Rig) (slow *wiretest.Worker, accept *lessorv1.SessionResponse) {
	t.Helper()
	slow = r.OpenUnreadStream(t, "slow")
	slow.Send(wiretest.HandshakeOf("slow"))
	accept, err := slow.Stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	slow.Send(wiretest.Registration(4))
	synctest.Wait()
	for range 4 { // the flow-control windows have no room for the last dispatch
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.Payload = make([]byte, 900<<10) })
		synctest.Wait()
	}
	return slow, accept
}

// W11, W8: if a dispatch waits until its lease has ended, it is not sent any more, neither when the
// worker reads again nor when it resumes its session. Otherwise the worker would run the task at
// the same time as the next attempt.
func TestTaskThatWaitedTooLongIsNotDispatched(t *testing.T) {
	t.Attr("rules", "W11 W8")
	for name, resumes := range map[string]bool{"read at last": false, "resumed": true} {
		t.Run(name, func(t *testing.T) {
			wiretest.ServeWith(t, nil, wiretest.NoHeartbeats, func(t *testing.T, r *wiretest.Rig) {
				slow, first := workerWithFullBuffers(t, r)
				time.Sleep(20 * time.Second) // by then all four leases have ended
				read := time.Now()
				receive := slow.Stream.Recv
				if resumes {
					slow.Cut()
					synctest.Wait()
					worker, _ := r.OpenSessionWith(t, "slow", 4, wiretest.ResumeFrom(first.GetAccept(), first.GetSeq()))
					receive = func() (*lessorv1.SessionResponse, error) { return worker.NextFrame(), nil }
				}
				for lost := 0; lost < 4; {
					m, err := receive()
					if err != nil {
						t.Fatal(err)
					}
					if m.GetCancel() != nil {
						lost++
					}
					for _, a := range m.GetDispatch().GetAssignments() {
						if a.GetAttempt() == 1 && !a.GetServerTime().AsTime().Before(read) {
							t.Errorf("frame %d dispatches %s for %v, although its lease has ended",
								m.GetSeq(), a.GetAttemptId(), a.GetExpiresIn().AsDuration())
						}
					}
				}
			})
		})
	}
}

// W8, W10: if a dispatch waits for the next stream of its session, and an operator takes its lease
// back in the meantime, it is not sent.
func TestTaskThatWasTakenBackIsNotDispatched(t *testing.T) {
	t.Attr("rules", "W8 W10")
	wiretest.ServeWith(t, nil, wiretest.NoHeartbeats, func(t *testing.T, r *wiretest.Rig) {
		slow, first := workerWithFullBuffers(t, r)
		r.Kick(t, &lessorv1.KickWorkerRequest{WorkerId: "slow", Requeue: true})
		slow.Cut()
		synctest.Wait()
		worker, _ := r.OpenSessionWith(t, "slow", 4, wiretest.ResumeFrom(first.GetAccept(), first.GetSeq()))
		for again := 0; again < 4; {
			for _, a := range worker.NextFrame().GetDispatch().GetAssignments() {
				if a.GetAttempt() == 1 {
					t.Errorf("%s was dispatched, although an operator took it back", a.GetAttemptId())
				}
				again++
			}
		}
	})
}

// W4, A5: with a store that is slow, heartbeats that come at the same time are judged together, and
// the reports behind them too. If each waited for the commit of the one before, a worker with many
// leases would lose them.
func TestHeartbeatsShareCommits(t *testing.T) {
	t.Attr("rules", "W4 A5")
	const beats, commit = 40, 100 * time.Millisecond
	st := &wiretest.SlowStore{Store: memstore.New()}
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		r.SubmitAll(t, beats)
		worker := r.OpenSession(t, "w", beats)
		work := worker.ReceiveAssignments(beats)
		worker.Report(wiretest.Started(work[0]))
		synctest.Wait()
		st.CommitTime.Store(int64(commit))
		began := time.Now()
		for _, a := range work {
			worker.Send(&lessorv1.WorkerHeartbeat{Healthy: true, Leases: []*lessorv1.HeartbeatRequest{wiretest.Renewal(a)}})
		}
		wiretest.WantCommitted(t, worker.Report(wiretest.Completed(work[0], "")))
		if took := time.Since(began); took > 3*commit {
			t.Errorf("a report behind %d heartbeats took %v, want at most three commits of %v", beats, took, commit)
		}
		st.CommitTime.Store(0)
	})
}
