package coordinator

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
)

// A disk that fails is told as it is: there is no coordinator with which a caller could try again.
func TestIssueTokenOnAStoreThatFails(t *testing.T) {
	st, broken := memstore.New(), errors.New("input/output error")
	st.SetHook(func(context.Context, *store.Batch, func()) error { return broken })
	_, err := IssueToken(t.Context(), st, auth.DefaultAudience, auth.Request{
		Tenant: "default", Role: auth.Operator, Subject: "ann", Life: time.Hour, IssuedBy: "test",
	})
	if !errors.As(err, new(*store.CommitError)) || !errors.Is(err, broken) {
		t.Errorf("IssueToken: %v, want the CommitError of the store", err)
	}
}
