package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
)

func isFeedback(f *lessorv1.SessionRequest) bool { return f.GetFeedback() != nil }

// Progress sends fraction, stage and message; Stage and Message each change one of them and keep
// the others. A feedback has only what changed since the last one, here metrics alone. The outcome
// has the last metrics. Metrics without a name or a finite value are left out.
func TestProgressAndMetrics(t *testing.T) {
	t.Attr("rules", "W2")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		step := make(chan struct{})
		r := c.run(worker.Config{}, func(_ context.Context, task *worker.Task) ([]byte, error) {
			task.Progress(math.NaN(), "begin", "running")
			<-step
			task.Stage("streaming")
			task.Message("half")
			<-step
			task.SetMetric("loss", 0.5)
			task.SetMetric("nan", math.NaN())
			task.SetMetric("", 1)
			task.SetMetric("epoch", 3)
			task.SetMetric("loss", 0.25)
			return nil, errors.New("failed")
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		item := s.next("feedback", isFeedback).GetFeedback().GetItems()[0]
		if !item.GetZeroProgress() || item.GetStage() != "running" || item.GetMessage() != "begin" {
			t.Errorf("item = %v, want progress 0 with stage %q and message %q", item, "running", "begin")
		}
		step <- struct{}{}
		item = s.next("feedback", isFeedback).GetFeedback().GetItems()[0]
		if item.GetStage() != "streaming" || item.GetMessage() != "half" || !item.GetZeroProgress() {
			t.Errorf("item = %v, want progress 0 with stage %q and message %q", item, "streaming", "half")
		}
		step <- struct{}{}
		item = s.next("feedback", isFeedback).GetFeedback().GetItems()[0]
		want := map[string]float64{"loss": 0.25, "epoch": 3}
		if !maps.Equal(item.GetMetrics(), want) || item.GetStage() != "" || item.GetZeroProgress() {
			t.Errorf("item = %v, want the metrics %v and no progress", item, want)
		}
		f, report := s.outcome()
		if got := report.GetFail().GetMetrics(); !maps.Equal(got, want) {
			t.Errorf("metrics of the outcome = %v, want %v", got, want)
		}
		s.commit(f)
		r.shutdown()
	})
}

// What a heartbeat has brought to those who watch is not sent to them once more as feedback, but
// what is new after it is.
func TestProgressOfAHeartbeatIsNoFeedback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
			task.Progress(0.5, "half", "running")
			task.SetMetric("loss", 0.5)
			if err := task.SaveCheckpoint(ctx, []byte("half")); err != nil {
				return nil, err
			}
			time.Sleep(time.Second)
			task.Message("more")
			return nil, nil
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		f := s.renewal()
		if hb := f.GetHeartbeat().GetLeases()[0]; hb.GetProgress().GetMessage() != "half" || hb.GetMetrics()["loss"] != 0.5 {
			t.Errorf("heartbeat = %v, want the progress and the metric", hb)
		}
		s.renew(f)
		time.Sleep(time.Second / 2)
		s.quiet("feedback", isFeedback)
		if item := s.next("feedback", isFeedback).GetFeedback().GetItems()[0]; item.GetMessage() != "more" {
			t.Errorf("item = %v, want the message %q", item, "more")
		}
		f, _ = s.outcome()
		s.commit(f)
		r.shutdown()
	})
}

// X5, W14: if the coordinator refuses feedback because the quota of frames is used up, the worker
// sends none for as long as the refusal asks, and then only the newest message.
func TestFeedbackIsHeldBack(t *testing.T) {
	t.Attr("rules", "X5 W14")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		step := make(chan string)
		r := c.run(worker.Config{}, func(_ context.Context, task *worker.Task) ([]byte, error) {
			for message := range step {
				task.Message(message)
			}
			return nil, nil
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		step <- "one"
		f := s.next("feedback", isFeedback)
		s.send(&lessorv1.SessionResponse{Corr: f.GetId(), Payload: &lessorv1.SessionResponse_Error{
			Error: &lessorv1.Error{Code: "E.QUOTA.FRAMES", Message: "none left", RetryAfter: durationpb.New(2 * time.Second)},
		}})
		synctest.Wait()
		held := time.Now()
		step <- "two"
		step <- "three"
		item := s.next("feedback", isFeedback).GetFeedback().GetItems()[0]
		if took := time.Since(held); took < 2*time.Second || took > 3*time.Second || item.GetMessage() != "three" {
			t.Errorf("item = %v after %v, want message %q after 2s", item, took, "three")
		}
		close(step)
		f, _ = s.outcome()
		s.commit(f)
		r.shutdown()
	})
}

// W11: chunks keep their order, type and metadata, and are copies of the caller's data. Output over
// OutputBuffer is dropped, oldest first, and so is a chunk that is larger than the buffer. What was
// dropped leaves a gap in the indexes of its channel, and the next chunk says how many bytes are
// missing.
func TestChunks(t *testing.T) {
	t.Attr("rules", "W11")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		hold := make(chan struct{})
		r := c.run(worker.Config{OutputBuffer: 8 << 10}, func(_ context.Context, task *worker.Task) ([]byte, error) {
			data := []byte("one")
			task.Emit(worker.Chunk{Channel: "llm", MIMEType: "text/markdown", Data: data, Metadata: map[string]string{"k": "v"}})
			copy(data, "xxx")
			fmt.Fprint(task.Output("llm"), "two")
			task.Emit(worker.Chunk{Channel: "llm", Data: []byte{0xff}})
			<-hold
			for range 3 {
				task.Emit(worker.Chunk{Channel: "llm", Data: bytes.Repeat([]byte("z"), 3000)})
			}
			task.Emit(worker.Chunk{Channel: "big", Data: make([]byte, 9<<10)})
			fmt.Fprint(task.Output("big"), "end")
			return nil, nil
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		want := []*lessorv1.FeedbackChunk{
			{
				Channel: "llm", MimeType: "text/markdown", Body: &lessorv1.FeedbackChunk_Text{Text: "one"},
				Metadata: map[string]string{"k": "v"},
			},
			{Channel: "llm", Index: 1, Body: &lessorv1.FeedbackChunk_Text{Text: "two"}},
			{Channel: "llm", Index: 2, MimeType: "application/octet-stream", Body: &lessorv1.FeedbackChunk_Data{Data: []byte{0xff}}},
		}
		checkChunks(t, s, want)
		time.Sleep(time.Second)
		close(hold)
		big := &lessorv1.FeedbackChunk_Text{Text: string(bytes.Repeat([]byte("z"), 3000))}
		checkChunks(t, s, []*lessorv1.FeedbackChunk{
			{Channel: "llm", Index: 4, Body: big, Metadata: map[string]string{worker.MetadataDropped: "3000"}},
			{Channel: "llm", Index: 5, Body: big},
			{Channel: "big", Index: 1, Body: &lessorv1.FeedbackChunk_Text{Text: "end"}, Metadata: map[string]string{worker.MetadataDropped: "9216"}},
		})
		f, _ := s.outcome()
		s.commit(f)
		r.shutdown()
	})
}

// With the defaults, the largest chunk that the coordinator takes is sent.
func TestLargestChunk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		hold := make(chan struct{})
		largest := worker.Chunk{Channel: "llm", Data: bytes.Repeat([]byte("z"), 64<<10), Metadata: map[string]string{}}
		for i := range 63 {
			largest.Metadata[fmt.Sprintf("%0256d", i)] = strings.Repeat("v", 256)
		}
		r := c.run(worker.Config{}, func(_ context.Context, task *worker.Task) ([]byte, error) {
			task.Emit(largest)
			<-hold
			return nil, nil
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		checkChunks(t, s, []*lessorv1.FeedbackChunk{{
			Channel: "llm", Body: &lessorv1.FeedbackChunk_Text{Text: string(largest.Data)}, Metadata: largest.Metadata,
		}})
		close(hold)
		f, _ := s.outcome()
		s.commit(f)
		r.shutdown()
	})
}

func checkChunks(t *testing.T, s *stream, want []*lessorv1.FeedbackChunk) {
	t.Helper()
	got := s.next("feedback", isFeedback).GetFeedback().GetItems()[0].GetChunks()
	if len(got) != len(want) {
		t.Fatalf("%d chunks, want %d: %v", len(got), len(want), got)
	}
	for i := range want {
		if !proto.Equal(got[i], want[i]) {
			t.Errorf("chunk %d = %.200v, want %.200v", i, got[i], want[i])
		}
	}
}
