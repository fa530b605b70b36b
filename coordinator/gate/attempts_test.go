package gate

import (
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

	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Limits of package preauth: attemptBurst is how many failed attempts of one address are answered
// without delay, and longestAttempt is the longest delay.
const (
	attemptBurst   = 1000
	longestAttempt = 2 * time.Second
)

// X5: failed attempts of one address are answered at a limited rate. An attempt that would have to
// wait too long is refused at once, with a wait. Good credentials, also from that address, and
// other addresses are not delayed.
func TestFailedAttemptsArePaced(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		g, token := newKeyedGate(t, Auth{})
		try := func(ip, token string) error {
			ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP(ip), Port: 4711}})
			ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", "Bearer "+token))
			_, _, err := g.admit(ctx, lessorv1.AdminService_GetStatus_FullMethodName)
			return err
		}
		const evil, held = "2001:db8::1", 200 // 100 each second, for two seconds
		begin := time.Now()
		for range attemptBurst {
			if code := status.Code(try(evil, "guess")); code != codes.Unauthenticated {
				t.Fatalf("an attempt of the burst: %v, want UNAUTHENTICATED", code)
			}
		}
		if took := time.Since(begin); took != 0 {
			t.Fatalf("the burst took %v, want no delay", took)
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
		mu.Lock() // the delayed attempts continue when time passes
		if n := answered[codes.ResourceExhausted]; n != 2*held || len(answered) != 1 {
			t.Errorf("attempts that ended at once: %v, want %d with RESOURCE_EXHAUSTED", answered, 2*held)
		}
		mu.Unlock()
		for ip, token := range map[string]string{evil: token, "2001:db8::2": token, "192.0.2.1": token, "2001:db8:0:1::1": "guess", "192.0.2.2": "guess"} {
			if err := try(ip, token); (err != nil) != (token == "guess") || time.Since(begin) != 0 {
				t.Errorf("an attempt from %s with a good credential %v: %v after %v, want no delay",
					ip, token != "guess", err, time.Since(begin))
			}
		}
		st := status.Convert(try("2001:db8::ffff", "guess")) // another address of the same network
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
