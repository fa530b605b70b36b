package coordinator_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// S3: the report_id of a report, and the worker's own times, are in the log, over a call and on a
// stream alike; nothing depends on them.
func TestReportsAreLogged(t *testing.T) {
	t.Attr("rules", "S3")
	at := func(year int) *timestamppb.Timestamp {
		return timestamppb.New(time.Date(year, 1, 2, 3, 4, 5, 0, time.UTC))
	}
	messages := func(a *lessorv1.Assignment) (*lessorv1.StartRequest, *lessorv1.HeartbeatRequest, *lessorv1.CompleteRequest) {
		id, lease := a.GetTask().GetTaskId(), a.GetLeaseId()
		return &lessorv1.StartRequest{TaskId: id, LeaseId: lease, StartedAt: at(2031)},
			&lessorv1.HeartbeatRequest{TaskId: id, LeaseId: lease, HeartbeatAt: at(2032)},
			&lessorv1.CompleteRequest{TaskId: id, LeaseId: lease, CompletedAt: at(2033), ReportId: "r7"}
	}
	wants := func(id string) []string {
		var all []string
		for i, corr := range []string{"", "", `"corr":"r7",`} {
			all = append(all, fmt.Sprintf(`"id":"%s",%s"worker_time":"%d-01-02T03:04:05Z"`, id, corr, 2031+i))
		}
		return all
	}
	check := func(t *testing.T, r *wiretest.Rig, all ...string) {
		t.Helper()
		synctest.Wait()
		for _, want := range all {
			if n := strings.Count(r.Log.String(), want); n != 1 {
				t.Errorf("%d lines of the log have %s, want one:\n%s", n, want, r.Log.String())
			}
		}
	}
	t.Run("calls", func(t *testing.T) {
		wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
			id := r.Submit(t, nil).GetTaskId()
			start, beat, complete := messages(r.Lease(t))
			_, err1 := r.Workers.Start(t.Context(), start)
			_, err2 := r.Workers.Heartbeat(t.Context(), beat)
			_, err3 := r.Workers.Complete(t.Context(), complete)
			if err1 != nil || err2 != nil || err3 != nil {
				t.Fatal(err1, err2, err3)
			}
			check(t, r, wants(id)...)
		})
	})
	t.Run("stream", func(t *testing.T) {
		wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
			worker := r.OpenSession(t, "w", 1)
			id := r.Submit(t, nil).GetTaskId()
			start, beat, complete := messages(worker.ReceiveAssignments(1)[0])
			renew := worker.NewFrame(&lessorv1.WorkerHeartbeat{Healthy: true, Leases: []*lessorv1.HeartbeatRequest{beat}})
			renew.Ts = at(2034)
			worker.SendFrame(renew)
			worker.Send(&lessorv1.Reports{Reports: []*lessorv1.Report{
				{Report: &lessorv1.Report_Start{Start: start}}, {Report: &lessorv1.Report_Complete{Complete: complete}},
			}})
			check(t, r, append(wants(id), `"worker_time":"2034-01-02T03:04:05Z"`)...)
		})
	})
}
