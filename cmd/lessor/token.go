package main

import (
	"cmp"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/alecthomas/kong"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/gate"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
)

// tokenCmd is lessor token.
type tokenCmd struct {
	Create tokenCreateCmd `cmd:"" help:"Issue a token."`
	List   tokenListCmd   `cmd:"" help:"List the tokens of the tenant."`
	Revoke tokenRevokeCmd `cmd:"" help:"Revoke tokens or client certificates permanently."`
}

// tokenCreateCmd is lessor token create.
type tokenCreateCmd struct {
	server `embed:""`

	Role     string        `required:"" enum:"worker,producer,operator,viewer" placeholder:"ROLE" help:"What the holder may do: worker, producer, operator or viewer."`
	Subject  string        `required:"" placeholder:"NAME" help:"Who the holder is, for histories and logs."`
	TTL      time.Duration `name:"ttl" type:"positive" default:"24h" placeholder:"DURATION" help:"How long the token is valid; at most 8784h."`
	Out      string        `type:"file" placeholder:"FILE" help:"Write the token to this file, readable only by its owner, instead of printing it."`
	Data     string        `type:"file" placeholder:"DIR" help:"Issue the token directly in the store in this directory, while no coordinator runs: for the first token, or when all are lost."`
	Tenant   string        `type:"nonempty" placeholder:"NAME" help:"With --data: tenant of the token, by default \"default\". Otherwise it is the caller's."`
	Audience string        `type:"nonempty" placeholder:"NAME" help:"With --data: audience of the token, as in serve --auth-audience, by default \"lessor\". Otherwise it is the coordinator's."`
}

// Help is shown below the flags.
func (tokenCreateCmd) Help() string {
	return `Prints the token, which is kept nowhere else. It is a secret.

Examples:
  lessor token create --data /var/lib/lessor --role operator --subject ann --out ann.token
  lessor token create --token-file ann.token --role worker --subject gpu-fleet --ttl 168h --out worker.token`
}

func (c tokenCreateCmd) Run(a *app, line *kong.Context) error {
	if c.Data != "" {
		if err := refuseIdle(line, "not with --data, which issues the token without a coordinator", isConnection); err != nil {
			return err
		}
	}
	defer a.catchSignals()() // so that no partial file is left, and a token that was issued is written
	if c.Out != "" {
		return c.write(a)
	}
	made, err := c.create(a)
	if err != nil {
		return stopped(a.ctx, err)
	}
	return unheard(a.answer(made, made.GetToken()), hintLostToken, "token %s was issued", made.GetInfo().GetTokenId())
}

// write issues a token and writes it to --out. It begins the file first, so that no token is issued
// that cannot be written.
func (c tokenCreateCmd) write(a *app) error {
	out, err := newPendingFile(c.Out, true, secret)
	if err != nil {
		return fail(exitCannotStart, "nothing was issued", "--out: %v", err)
	}
	defer func() { _ = out.discard() }() // does nothing if the file was kept
	made, err := c.create(a)
	if err != nil {
		return stopped(a.ctx, err)
	}
	id := made.GetInfo().GetTokenId()
	if _, err = out.Write([]byte(made.GetToken() + "\n")); err == nil {
		err = out.keep()
	}
	if err != nil {
		return fail(exitCannotStart, hintLostToken, "token %s was issued and could not be written: %v", id, err)
	}
	if !a.json {
		a.note("token %s, good until %s", id, clock(made.GetInfo().GetExpiresAt()))
		return nil
	}
	made.Token = ""
	return unheard(printJSON(a.out, made), "", "token %s was issued", id)
}

const hintLostToken = "the token is lost; revoke it"

func (c tokenCreateCmd) create(a *app) (made *lessorv1.CreateTokenResponse, err error) {
	role, _ := auth.ParseRole(c.Role)
	if c.Data != "" {
		begins := !boltstore.Exists(c.Data)
		err = withStore(c.Data, slog.Default(), func(st *boltstore.Store) error {
			if begins { // the name may be wrong, or its disk not mounted
				a.note("there was no store in %s: a new, empty one was made", c.Data)
			}
			made, err = coordinator.IssueToken(a.ctx, st, cmp.Or(c.Audience, auth.DefaultAudience), auth.Request{
				Tenant:   cmp.Or(c.Tenant, gate.DefaultTenant),
				Role:     role,
				Subject:  c.Subject,
				Life:     c.TTL,
				IssuedBy: "lessor token create --data",
			})
			if errors.As(err, new(*store.CommitError)) {
				return storeError(c.Data, err)
			}
			return err
		})
		return made, sayWhoIssues(err)
	}
	// the coordinator would issue another token than the one asked for, wherever that was written:
	// so not refuseIdle
	switch {
	case c.Tenant != "":
		return nil, fail(exitUsage, "", "--tenant: needs --data; a coordinator issues tokens for the tenant of the caller")
	case c.Audience != "":
		return nil, fail(exitUsage, "", "--audience: needs --data; a coordinator issues tokens for its own audience")
	}
	err = c.with(a, func(cl *client) error {
		made, err = cl.auth.CreateToken(a.ctx, &lessorv1.CreateTokenRequest{
			Role: convert.RoleProto(role), Subject: c.Subject, Ttl: durationpb.New(c.TTL),
		})
		return err
	})
	return made, err
}

// sayWhoIssues says, if a coordinator has the store open, which tokens need it stopped.
func sayWhoIssues(err error) error {
	if _, inUse := errors.AsType[*store.InUseError](err); !inUse {
		return err
	}
	return fail(exitCannotStart, "for the first token of a tenant, stop the coordinator; an operator of the tenant gets the others "+
		"from it while it runs, with --addr and --token-file instead of --data", "%v", err)
}

// tokenListCmd is lessor token list.
type tokenListCmd struct {
	server `embed:""`
}

func (c tokenListCmd) Run(a *app) error {
	return c.with(a, func(cl *client) error {
		list := newListing(a, "TOKEN", "ROLE", "SUBJECT", "STATE", "ISSUED", inZone("EXPIRES"), "BY", "CREDENTIAL")
		var keys *lessorv1.ListKeysResponse
		cells := func(t *lessorv1.TokenInfo) []string { return tokenCells(t, keys.GetKeys(), time.Now()) }
		return printPages(list, cells, func(token string) ([]*lessorv1.TokenInfo, string, error) {
			page, err := cl.auth.ListTokens(a.ctx, &lessorv1.ListTokensRequest{PageToken: token})
			if err == nil {
				// after the page: if a key of the page is missing here, it has retired
				keys, err = cl.auth.ListKeys(a.ctx, &lessorv1.ListKeysRequest{})
			}
			return page.GetTokens(), page.GetNextPageToken(), err
		})
	})
}

// tokenCells returns the row of a token. A token ends with its key, if not before.
func tokenCells(t *lessorv1.TokenInfo, keys []*lessorv1.SigningKey, now time.Time) []string {
	if t.GetRole() == lessorv1.Role_ROLE_UNSPECIFIED { // a certificate; the coordinator knows only that it was revoked
		return []string{t.GetTokenId(), "", t.GetSubject(), "revoked", age(t.GetIssuedAt()), "", t.GetIssuedBy(), ""}
	}
	ends := t.GetExpiresAt()
	at := slices.IndexFunc(keys, func(k *lessorv1.SigningKey) bool { return k.GetKeyId() == t.GetKeyId() })
	if at >= 0 && keys[at].GetRetiresAt() != nil && keys[at].GetRetiresAt().AsTime().Before(ends.AsTime()) {
		ends = keys[at].GetRetiresAt()
	}
	state := "good"
	switch {
	case t.GetRevokedBy() != "": // a token that ended with its key was revoked by nobody
		state = "revoked"
	case !t.GetExpiresAt().AsTime().After(now):
		state = "expired"
	case at < 0 || !ends.AsTime().After(now):
		state = "key retired"
	}
	return []string{
		t.GetTokenId(), words.Name(t.GetRole()), t.GetSubject(), state, age(t.GetIssuedAt()), minute(ends),
		t.GetIssuedBy(), t.GetIssuerId(),
	}
}

// tokenRevokeCmd is lessor token revoke.
type tokenRevokeCmd struct {
	server  `embed:""`
	TokenID []string `arg:"" name:"token-id" help:"Tokens, or certificates as cert-..., by their ids."`
}

// Help is shown below the flags.
func (tokenRevokeCmd) Help() string {
	return `When the command returns, they are no longer accepted; streams that they opened end within a second. If an id is not known, the others are
revoked all the same.

Examples:
  lessor token revoke k3m9x0a7d2w8f5tc
  lessor token list --json | jq -r 'select(.subject == "gpu-fleet").token_id' | xargs lessor token revoke`
}

func (c tokenRevokeCmd) Run(a *app) error {
	return c.with(a, func(cl *client) error {
		var refused []*failure
		for _, id := range c.TokenID {
			if _, err := cl.auth.RevokeToken(a.ctx, &lessorv1.RevokeTokenRequest{TokenId: id}); err != nil {
				refused = append(refused, withID(id, err))
			}
		}
		return joined(refused)
	})
}
