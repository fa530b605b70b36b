package matrix

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/auth"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
)

// credential is what the request of a cell authenticates with.
type credential struct {
	name    string
	headers []string // values of the authorization header
	tenant  string   // tenant and role of a good one
	role    auth.Role
	problem auth.Problem // why it must be refused; empty for a good one
	owned   bool         // it must be refused, but the coordinator knows its owner, and tells it by the audit
	used    bool         // it is good at first, and becomes bad while a stream uses it
}

// Names of credentials that other code refers to.
const (
	operator = "operator"
	stranger = "another tenant's"
)

// roles are the single roles.
var roles = []auth.Role{auth.Worker, auth.Producer, auth.Operator, auth.Viewer}

func bearer(token string) []string { return []string{"Bearer " + token} }

// credentials returns all credentials except task tokens. Each role has a good one, which is of a
// wrong role for some places.
func (e *environment) credentials() []credential {
	all := []credential{
		{name: "none", problem: auth.Missing},
		{name: "malformed", headers: bearer("secret"), problem: auth.Malformed},
		{name: "a task token", headers: bearer(e.tokens[acme+" task"]), problem: auth.Misplaced},
		{name: "of another scheme", headers: []string{"Basic " + e.tokens[acme+" operator"]}, problem: auth.Malformed},
		{name: "sent twice", headers: append(bearer(e.tokens[acme+" operator"]), bearer(e.tokens[evil+" operator"])...), problem: auth.Malformed},
		{name: "expired", headers: bearer(e.tokens["expired"]), problem: auth.Expired, owned: true},
		{name: "revoked", headers: bearer(e.tokens["revoked"]), problem: auth.Revoked, owned: true},
		{name: "of another coordinator", headers: bearer(e.tokens["foreign"]), problem: auth.UnknownKey},
		{name: "of a retired key", headers: bearer(e.tokens["retired"]), problem: auth.UnknownKey, owned: true},
		{name: "with another signature", headers: bearer(e.tokens["forged"]), problem: auth.BadSignature},
		{name: "for another audience", headers: bearer(e.tokens["audience"]), problem: auth.BadAudience, owned: true},
		{name: "that nobody knows", headers: bearer(e.tokens["unknown"]), problem: auth.Unknown, owned: true},
		{name: stranger, headers: bearer(e.tokens[evil+" operator"]), tenant: evil, role: auth.Operator},
	}
	for _, role := range roles {
		all = append(all, credential{
			name: role.String(), headers: bearer(e.tokens[acme+" "+role.String()]),
			tenant: acme, role: role,
		})
	}
	return all
}

// ending lists credentials that become bad while a stream uses them.
var ending = []credential{
	{name: "expired while it is used", problem: auth.Expired, used: true},
	{name: "revoked while it is used", problem: auth.Revoked, used: true},
}

// createEndingCredential creates such a credential; end makes it bad.
func (h *host) createEndingCredential(c credential) (alive credential, end func()) {
	h.t.Helper()
	h.auditDiffers = true
	ctx := h.as(h.tokens[acme+" operator"])
	const life = 2 * time.Second
	made := must(h.auth.CreateToken(ctx, &lessorv1.CreateTokenRequest{
		Role: lessorv1.Role_ROLE_OPERATOR, Subject: acme + "-ending", Ttl: durationpb.New(life),
	}))(h.t)
	h.secrets = append(h.secrets, secretsOf(made.GetToken())...)
	c.headers, c.tenant = bearer(made.GetToken()), acme
	return c, func() {
		h.t.Helper()
		if c.problem == auth.Expired {
			time.Sleep(life)
		} else {
			must(h.auth.RevokeToken(ctx, &lessorv1.RevokeTokenRequest{TokenId: made.GetInfo().GetTokenId()}))(h.t)
		}
		synctest.Wait()
		h.effects() // takes the changes of this out of the account
	}
}

// issue makes a token in the store, without a coordinator.
func (e *environment) issue(t *testing.T, st store.Store, name string, r auth.Request) (id string) {
	t.Helper()
	audience := ""
	if name == "audience" {
		audience = "elsewhere"
	}
	made := must(coordinator.IssueToken(t.Context(), st, audience, r))(t)
	e.tokens[name] = made.GetToken()
	return made.GetInfo().GetTokenId()
}

// issueAll issues the good tokens of both tenants, and tokens that are bad or will expire.
func (e *environment) issueAll(t *testing.T, st store.Store) {
	t.Helper()
	for _, tenant := range []string{acme, evil} {
		for _, role := range roles {
			name := tenant + " " + role.String()
			e.parties[tenant]["token"] = e.issue(t, st, name,
				auth.Request{Tenant: tenant, Role: role, Subject: tenant + "-" + role.String()})
		}
	}
	bad := auth.Request{Tenant: acme, Role: auth.Operator, Subject: acme + "-bad"}
	e.issue(t, st, "audience", bad)
	e.issue(t, memstore.New(), "foreign", bad)
	bad.Life = time.Minute
	e.issue(t, st, "expired", bad)
	good, other := e.tokens[acme+" operator"], e.tokens[acme+" viewer"]
	e.tokens["forged"] = good[:strings.LastIndex(good, ".")] + other[strings.LastIndex(other, "."):]
}

// retire issues a token whose key is then retired. It must come first: the others get a newer key.
func (e *environment) retire(t *testing.T, st *memstore.Store) {
	t.Helper()
	e.issue(t, st, "retired", auth.Request{Tenant: acme, Role: auth.Operator, Subject: acme + "-bad"})
	h := e.openOver(t, st)
	defer h.close()
	must(h.auth.RotateKey(h.as(e.tokens["retired"]), &lessorv1.RotateKeyRequest{RetireAfter: durationpb.New(0)}))(t)
}

// revoke issues a token, uses it, and revokes it.
func (e *environment) revoke(t *testing.T, h *host, name string, use func(ctx context.Context)) {
	t.Helper()
	ctx := h.as(e.tokens[acme+" operator"])
	made := must(h.auth.CreateToken(ctx,
		&lessorv1.CreateTokenRequest{Role: lessorv1.Role_ROLE_OPERATOR, Subject: acme + "-bad"}))(t)
	e.tokens[name] = made.GetToken()
	use(h.as(made.GetToken()))
	must(h.auth.RevokeToken(ctx, &lessorv1.RevokeTokenRequest{TokenId: made.GetInfo().GetTokenId()}))(t)
}

// secretsOf returns the secret parts of a token: everything except the id of its key. A task token
// is secret as a whole.
func secretsOf(token string) []string {
	if parts := strings.Split(token, "."); len(parts) > 1 {
		return parts[1:]
	}
	return []string{token}
}
