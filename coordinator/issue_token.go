package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// IssueToken issues a token in a store that no coordinator has open. Operators make their first
// token in this way. IssueToken also adds an entry to the audit. A *store.CommitError means that
// the store has failed; all other errors about the request are statuses.
func IssueToken(
	ctx context.Context, st store.Store, audience string, r auth.Request,
) (*lessorv1.CreateTokenResponse, error) {
	keyring, err := auth.Open(st, audience, keepAlone(st, r), func(string) {})
	if err != nil {
		return nil, err
	}
	token, t, err := keyring.Create(ctx, r, time.Now())
	if errors.As(err, new(*store.CommitError)) { // there is no coordinator to try again, and the caller looks after the disk
		return nil, err
	}
	if err != nil {
		return nil, refusal.Status(err)
	}
	return &lessorv1.CreateTokenResponse{Token: token, Info: convert.TokenProto(t)}, nil
}

// keeper returns a Keeper that writes with the commits of the engine, and adds the subject of the
// change to the audit entry of the call.
func keeper(e *engine.Engine) auth.Keeper {
	return func(ctx context.Context, tenant, about string, put func(*store.Batch)) error {
		if a := engine.EntryOf(ctx); a != nil {
			a.Object = about
		}
		return e.Keep(ctx, tenant, put)
	}
}

// keepAlone returns a Keeper that writes directly to a store that no coordinator has open.
func keepAlone(st store.Store, r auth.Request) auth.Keeper {
	return func(ctx context.Context, tenant, token string, put func(*store.Batch)) error {
		a := &records.Audit{
			Tenant:  tenant,
			At:      lease.WallOf(time.Now()),
			Subject: r.IssuedBy,
			Action:  "CreateToken",
			Object:  token,
			Outcome: records.OutcomeOK,
			Detail:  fmt.Sprintf("role:%v subject:%q", convert.RoleProto(r.Role), r.Subject),
		}
		err := st.View(func(rd store.Reader) (err error) {
			a.Serving, err = records.ServingClock(rd)
			return err
		})
		if err != nil {
			return err
		}
		var b store.Batch
		put(&b)
		records.PutAudit(&b, a)
		return st.Commit(ctx, &b)
	}
}
