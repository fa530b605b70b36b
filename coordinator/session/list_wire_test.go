package session_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// ListWorkers shows the worker, the state, the registration, the number of leases and the health of
// each session.
func TestListWorkersShowsSessions(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		connected := time.Now()
		worker := r.OpenStream(t, "w")
		info := &lessorv1.WorkerInfo{Name: "w", InstanceId: "i", Version: "1.2", Hostname: "h"}
		worker.Send(&lessorv1.Handshake{Protocol: 1, Worker: info})
		id := wiretest.NextPayload[*lessorv1.Accept](worker).GetSessionId()
		time.Sleep(time.Second)
		m := wiretest.Registration(2)
		m.PoolId = "gpu"
		m.Queues, m.WorkspaceId, m.Capabilities.Types = []string{"q", "p"}, "space", []string{"a"}
		worker.Send(m)
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.WorkspaceId, s.Type = "space", "a" })
		worker.ReceiveAssignments(1)
		time.Sleep(time.Second)
		worker.SendHeartbeat(&lessorv1.WorkerHeartbeat{Healthy: false, Metrics: map[string]float64{"cpu_pct": 12.5}})
		got := r.ListedWorker(t, "w")
		if at := got.GetConnectedAt().AsTime(); !at.Equal(connected) {
			t.Errorf("connected at %v, want %v", at, connected)
		}
		if at := got.GetLastSeenAt().AsTime(); !at.Equal(connected.Add(2 * time.Second)) {
			t.Errorf("last seen at %v, want %v", at, connected.Add(2*time.Second))
		}
		got.ConnectedAt, got.LastSeenAt = nil, nil
		want := &lessorv1.Worker{
			WorkerId: "w", SessionId: id, Info: info, State: lessorv1.WorkerState_WORKER_STATE_HEARTBEATING,
			Capabilities: m.GetCapabilities(), WorkspaceId: "space", Queues: []string{"q", "p"}, Leases: 1, PoolId: "gpu",
			Metrics:      map[string]float64{"cpu_pct": 12.5},
			Health:       lessorv1.WorkerHealth_WORKER_HEALTH_UNHEALTHY,
			HealthDetail: "the worker reports that it is not healthy: no new work",
		}
		if !proto.Equal(got, want) {
			t.Errorf("listed as\n%v, want\n%v", got, want)
		}
	})
}

// ListWorkers lists the sessions in the order of the workers' names, in pages, and can select those
// of one queue.
func TestListWorkersPages(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		for _, name := range []string{"c", "a", "d", "b"} {
			worker := r.OpenStream(t, name)
			worker.Handshake()
			m := wiretest.Registration(1)
			if name == "d" {
				m.Queues = []string{"other"}
			}
			worker.Send(m)
			worker.Heartbeat()
		}
		list := func(req *lessorv1.ListWorkersRequest) (names string) {
			for {
				res, err := r.Admin.ListWorkers(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				for _, w := range res.GetWorkers() {
					names += w.GetWorkerId()
				}
				if req.PageToken = res.GetNextPageToken(); req.GetPageToken() == "" {
					return names
				}
				names += "|"
			}
		}
		wiretest.WantEqual(t, "all", list(&lessorv1.ListWorkersRequest{}), "abcd")
		wiretest.WantEqual(t, "by two", list(&lessorv1.ListWorkersRequest{PageSize: 2}), "ab|cd")
		wiretest.WantEqual(t, "of a queue", list(&lessorv1.ListWorkersRequest{Queue: "q", PageSize: 2}), "ab|c")
		wiretest.WantEqual(t, "of no queue", list(&lessorv1.ListWorkersRequest{Queue: "none"}), "")
		status, err := r.Admin.GetStatus(t.Context(), &lessorv1.GetStatusRequest{})
		if err != nil || status.GetSessions() != 4 {
			t.Errorf("the status is %v (%v), want 4 sessions", status, err)
		}
	})
}
