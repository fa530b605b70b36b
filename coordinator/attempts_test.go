package coordinator

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// attemptBurst is how many failed attempts of an address are answered at once, and longestAttempt the longest wait for an answer (package porch).
const (
	attemptBurst   = 1000
	longestAttempt = 2 * time.Second
)

// X5: failed attempts of an address are answered at their pace, and those that would wait too long are refused with the time after which one is heard;
// a good credential, also from that address, and other addresses do not wait.
func TestFailedAttemptsArePaced(t *testing.T) {
	t.Attr("rules", "X5")
	guardedBy(t, Auth{}, func(t *testing.T, r *rig) {
		token, _ := r.issue(t, "acme", auth.Viewer)
		try := func(ip, token string) error {
			ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP(ip), Port: 4711}})
			ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", "Bearer "+token))
			_, _, err := r.door.admit(ctx, lessorv1.AdminService_GetStatus_FullMethodName)
			return err
		}
		const evil, held = "2001:db8::1", 200 // 100 a second, for two seconds
		begin := time.Now()
		for range attemptBurst {
			if code := status.Code(try(evil, "guess")); code != codes.Unauthenticated {
				t.Fatal(code)
			}
		}
		if took := time.Since(begin); took != 0 {
			t.Fatalf("the burst took %v", took)
		}
		var mu sync.Mutex
		var wg sync.WaitGroup
		answered := map[codes.Code]int{}
		for range 3 * held {
			wg.Go(func() {
				err := try(evil, "guess")
				mu.Lock()
				defer mu.Unlock()
				answered[status.Code(err)]++
			})
		}
		synctest.Wait()
		mu.Lock() // the others go on when time passes
		if n := answered[codes.ResourceExhausted]; n != 2*held || len(answered) != 1 {
			t.Errorf("%v, want %d refused at once", answered, 2*held)
		}
		mu.Unlock()
		for ip, token := range map[string]string{evil: token, "2001:db8::2": token, "192.0.2.1": token, "2001:db8:0:1::1": "guess", "192.0.2.2": "guess"} {
			if err := try(ip, token); (err != nil) != (token == "guess") || time.Since(begin) != 0 {
				t.Errorf("%s: %v after %v", ip, err, time.Since(begin))
			}
		}
		st := status.Convert(try("2001:db8::ffff", "guess")) // the same network
		if info, ok := st.Details()[0].(*errdetails.ErrorInfo); !ok || info.GetMetadata()["code"] != refusal.CodeQuotaAttempts || info.GetReason() != "QUOTA_ATTEMPTS" {
			t.Errorf("%v, want %s", st.Details(), refusal.CodeQuotaAttempts)
		}
		if wait, ok := st.Details()[1].(*errdetails.RetryInfo); !ok || wait.GetRetryDelay().AsDuration() <= longestAttempt {
			t.Errorf("%v, want a wait of more than %v", st.Details(), longestAttempt)
		}
		wg.Wait()
		if n := answered[codes.Unauthenticated]; n != held || time.Since(begin) != longestAttempt {
			t.Errorf("%d answered within %v, want %d within %v", n, time.Since(begin), held, longestAttempt)
		}
	})
}

// X5: reports that no worker says that obeys the protocol are answered at a pace, also those that can not be read; others' and good ones do not wait.
func TestRejectedReportsArePaced(t *testing.T) {
	t.Attr("rules", "X5")
	guardedBy(t, Auth{}, func(t *testing.T, r *rig) {
		ctx, other := r.with(t, "acme"), r.with(t, "other")
		if _, err := r.tasks.SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q"}}); err != nil {
			t.Fatal(err)
		}
		given, err := r.workers.Lease(ctx, &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}})
		if err != nil {
			t.Fatal(err)
		}
		took := func(ctx context.Context, taskID, leaseID string, want lessorv1.Verdict) time.Duration {
			begin := time.Now()
			res, err := r.workers.Start(ctx, &lessorv1.StartRequest{TaskId: taskID, LeaseId: leaseID})
			if err != nil || res.GetVerdict() != want {
				t.Fatalf("%v (%v), want %v", res, err, want)
			}
			return time.Since(begin)
		}
		for i := range rejectPace.Burst + 5 {
			want := time.Duration(0)
			if i >= rejectPace.Burst {
				want = time.Second / 100
			}
			if d := took(ctx, "nobody's", "forged", lessorv1.Verdict_VERDICT_REJECTED); d != want {
				t.Fatalf("report %d took %v, want %v", i, d, want)
			}
		}
		a := given.GetAssignments()[0]
		if d := took(ctx, a.GetTask().GetTaskId(), a.GetLeaseId(), lessorv1.Verdict_VERDICT_COMMITTED); d != 0 {
			t.Errorf("a good report took %v", d)
		}
		if d := took(other, "nobody's", "forged", lessorv1.Verdict_VERDICT_REJECTED); d != 0 {
			t.Errorf("another's took %v", d)
		}
	})
}

// X5: who does not wait although a quota is used up gets its refusals at a pace, with the wait that is left; another tenant's call does not wait.
func TestRefusalsByQuotasArePaced(t *testing.T) {
	t.Attr("rules", "X5")
	cfg := Config{Auth: &Auth{}, Quotas: quota.Config{Tenants: map[string]quota.Limits{"loud": {Calls: quota.Rate{PerSecond: 1.0 / 60}}}}}
	serveWith(t, nil, cfg, func(t *testing.T, r *rig) {
		loud, quiet := r.with(t, "loud"), r.with(t, "quiet")
		call := func(ctx context.Context) (time.Duration, error) {
			begin := time.Now()
			_, err := r.admin.GetStatus(ctx, &lessorv1.GetStatusRequest{})
			return time.Since(begin), err
		}
		if _, err := call(loud); err != nil {
			t.Fatal(err)
		}
		for i := range rejectPace.Burst + 50 {
			took, err := call(loud)
			want := time.Duration(0)
			if i >= rejectPace.Burst {
				want = time.Second / 100
			}
			left := time.Minute - time.Duration(max(int(i)-int(rejectPace.Burst)+1, 0))*time.Second/100
			if wait := overQuota(t, err, quota.Calls, "tenant", "0.016666666666666666/s"); took != want || wait != left {
				t.Fatalf("refusal %d took %v with a wait of %v, want %v and %v", i, took, wait, want, left)
			}
		}
		if took, err := call(quiet); err != nil || took != 0 {
			t.Errorf("another's call took %v: %v", took, err)
		}
	})
}
