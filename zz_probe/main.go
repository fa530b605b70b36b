package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/lessor-dev/lessor/gen/lessor/v1"
)

var (
	ctx = context.Background()
	T   pb.TaskServiceClient
	W   pb.WorkerServiceClient
	A   pb.AdminServiceClient
)

func dur(d time.Duration) *durationpb.Duration { return durationpb.New(d) }

func e(err error) string {
	if err == nil {
		return "OK"
	}
	s := status.Convert(err)
	return fmt.Sprintf("%s: %s %v", s.Code(), s.Message(), s.Details())
}

func submit(s *pb.TaskSpec) *pb.Task {
	r, err := T.SubmitTask(ctx, &pb.SubmitTaskRequest{Task: s})
	if err != nil {
		fmt.Println("SUBMIT", e(err))
		return nil
	}
	return r.Task
}

func leaseN(q string, n uint32, wait time.Duration) []*pb.Assignment {
	r, err := W.Lease(ctx, &pb.LeaseRequest{WorkerId: "w", Queues: []string{q}, MaxTasks: n, Wait: dur(wait)})
	if err != nil {
		fmt.Println("LEASE", e(err))
		return nil
	}
	return r.Assignments
}

func lease1(q string) *pb.Assignment {
	a := leaseN(q, 1, 5*time.Second)
	if len(a) == 0 {
		fmt.Println("no assignment", q)
		return nil
	}
	return a[0]
}

func get(id string) *pb.Task {
	r, err := T.GetTask(ctx, &pb.GetTaskRequest{TaskId: id})
	if err != nil {
		fmt.Println("GET", e(err))
		return nil
	}
	return r.Task
}

func deadline() {
	q := fmt.Sprint("dl", time.Now().UnixNano())
	dl := time.Now().Add(3 * time.Second)
	const n = 60
	for i := 0; i < n; i++ {
		submit(&pb.TaskSpec{Queue: q, Deadline: timestamppb.New(dl.Add(time.Duration(i) * 20 * time.Millisecond)), RetryPolicy: &pb.RetryPolicy{MaxLosses: 1}})
	}
	as := leaseN(q, n, 0)
	fmt.Println("leased", len(as))
	for i, a := range as {
		if i%2 == 0 {
			W.Heartbeat(ctx, &pb.HeartbeatRequest{TaskId: a.Task.TaskId, LeaseId: a.LeaseId})
		}
	}
	time.Sleep(time.Until(dl.Add(n*20*time.Millisecond + 500*time.Millisecond)))
	count := map[string]int{}
	var mu sync.Mutex
	for i, a := range as {
		t := get(a.Task.TaskId)
		r, err := W.Complete(ctx, &pb.CompleteRequest{TaskId: a.Task.TaskId, LeaseId: a.LeaseId})
		if err != nil {
			fmt.Println(e(err))
			continue
		}
		mu.Lock()
		count[fmt.Sprintf("hb=%v task %s/%s quarantined=%v losses=%d; report %s/%s", i%2 == 0, t.State, t.Reason, t.Quarantined, t.Losses, r.Verdict, r.Reason)]++
		mu.Unlock()
	}
	for k, v := range count {
		fmt.Println(v, k)
	}
}

func main() {
	c, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	T, W, A = pb.NewTaskServiceClient(c), pb.NewWorkerServiceClient(c), pb.NewAdminServiceClient(c)
	switch os.Args[2] {
	case "deadline":
		deadline()
	case "bad":
		bad()
	case "verdicts":
		verdicts()
	case "misc":
		misc()
	}
}
