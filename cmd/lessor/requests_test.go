package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"path"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// answerWith serves every unary call with answer, which gets the name of the call, and returns the
// address.
func answerWith(t *testing.T, answer func(call string, req proto.Message) (proto.Message, error)) string {
	t.Helper()
	server := grpc.NewServer(grpc.UnaryInterceptor(func(_ context.Context, req any, info *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
		return answer(path.Base(info.FullMethod), req.(proto.Message))
	}))
	lessorv1.RegisterTaskServiceServer(server, lessorv1.UnimplementedTaskServiceServer{})
	lessorv1.RegisterAdminServiceServer(server, lessorv1.UnimplementedAdminServiceServer{})
	lessorv1.RegisterAuthServiceServer(server, lessorv1.UnimplementedAuthServiceServer{})
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(lis) }()
	t.Cleanup(server.Stop) // waits for Serve
	return lis.Addr().String()
}

// Each flag of a command sets the field of its name, and nothing else.
func TestRequestsOfCommands(t *testing.T) {
	var asked proto.Message
	addr := answerWith(t, func(_ string, req proto.Message) (proto.Message, error) {
		asked = req
		return nil, status.Error(codes.Internal, "enough")
	})
	for command, want := range map[string]struct {
		request proto.Message
		text    string
	}{
		"worker drain n --session s --reason r --deadline 2026-12-01T06:00:01Z": {
			&lessorv1.DrainWorkerRequest{}, `worker_id: "n" session_id: "s" reason: "r" deadline { seconds: 1796104801 }`,
		},
		"worker drain n --undo": {&lessorv1.DrainWorkerRequest{}, `worker_id: "n" undo: true`},
		"worker kick n --session s --reason r --retry-after 7s": {
			&lessorv1.KickWorkerRequest{}, `worker_id: "n" session_id: "s" reason: "r" retry_after { seconds: 7 }`,
		},
		"worker kick n --requeue":  {&lessorv1.KickWorkerRequest{}, `worker_id: "n" requeue: true`},
		"worker get n --session s": {&lessorv1.GetWorkerRequest{}, `worker_id: "n" session_id: "s"`},
		"task list --limit 2 --newest-first --queue q": {
			&lessorv1.ListTasksRequest{}, `filter { queue: "q" } page_size: 3 newest_first: true`,
		},
		"worker list --queue q":                           {&lessorv1.ListWorkersRequest{}, `queue: "q"`},
		"token create --role viewer --subject s":          {&lessorv1.CreateTokenRequest{}, `role: ROLE_VIEWER subject: "s" ttl { seconds: 86400 }`},
		"token create --role worker --subject s --ttl 1h": {&lessorv1.CreateTokenRequest{}, `role: ROLE_WORKER subject: "s" ttl { seconds: 3600 }`},
		"key rotate":                                {&lessorv1.RotateKeyRequest{}, ``},
		"key rotate --retire-after 0s":              {&lessorv1.RotateKeyRequest{}, `retire_after {}`},
		"task adopt t --attempt 3":                  {&lessorv1.AdoptResultRequest{}, `task_id: "t" attempt: 3`},
		"task delete t":                             {&lessorv1.DeleteTaskRequest{}, `task_id: "t"`},
		"task delete t --force":                     {&lessorv1.DeleteTaskRequest{}, `task_id: "t" force: true`},
		"task delete --queue q --workspace w --yes": {&lessorv1.BatchDeleteTasksRequest{}, `filter { workspace_id: "w" queue: "q" }`},
		"task delete --all --yes --force":           {&lessorv1.BatchDeleteTasksRequest{}, `filter {} all: true force: true`},
	} {
		asked = nil
		run(append(strings.Fields(command), "--addr", addr), streams{out: io.Discard, err: io.Discard})
		if err := prototext.Unmarshal([]byte(want.text), want.request); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(asked, want.request) {
			t.Errorf("%s: the request is %T %v, want %T %v", command, asked, asked, want.request, want.request)
		}
	}
}

// A list has the items of all pages, and a change in bulk is done for all of them.
func TestAllPagesAreRead(t *testing.T) {
	bulk := func() *lessorv1.BatchResult { return &lessorv1.BatchResult{Changed: 1, NextPageToken: "next"} }
	first := map[string]proto.Message{
		"ListTasks":        &lessorv1.ListTasksResponse{Tasks: []*lessorv1.Task{{}}, NextPageToken: "next"},
		"ListQueues":       &lessorv1.ListQueuesResponse{Queues: []*lessorv1.Queue{{}}, NextPageToken: "next"},
		"ListWorkers":      &lessorv1.ListWorkersResponse{Workers: []*lessorv1.Worker{{}}, NextPageToken: "next"},
		"ListTenants":      &lessorv1.ListTenantsResponse{Tenants: []*lessorv1.Tenant{{}}, NextPageToken: "next"},
		"ListTokens":       &lessorv1.ListTokensResponse{Tokens: []*lessorv1.TokenInfo{{}}, NextPageToken: "next"},
		"ListAuditEvents":  &lessorv1.ListAuditEventsResponse{Events: []*lessorv1.AuditEvent{{}}, NextPageToken: "next"},
		"PurgeQueue":       &lessorv1.PurgeQueueResponse{Result: bulk()},
		"BatchCancelTasks": &lessorv1.BatchCancelTasksResponse{Result: bulk()},
		"BatchRetryTasks":  &lessorv1.BatchRetryTasksResponse{Result: bulk()},
		"BatchDeleteTasks": &lessorv1.BatchDeleteTasksResponse{Result: bulk()},
	}
	var tokens []string
	addr := answerWith(t, func(call string, req proto.Message) (proto.Message, error) {
		if call == "ListKeys" { // the list of the tokens reads them
			return &lessorv1.ListKeysResponse{}, nil
		}
		tokens = append(tokens, req.(interface{ GetPageToken() string }).GetPageToken())
		page := proto.Clone(first[call])
		switch len(tokens) {
		case 1:
			return page, nil
		case 2:
			of := page.ProtoReflect()
			if b, ok := page.(bulkAnswer); ok {
				of = b.GetResult().ProtoReflect()
			}
			of.Clear(of.Descriptor().Fields().ByName("next_page_token"))
			return page, nil
		}
		return nil, status.Error(codes.Internal, "there are two pages")
	})
	for command, lines := range map[string]int{
		"task list": 2, "queue list": 2, "worker list": 2, "tenant list": 2, "token list": 2, "audit list": 2,
		"queue purge q --yes": 1, "task cancel --all": 1, "task retry --all": 1, "task delete --all --yes": 1,
	} {
		tokens = nil
		var out, stderr bytes.Buffer
		code := run(append(strings.Fields(command), "--json", "--addr", addr), streams{out: &out, err: &stderr})
		if code != 0 || strings.Count(out.String(), "\n") != lines || !slices.Equal(tokens, []string{"", "next"}) {
			t.Errorf("%s: exit code %d, page tokens %q; it said\n%s%s\nwant %d lines with both pages",
				command, code, tokens, &out, &stderr, lines)
		}
		if lines == 1 && !strings.Contains(out.String(), `"changed":"2"`) {
			t.Errorf("%s: it said\n%s\nwant the sum of both pages", command, &out)
		}
	}
}
