package service_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/service"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// X2: a page token is valid only for its tenant, list and filter.
func TestPageTokenBelongsToItsList(t *testing.T) {
	t.Attr("rules", "X2")
	filter := &lessorv1.TaskFilter{Queue: "q", Labels: map[string]string{"a": "1", "b": "2"}}
	list := service.NewListing("tasks", "tenant", filter)
	token := list.Token([]byte("cursor"))

	f := convert.Fields{Limits: lease.DefaultLimits()}
	if got := list.Cursor(&f, token); string(got) != "cursor" || f.Err != nil {
		t.Fatalf("cursor is %q (%v)", got, f.Err)
	}
	for name, other := range map[string]service.Listing{
		"tenant":    service.NewListing("tasks", "tenanu", filter),
		"kind":      service.NewListing("queues", "tenant", filter),
		"queue":     service.NewListing("tasks", "tenant", &lessorv1.TaskFilter{Queue: "r", Labels: filter.Labels}),
		"workspace": service.NewListing("tasks", "tenant", &lessorv1.TaskFilter{Queue: "q", Labels: filter.Labels, WorkspaceId: "w"}),
	} {
		wantBadToken(t, "another "+name, other, token)
	}
	for name, bad := range map[string]string{
		"cut": token[:6], "no base64": "!!", "changed": token[:len(token)-1] + "A", "long": token + "AAAA",
	} {
		wantBadToken(t, name, list, bad)
	}
}

// X2: in every list, and in every call that continues with a page token, a page token of another
// tenant is refused. Otherwise the pages would leave out items.
func TestPageTokensBelongToTheirTenant(t *testing.T) {
	t.Attr("rules", "X2")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		sweep := func(kind string, request proto.Message) string { // the token of a call that has looked at all tasks
			return service.NewListing(kind, "acme", request).Token(bytes.Repeat([]byte{0xff}, 16))
		}
		everything := &lessorv1.TaskFilter{}
		calls := map[string]struct {
			token string // empty: that of a first page with one item
			call  func(ctx context.Context, page string) (next string, err error)
		}{
			"ListTasks": {call: func(ctx context.Context, page string) (string, error) {
				res, err := r.Tasks.ListTasks(ctx, &lessorv1.ListTasksRequest{PageSize: 1, PageToken: page})
				return res.GetNextPageToken(), err
			}},
			"ListQueues": {call: func(ctx context.Context, page string) (string, error) {
				res, err := r.Admin.ListQueues(ctx, &lessorv1.ListQueuesRequest{PageSize: 1, PageToken: page})
				return res.GetNextPageToken(), err
			}},
			"ListWorkers": {call: func(ctx context.Context, page string) (string, error) {
				res, err := r.Admin.ListWorkers(ctx, &lessorv1.ListWorkersRequest{PageSize: 1, PageToken: page})
				return res.GetNextPageToken(), err
			}},
			"BatchCancelTasks": {sweep("cancel", everything), func(ctx context.Context, page string) (string, error) {
				return "", wiretest.ErrOf(r.Tasks.BatchCancelTasks(ctx,
					&lessorv1.BatchCancelTasksRequest{All: true, PageToken: page}))
			}},
			"PurgeQueue": {
				sweep("purge", &lessorv1.PurgeQueueRequest{WorkspaceId: convert.DefaultWorkspace, Name: "a"}),
				func(ctx context.Context, page string) (string, error) {
					return "", wiretest.ErrOf(r.Admin.PurgeQueue(ctx, &lessorv1.PurgeQueueRequest{Name: "a", PageToken: page}))
				},
			},
		}
		ctxs := map[string]context.Context{}
		for _, tenant := range []string{"acme", "evil"} {
			token, _ := r.Issue(t, tenant, auth.Operator)
			ctxs[tenant], r.Token = wiretest.WithToken(t.Context(), token), token
			for _, name := range []string{"a", "b"} {
				if _, err := r.Tasks.SubmitTask(ctxs[tenant], &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: name}}); err != nil {
					t.Fatal(err)
				}
				worker := r.OpenStream(t, name)
				worker.Tenant = tenant
				worker.Handshake()
				worker.Send(wiretest.Registration(1))
				synctest.Wait()
			}
		}
		for name, c := range calls {
			if c.token == "" {
				next, err := c.call(ctxs["acme"], "")
				if c.token = next; err != nil || next == "" {
					t.Fatalf("%s: the first page has the token %q (%v), want one", name, next, err)
				}
			}
			if _, err := c.call(ctxs["acme"], c.token); err != nil {
				t.Errorf("%s: the tenant's own page token: %v, want it accepted", name, err)
			}
			_, err := c.call(ctxs["evil"], c.token)
			wiretest.WantBadField(t, err, "page_token")
		}
	})
}

// wantBadToken checks that a list refuses a page token.
func wantBadToken(t *testing.T, name string, l service.Listing, token string) {
	t.Helper()
	f := convert.Fields{Limits: lease.DefaultLimits()}
	if l.Cursor(&f, token); f.Err == nil || f.Err.Field != "page_token" {
		t.Errorf("%s: the error is %v, want one of the field page_token", name, f.Err)
	}
}

// S7: a page of queues with many weights, or of workers with many types, ends early, so that it
// fits into a message. The pages together have all items.
func TestPagesOfLargeItemsFitIntoAMessage(t *testing.T) {
	t.Attr("rules", "S7")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		const total = 20 // 5 MiB
		weights, limits := map[string]float64{}, map[string]uint32{}
		for i := range 1000 {
			weights[fmt.Sprintf("%0256d", i)], limits[fmt.Sprintf("%0256d", i)] = 2, 1
		}
		for i := range total {
			name := fmt.Sprintf("%02d", i)
			if _, err := r.Admin.UpdateQueue(t.Context(), &lessorv1.UpdateQueueRequest{Name: name, FairnessWeights: weights}); err != nil {
				t.Fatal(err)
			}
			worker := r.OpenStream(t, name)
			worker.Handshake()
			register := wiretest.Registration(1)
			register.Capabilities.Concurrency.PerTypeLimits = limits
			worker.Send(register)
		}
		synctest.Wait()
		for list, page := range map[string]func(token string) (res proto.Message, names []string, next string, err error){
			"queues": func(token string) (proto.Message, []string, string, error) {
				res, err := r.Admin.ListQueues(t.Context(), &lessorv1.ListQueuesRequest{PageToken: token})
				return res, namesOf(res.GetQueues(), (*lessorv1.Queue).GetName), res.GetNextPageToken(), err
			},
			"workers": func(token string) (proto.Message, []string, string, error) {
				res, err := r.Admin.ListWorkers(t.Context(), &lessorv1.ListWorkersRequest{PageToken: token})
				return res, namesOf(res.GetWorkers(), (*lessorv1.Worker).GetWorkerId), res.GetNextPageToken(), err
			},
		} {
			listed, next := 0, ""
			for more := true; more; more = next != "" {
				res, names, token, err := page(next)
				if err != nil {
					t.Fatalf("%s: %v", list, err)
				}
				if n := proto.Size(res); n > *service.MaxPageBytes+512<<10 {
					t.Errorf("a page of %s has %d bytes, want at most %d and one item more", list, n, *service.MaxPageBytes)
				}
				for _, name := range names {
					wiretest.WantEqual(t, list, name, fmt.Sprintf("%02d", listed))
					listed++
				}
				next = token
			}
			if listed != total {
				t.Errorf("%d %s were listed, want %d", listed, list, total)
			}
		}
	})
}

func namesOf[T any](items []T, name func(T) string) (names []string) {
	for _, item := range items {
		names = append(names, name(item))
	}
	return names
}
