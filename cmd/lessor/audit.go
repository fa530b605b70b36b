package main

import (
	"strings"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// auditCmd is lessor audit.
type auditCmd struct {
	List auditListCmd `cmd:"" help:"List what was done in the tenant, by whom, and what was refused."`
}

// auditListCmd is lessor audit list.
type auditListCmd struct {
	server `embed:""`

	Subject string `type:"nonempty" placeholder:"NAME" help:"Only what this subject did."`
	Action  string `type:"nonempty" placeholder:"CALL" help:"Only this call, such as CancelTask."`
	Outcome string `type:"nonempty" placeholder:"CODE" help:"Only outcomes that begin with this: OK for what was done, E. for what was refused."`
	Since   when   `default:"-24h" placeholder:"TIME" help:"From this time on: RFC 3339, or a span from now such as -1h."`
	Until   when   `placeholder:"TIME" help:"Before this time: RFC 3339, or a span from now; by default until now."`
}

// Help is shown below the flags.
func (auditListCmd) Help() string {
	return `The oldest entries come first. CREDENTIAL is the token or certificate that was used, ROLE its role, and FROM the address of the caller. DETAIL begins
with the number of tasks that were changed, or of refusals of the same kind.

Examples:
  lessor audit list --since -1h
  lessor audit list --outcome E.AUTH. --json | jq -r .peer | sort | uniq -c`
}

func (c auditListCmd) Run(a *app) error {
	if err := checkSpan("", c.Since, c.Until, "--since is -24h unless it is set"); err != nil {
		return err
	}
	return c.with(a, func(cl *client) error {
		list := newAuditListing(a)
		req := &lessorv1.ListAuditEventsRequest{
			Subject: c.Subject, Action: c.Action, Outcome: c.Outcome, Since: c.Since.timestamp(),
			Until: c.Until.timestamp(), PageSize: maxPage,
		}
		return printPages(list, auditCells, func(token string) ([]*lessorv1.AuditEvent, string, error) {
			req.PageToken = token
			page, err := cl.admin.ListAuditEvents(a.ctx, req)
			return page.GetEvents(), page.GetNextPageToken(), err
		})
	})
}

func newAuditListing(a *app) *listing {
	list := newListing(a, inZone("AT"), "SUBJECT", "ACTION", "OUTCOME", "OBJECT", "WORKSPACE", "ROLE",
		"CREDENTIAL", "FROM", "DETAIL")
	list.clipLast()
	return list
}

func auditCells(e *lessorv1.AuditEvent) []string {
	var parts []string
	if n := e.GetTasks(); n > 0 {
		parts = append(parts, counted(n, "task"))
	}
	if n := e.GetTimes(); n > 1 {
		parts = append(parts, counted(n, "time"))
	}
	if e.GetDetail() != "" {
		parts = append(parts, auditDetail(e))
	}
	return []string{
		second(e.GetAt()), e.GetSubject(), e.GetAction(), e.GetOutcome(), e.GetObject(), e.GetWorkspaceId(),
		e.GetRole(), e.GetCredentialId(), e.GetPeer(), strings.Join(parts, "; "),
	}
}
