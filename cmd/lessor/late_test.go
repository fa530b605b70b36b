package main

import (
	"context"

	"github.com/rogpeppe/go-internal/testscript"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// reportLate plays a worker that leases a task of the queue, starts it, waits until its lease ends,
// and then reports completion.
func reportLate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: late QUEUE OUTPUT")
	}
	cl, err := credentials{}.dial(ts.Getenv("LESSOR_ADDR"))
	ts.Check(err)
	defer func() { _ = cl.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()

	calls := lessorv1.NewWorkerServiceClient(cl)
	granted, err := calls.Lease(ctx, &lessorv1.LeaseRequest{WorkerId: "late", Queues: args[:1]})
	ts.Check(err)
	if len(granted.GetAssignments()) != 1 {
		ts.Fatalf("queue %s granted %d tasks", args[0], len(granted.GetAssignments()))
	}
	task, lease := granted.GetAssignments()[0].GetTask().GetTaskId(), granted.GetAssignments()[0].GetLeaseId()
	_, err = calls.Start(ctx, &lessorv1.StartRequest{TaskId: task, LeaseId: lease})
	ts.Check(err)
	awaitLeaseEnd(ctx, ts, cl, task)
	answer, err := calls.Complete(ctx, &lessorv1.CompleteRequest{
		TaskId: task, LeaseId: lease, WorkerId: "late",
		Output: []byte(args[1]),
	})
	ts.Check(err)
	if v := answer.GetVerdict(); v != lessorv1.Verdict_VERDICT_CANCELLED {
		ts.Fatalf("the late report got %v", v)
	}
}

func awaitLeaseEnd(ctx context.Context, ts *testscript.TestScript, cl *client, task string) {
	events, err := cl.tasks.WatchTask(ctx, &lessorv1.WatchTaskRequest{TaskId: task})
	ts.Check(err)
	for {
		event, err := events.Recv()
		ts.Check(err)
		if event.GetHistory().GetType() == lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_LEASE_ENDED {
			return
		}
	}
}
