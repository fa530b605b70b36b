package coordinator

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/quota"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
)

// noQuotas returns a quota book without limits.
func noQuotas() *quota.Book {
	return quota.New(quota.Config{}, func(quota.Caller, *quota.Error, bool) {})
}

// openGate returns a gate that lets every caller in.
func openGate(t testing.TB) *gate.Gate {
	t.Helper()
	g, err := gate.New(gate.Deps{Quotas: noQuotas()})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// contextAfterGate returns the context that a call has after the gate has let it in.
func contextAfterGate(ctx context.Context, t testing.TB) (in context.Context) {
	t.Helper()
	_, err := openGate(t).Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: lessorv1.AdminService_GetStatus_FullMethodName},
		func(ctx context.Context, _ any) (any, error) {
			in = ctx
			return nil, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// withQuotas runs a test against a coordinator with these quotas for every tenant.
func withQuotas(t *testing.T, l quota.Limits, test func(t *testing.T, r *rig)) {
	t.Helper()
	cfg := noHeartbeats
	cfg.Quotas = quota.Config{Tenant: l}
	serveWith(t, nil, cfg, test)
}

// wantQuotaError checks that err is the refusal of limit l, with all its details, and returns its wait. of is whose limit it is: "tenant" or "credential".
func wantQuotaError(t *testing.T, err error, l quota.Limit, of, value string) time.Duration {
	t.Helper()
	st := status.Convert(err)
	info, wait := detail.Of[*errdetails.ErrorInfo](st), detail.Of[*errdetails.RetryInfo](st).GetRetryDelay().AsDuration()
	name := strings.ToUpper(l.String())
	want := map[string]string{"code": "E.QUOTA." + name, "limit": l.String(), "of": of, "value": value}
	if st.Code() != codes.ResourceExhausted || info.GetReason() != "QUOTA_"+name || !maps.Equal(info.GetMetadata(), want) || wait <= 0 {
		t.Fatalf("%v (%v, wait %v), want a refusal with %v", err, info, wait, want)
	}
	return wait
}
