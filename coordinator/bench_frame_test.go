package coordinator

import (
	"testing"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/coordinator/session"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Numbers of tasks in the measured frames: benchSlots is about the number of slots of a busy
// worker, benchBulk the number of tasks in a frame of lessor bench.
const (
	benchSlots = 64
	benchBulk  = 500
)

// BenchmarkEncodeFrame encodes frames of the coordinator. One operation is one frame.
func BenchmarkEncodeFrame(b *testing.B) {
	codec := newCodec()
	for name, frame := range map[string]proto.Message{
		"dispatch": &lessorv1.SessionResponse{Id: "17", Seq: 17, Payload: &lessorv1.SessionResponse_Dispatch{Dispatch: &lessorv1.Dispatch{
			Assignments: manyOf(benchSlots, benchAssignment()),
		}}},
		"verdicts": &lessorv1.SessionResponse{Id: "17", Seq: 17, Payload: &lessorv1.SessionResponse_Verdicts{Verdicts: &lessorv1.Verdicts{
			Verdicts: manyOf(benchSlots, &lessorv1.ReportVerdict{
				TaskId: benchTask, LeaseId: benchLease, Kind: lessorv1.ReportKind_REPORT_KIND_COMPLETE,
				Verdict: lessorv1.Verdict_VERDICT_COMMITTED, TaskState: lessorv1.TaskState_TASK_STATE_COMPLETED,
			}),
		}}},
		"submitted": &lessorv1.SubmitStreamResponse{Results: manyOf(benchBulk, &lessorv1.SubmitResult{TaskId: benchTask, Created: true})},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(proto.Size(frame)))
			for b.Loop() {
				data, err := codec.Marshal(frame)
				if err != nil {
					b.Fatal(err)
				}
				data.Free() // as gRPC does after sending
			}
		})
	}
}

// BenchmarkDecodeFrame decodes frames of workers and producers. One operation is one frame.
func BenchmarkDecodeFrame(b *testing.B) {
	codec := newCodec()
	for name, sent := range map[string]struct {
		frame proto.Message
		into  func() any
	}{
		"reports": {
			&lessorv1.SessionRequest{Id: "17", Seq: 17, Payload: &lessorv1.SessionRequest_Reports{Reports: &lessorv1.Reports{
				Reports: manyOf(benchSlots, &lessorv1.Report{Report: &lessorv1.Report_Complete{
					Complete: &lessorv1.CompleteRequest{TaskId: benchTask, LeaseId: benchLease, Output: make([]byte, 16)},
				}}),
			}}},
			func() any { return new(session.Frame) },
		},
		"submits": {
			&lessorv1.SubmitStreamRequest{Tasks: manyOf(benchBulk,
				&lessorv1.TaskSpec{Queue: "q", Type: "t", Payload: make([]byte, 256)})},
			func() any { return new(lessorv1.SubmitStreamRequest) },
		},
	} {
		b.Run(name, func(b *testing.B) {
			raw, err := proto.Marshal(sent.frame)
			if err != nil {
				b.Fatal(err)
			}
			data := mem.BufferSlice{mem.SliceBuffer(raw)}
			b.ReportAllocs()
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				if err := codec.Unmarshal(data, sent.into()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Ids of the usual length.
const (
	benchTask  = "t0000100000000001"
	benchLease = "l0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmno"
)

func benchAssignment() *lessorv1.Assignment {
	at := timestamppb.New(time.Unix(1_800_000_000, 5))
	return &lessorv1.Assignment{
		Task: &lessorv1.Task{
			TaskId: benchTask, Spec: &lessorv1.TaskSpec{
				WorkspaceId: "default", Queue: "q", Type: "t",
				Payload: make([]byte, 256), RetryPolicy: &lessorv1.RetryPolicy{MaxAttempts: 5, MaxLosses: 3},
			},
			State: lessorv1.TaskState_TASK_STATE_LEASED, Attempt: 1, CreatedAt: at,
		},
		Attempt: 1, AttemptId: benchTask + "/1", LeaseId: benchLease, FencingToken: 1 << 32, ExpiresAt: at,
		ExpiresIn:  durationpb.New(30 * time.Second),
		ServerTime: at, HeartbeatInterval: durationpb.New(10 * time.Second), HeartbeatTimeout: durationpb.New(30 * time.Second),
		CancelGrace: durationpb.New(10 * time.Second), TaskToken: string(make([]byte, 200)),
	}
}

func manyOf[T any](n int, one T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = one
	}
	return all
}
