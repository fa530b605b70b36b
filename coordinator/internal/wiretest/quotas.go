package wiretest

import (
	"context"
	"maps"
	"strconv"
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

// NoQuotas returns a quota book without limits.
func NoQuotas() *quota.Book {
	return quota.New(quota.Config{}, func(quota.Caller, *quota.Error, bool) {})
}

// OpenGate returns a gate that lets every caller in.
func OpenGate(t testing.TB) *gate.Gate {
	t.Helper()
	g, err := gate.New(gate.Deps{Quotas: NoQuotas()})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// ContextAfterGate returns the context that a call has after the gate has let it in.
func ContextAfterGate(ctx context.Context, t testing.TB) (in context.Context) {
	t.Helper()
	_, err := OpenGate(t).Unary(ctx, nil,
		&grpc.UnaryServerInfo{FullMethod: lessorv1.AdminService_GetStatus_FullMethodName},
		func(ctx context.Context, _ any) (any, error) {
			in = ctx
			return nil, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// WithQuotas runs a test against a coordinator with these quotas for every tenant.
func WithQuotas(t *testing.T, l quota.Limits, test func(t *testing.T, r *Rig)) {
	t.Helper()
	cfg := NoHeartbeats
	cfg.Quotas = quota.Config{Tenant: l}
	ServeWith(t, nil, cfg, test)
}

// WantQuotaError checks that err is the refusal of limit l, with all its details, and returns its
// wait. of is whose limit it is: "tenant" or "credential".
func WantQuotaError(t *testing.T, err error, l quota.Limit, of, value string) time.Duration {
	t.Helper()
	return wantQuotaError(t, err, map[string]string{"limit": l.String(), "of": of, "value": value})
}

// WantTasksQuota checks that err is the refusal, with all its details, of asked tasks to a tenant
// that has used of most.
func WantTasksQuota(t *testing.T, err error, most, used, asked int) {
	t.Helper()
	wantQuotaError(t, err, map[string]string{
		"limit": "tasks",
		"of":    "tenant",
		"value": strconv.Itoa(most),
		"used":  strconv.Itoa(used),
		"asked": strconv.Itoa(asked),
	})
}

// wantQuotaError checks that err is a refusal by a quota with this metadata, beside its code.
func wantQuotaError(t *testing.T, err error, want map[string]string) time.Duration {
	t.Helper()
	st := status.Convert(err)
	info, wait := detail.Of[*errdetails.ErrorInfo](st),
		detail.Of[*errdetails.RetryInfo](st).GetRetryDelay().AsDuration()
	name := strings.ToUpper(want["limit"])
	want["code"] = "E.QUOTA." + name
	if st.Code() != codes.ResourceExhausted || info.GetReason() != "QUOTA_"+name ||
		!maps.Equal(info.GetMetadata(), want) || wait <= 0 {
		t.Fatalf("%v (%v, wait %v), want a refusal with %v", err, info, wait, want)
	}
	return wait
}

// HasUse reports whether n of a limit are in use.
func HasUse(all []quota.Use, l quota.Limit, n int) bool {
	for _, u := range all {
		if u.Limit == l {
			return u.Used == n
		}
	}
	return false
}
