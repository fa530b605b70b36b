package service_test

import (
	"bytes"
	"context"
	"testing"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/service"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// A page token is valid for one list, and no other text is accepted instead of it. With a token
// that has an arbitrary cursor, the lists answer or refuse the token with INVALID_ARGUMENT.
func FuzzPageToken(f *testing.F) {
	list := service.NewListing("tasks", "default", &lessorv1.TaskFilter{})
	f.Add(list.Token([]byte("12345678")), []byte("12345678"))
	f.Add(list.Token(nil)+"\n", []byte{})
	f.Add("A", []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Add("", []byte("q\x00q"))
	r := newPages(f)
	f.Fuzz(func(t *testing.T, token string, cursor []byte) {
		check := &convert.Fields{Limits: lease.DefaultLimits()}
		if got := list.Cursor(check, token); check.Err == nil && token != "" && list.Token(got) != token {
			t.Errorf("the token %q is accepted, want only %q", token, list.Token(got))
		}
		if got := list.Cursor(&convert.Fields{}, list.Token(cursor)); !bytes.Equal(got, cursor) && len(cursor) > 0 {
			t.Errorf("the cursor %x is decoded as %x", cursor, got)
		}
		for name, ask := range r.lists {
			for _, token := range []string{token, list.Token(cursor), forged(name, cursor)} {
				if err := ask(r.ctx, token); err != nil && status.Code(err).String() != "InvalidArgument" {
					t.Errorf("list %s with the page token %q: %v, want no error or INVALID_ARGUMENT", name, token, err)
				}
			}
		}
	})
}

// forged returns a valid page token of a list with an arbitrary cursor.
func forged(kind string, cursor []byte) string {
	var m proto.Message = &lessorv1.TaskFilter{}
	switch kind {
	case "queues":
		m = &lessorv1.ListQueuesRequest{WorkspaceId: convert.DefaultWorkspace}
	case "workers":
		m = &lessorv1.ListWorkersRequest{}
	case "audit":
		m = &lessorv1.ListAuditEventsRequest{}
	}
	return service.NewListing(kind, gate.DefaultTenant, m).Token(cursor)
}

// pages has all lists of a coordinator. The lists of tasks and queues have entries.
type pages struct {
	ctx   context.Context //nolint:containedctx // of all calls of the test
	lists map[string]func(ctx context.Context, token string) error
}

func newPages(f *testing.F) *pages {
	f.Helper()
	c, end := wiretest.Unserved(f, coordinator.Config{})
	f.Cleanup(func() {
		if err := end(); err != nil {
			f.Error(err)
		}
	})
	p := &pages{ctx: wiretest.ContextAfterGate(context.Background(), f)}
	tasks, admin := c.Services.Tasks, c.Services.Admin
	for _, queue := range []string{"q", "p"} {
		if _, err := tasks.SubmitTask(p.ctx, &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: queue}}); err != nil {
			f.Fatal(err)
		}
	}
	p.lists = map[string]func(ctx context.Context, token string) error{
		"tasks": func(ctx context.Context, token string) error {
			_, err := tasks.ListTasks(ctx, &lessorv1.ListTasksRequest{PageToken: token})
			return err
		},
		"queues": func(ctx context.Context, token string) error {
			_, err := admin.ListQueues(ctx, &lessorv1.ListQueuesRequest{PageToken: token})
			return err
		},
		"tenants": func(ctx context.Context, token string) error {
			_, err := admin.ListTenants(ctx, &lessorv1.ListTenantsRequest{PageToken: token})
			return err
		},
		"workers": func(ctx context.Context, token string) error {
			_, err := admin.ListWorkers(ctx, &lessorv1.ListWorkersRequest{PageToken: token})
			return err
		},
		"audit": func(ctx context.Context, token string) error {
			_, err := admin.ListAuditEvents(ctx, &lessorv1.ListAuditEventsRequest{PageToken: token})
			return err
		},
	}
	return p
}
