package session_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
)

// describeVerdict returns kind, verdict and reason of a verdict, and "replayed" if it is a replay.
func describeVerdict(v *lessorv1.ReportVerdict) string {
	words := []string{
		strings.TrimPrefix(v.GetKind().String(), "REPORT_KIND_"),
		strings.TrimPrefix(v.GetVerdict().String(), "VERDICT_"), strings.TrimPrefix(v.GetReason().String(), "REASON_"),
	}
	if v.GetReplayed() {
		words = append(words, "replayed")
	}
	return strings.Join(words, " ")
}

// W3: a frame may have many reports. Each is judged independently of the others. The verdicts are
// in the order of the reports, and have their ids.
func TestReportsAreIndependentAndInOrder(t *testing.T) {
	t.Attr("rules", "W3")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 5)
		r.SubmitAll(t, 5)
		a := worker.ReceiveAssignments(5)
		failed := &lessorv1.Report{Report: &lessorv1.Report_Fail{Fail: &lessorv1.FailRequest{
			TaskId: a[1].GetTask().GetTaskId(), LeaseId: a[1].GetLeaseId(), ReportId: "f",
			Error: &lessorv1.TaskError{Message: "broken", RetryAfter: durationpb.New(time.Minute)},
		}}}
		badField := wiretest.Completed(a[3], "")
		badField.GetComplete().ReportId = wiretest.Text(257)
		tooLarge := wiretest.Completed(a[3], "")
		tooLarge.GetComplete().Output = make([]byte, 1<<20+1)
		unknown := wiretest.Started(a[4])
		unknown.GetStart().TaskId, unknown.GetStart().LeaseId = lease.TaskID{Space: 1, Seq: 1 << 40}.String(), "x"
		crossed := wiretest.Started(a[4])
		crossed.GetStart().TaskId = a[0].GetTask().GetTaskId()
		reports := []*lessorv1.Report{
			wiretest.Started(a[0]), wiretest.Completed(a[0], "x"), wiretest.Completed(a[0], "x"),
			wiretest.Completed(a[0], "y"), wiretest.Started(a[0]),
			{},
			failed, wiretest.Released(a[2]), badField, tooLarge, unknown, crossed, wiretest.Completed(a[3], ""),
		}
		want := []string{
			"START COMMITTED NONE", "COMPLETE COMMITTED NONE", "COMPLETE COMMITTED NONE replayed", "COMPLETE REJECTED DUPLICATE_REPORT",
			"START CANCELLED ALREADY_REPORTED", "UNSPECIFIED REJECTED INVALID_REQUEST", "FAIL COMMITTED NONE", "RELEASE COMMITTED NONE",
			"COMPLETE REJECTED INVALID_REQUEST", "COMPLETE REJECTED RESULT_TOO_LARGE", "START REJECTED UNKNOWN_TASK",
			"START REJECTED INVALID_LEASE", "COMPLETE COMMITTED NONE",
		}
		got := worker.Report(reports...)
		if len(got) != len(want) {
			t.Fatalf("received %d verdicts on %d reports", len(got), len(want))
		}
		for i, v := range got {
			wiretest.WantEqual(t, fmt.Sprintf("verdict %d", i), describeVerdict(v), want[i])
			if v.GetServerTime() == nil || v.GetError() != nil {
				t.Errorf("verdict %d is %v, want a server time and no error", i, v)
			}
		}
		wiretest.WantEqual(t, "task", got[1].GetTaskId(), a[0].GetTask().GetTaskId())
		wiretest.WantEqual(t, "lease", got[1].GetLeaseId(), a[0].GetLeaseId())
		wiretest.WantEqual(t, "report_id", got[1].GetReportId(), reports[1].GetComplete().GetReportId())
		wiretest.WantEqual(t, "report_id", got[6].GetReportId(), "f")
		if got[0].GetExpiresIn().AsDuration() != 90*time.Second || got[6].GetRetryAt() == nil {
			t.Errorf("the Start got %v and the Fail %v, want expires_in and retry_at", got[0], got[6])
		}
		wiretest.WantContains(t, "detail", got[8].GetDetail(), "report_id: has 257 bytes; the limit is 256")
	})
}

// V1: a report of a kind that the coordinator does not know is REJECTED, and neither the verdict
// nor the metrics claim that it was of one of the known kinds.
func TestReportOfAnUnknownKind(t *testing.T) {
	t.Attr("rules", "V1")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		newer := &lessorv1.Report{}
		newer.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 99, protowire.BytesType), []byte("new")))
		for _, v := range worker.Report(&lessorv1.Report{}, newer) {
			wiretest.WantEqual(t, "verdict", describeVerdict(v), "UNSPECIFIED REJECTED INVALID_REQUEST")
			wiretest.WantEqual(t, "detail", v.GetDetail(), "report: has no kind that this coordinator knows")
		}
		r.WantMetric(t, `lessor_verdicts_total{kind="unspecified",reason="INVALID_REQUEST",verdict="REJECTED"}`, 2)
	})
}

// S7: a frame may have at most 1000 items, whatever the limit of batches is. A frame with more is
// refused as a whole.
func TestFramesAreBounded(t *testing.T) {
	t.Attr("rules", "S7")
	wiretest.ServeWith(t, nil, coordinator.Config{Limits: lease.Limits{Batch: 1}}, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		r.SubmitAll(t, 1)
		a := worker.ReceiveAssignments(1)[0]
		metrics := map[string]float64{}
		for i := range 65 {
			metrics[fmt.Sprint(i)] = 1
		}
		for _, tt := range []struct {
			payload proto.Message
			word    string
		}{
			{&lessorv1.Reports{Reports: slices.Repeat([]*lessorv1.Report{wiretest.Completed(a, "")}, 1001)}, "reports.reports: has 1001 items; the limit is 1000"},
			{
				&lessorv1.WorkerHeartbeat{Leases: slices.Repeat([]*lessorv1.HeartbeatRequest{wiretest.Renewal(a)}, 1001)},
				"heartbeat.leases: has 1001 items; the limit is 1000",
			},
			{&lessorv1.Feedback{Items: make([]*lessorv1.FeedbackItem, 1001)}, "feedback.items: has 1001 items; the limit is 1000"},
			{&lessorv1.WorkerHeartbeat{Metrics: metrics}, "heartbeat.metrics: has 65 entries; the limit is 64"},
			{&lessorv1.WorkerHeartbeat{Metrics: map[string]float64{wiretest.Text(257): 1}}, "heartbeat.metrics: has 257 bytes; the limit is 256"},
		} {
			worker.WantError(worker.Send(tt.payload), refusal.CodeInvalid, tt.word)
		}
		if w := r.ListedWorker(t, "w"); !w.GetHealthy() || stateOf(w) != "REGISTERED" {
			t.Errorf("refused frames changed the worker to %v", w)
		}
		full := slices.Repeat([]*lessorv1.Report{wiretest.Started(a)}, 1000)
		if n := len(worker.Report(full...)); n != 1000 {
			t.Errorf("received %d verdicts on 1000 reports", n)
		}
		wiretest.WantCommitted(t, worker.Report(wiretest.Completed(a, "")))
	})
}

// W4: a heartbeat renews exactly the leases that it names. Each of them gets a verdict.
func TestHeartbeatRenewsWhatItNames(t *testing.T) {
	t.Attr("rules", "W4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 2)
		r.SubmitAll(t, 2)
		a := worker.ReceiveAssignments(2)
		worker.Send(&lessorv1.Capacity{MaxParallel: 0}) // so that nothing is dispatched again
		for range 3 {
			time.Sleep(29 * time.Second)
			got := worker.Heartbeat(a[0], &lessorv1.Assignment{})
			if len(got) != 2 || got[0].GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED ||
				got[0].GetLeaseId() != a[0].GetLeaseId() || got[0].GetExpiresIn().AsDuration() != 90*time.Second {
				t.Fatalf("the heartbeat got %v, want COMMITTED with 90 s for the first lease", got)
			}
			if got[1].GetReason() != lessorv1.Reason_REASON_INVALID_REQUEST {
				t.Errorf("an entry without ids got %v, want INVALID_REQUEST", got[1])
			}
		}
		wantLeaseEnded(worker, a[1], lessorv1.Reason_REASON_LEASE_EXPIRED)
		wiretest.WantCommitted(t, worker.Report(wiretest.Completed(a[0], "")))
	})
}

// V4: if a verdict was lost with its stream, the worker repeats the report on its next stream, and
// gets the same verdict, replayed.
func TestVerdictIsReplayedOnANewStream(t *testing.T) {
	t.Attr("rules", "V4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		r.SubmitAll(t, 1)
		a := worker.ReceiveAssignments(1)[0]
		worker.Send(&lessorv1.Reports{Reports: []*lessorv1.Report{wiretest.Completed(a, "x")}})
		synctest.Wait()
		worker.Cut()
		got := r.OpenSession(t, "w", 1).Report(wiretest.Completed(a, "x"))
		wiretest.WantEqual(t, "the verdict", describeVerdict(got[0]), "COMPLETE COMMITTED NONE replayed")
	})
}

// A10: if a commit fails, each report of it gets an error in the place of its verdict, and the
// coordinator stops.
func TestNoVerdictWhereTheStoreFails(t *testing.T) {
	t.Attr("rules", "A10")
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New()
		r := wiretest.New(t, st)
		defer r.Close(t)
		worker := r.OpenSession(t, "w", 2)
		r.SubmitAll(t, 2)
		a := worker.ReceiveAssignments(2)
		synctest.Wait()
		st.SetHook(func(context.Context, *store.Batch, func()) error { return errors.New("EIO") })
		for i, v := range worker.Report(wiretest.Completed(a[0], ""), wiretest.Started(a[1])) {
			if v.GetError().GetCode() != refusal.CodeStore || v.GetError().GetRetryAfter() == nil || v.GetVerdict() != 0 ||
				v.GetLeaseId() != a[i].GetLeaseId() || v.GetTaskId() != a[i].GetTask().GetTaskId() || v.GetKind() == 0 {
				t.Errorf("verdict %d is %v, want an error with the ids of the report", i, v)
			}
		}
		wiretest.WantEqual(t, "code", wiretest.NextPayload[*lessorv1.Reset](worker).GetCode(), refusal.CodeStopping)
		if err := worker.WaitForEnd(); err != nil {
			t.Errorf("the stream ended with %v, want OK", err)
		}
		if err := <-r.Served; !errors.Is(err, engine.ErrStore) {
			t.Errorf("Serve returned %v, want ErrStore", err)
		}
	})
}

// W3: answers come in the order of the frames that they answer.
func TestAnswersComeInTheOrderOfFrames(t *testing.T) {
	t.Attr("rules", "W3")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		var ids []string
		for i := range 200 {
			switch i % 3 {
			case 0:
				ids = append(ids, worker.Send(&lessorv1.Reports{Reports: []*lessorv1.Report{{}}}))
			case 1:
				ids = append(ids, worker.Send(&lessorv1.WorkerHeartbeat{Healthy: true}))
			case 2:
				m := worker.NewFrame(&lessorv1.Reports{Reports: []*lessorv1.Report{{}, {}}})
				ids = append(ids, worker.SendFrame(m))
			}
		}
		for _, id := range ids {
			wiretest.WantEqual(t, "corr", worker.NextFrame().GetCorr(), id)
		}
		worker.WantNoFrame()
	})
}
