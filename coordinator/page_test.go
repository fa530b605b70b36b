package coordinator

import (
	"testing"

	"github.com/lessor-dev/lessor/coordinator/convert"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// X2: a page token is valid only for its tenant, list and filter.
func TestPageTokenBelongsToItsList(t *testing.T) {
	t.Attr("rules", "X2")
	filter := &lessorv1.TaskFilter{Queue: "q", Labels: map[string]string{"a": "1", "b": "2"}}
	list := newListing("tasks", "tenant", filter)
	token := list.token([]byte("cursor"))

	f := convert.Fields{Limits: lease.DefaultLimits()}
	if got := list.cursor(&f, token); string(got) != "cursor" || f.Err != nil {
		t.Fatalf("cursor is %q (%v)", got, f.Err)
	}
	for name, other := range map[string]listing{
		"tenant":    newListing("tasks", "tenanu", filter),
		"kind":      newListing("queues", "tenant", filter),
		"queue":     newListing("tasks", "tenant", &lessorv1.TaskFilter{Queue: "r", Labels: filter.Labels}),
		"workspace": newListing("tasks", "tenant", &lessorv1.TaskFilter{Queue: "q", Labels: filter.Labels, WorkspaceId: "w"}),
	} {
		wantBadToken(t, "another "+name, other, token)
	}
	for name, bad := range map[string]string{
		"cut": token[:6], "no base64": "!!", "changed": token[:len(token)-1] + "A", "long": token + "AAAA",
	} {
		wantBadToken(t, name, list, bad)
	}
}

// wantBadToken checks that a list refuses a page token.
func wantBadToken(t *testing.T, name string, l listing, token string) {
	t.Helper()
	f := convert.Fields{Limits: lease.DefaultLimits()}
	if l.cursor(&f, token); f.Err == nil || f.Err.Field != "page_token" {
		t.Errorf("%s: the error is %v, want one of the field page_token", name, f.Err)
	}
}
