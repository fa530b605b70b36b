package convert

import (
	"fmt"

	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// Bounds of one feedback item. Feedback is not durable; a worker that has more to say sends another
// item.
const (
	maxChunks     = 256
	maxChunkBytes = 64 << 10
)

// ParseFeedback reads progress and output of a running attempt.
func ParseFeedback(m *lessorv1.FeedbackItem, l lease.Limits) (engine.Feed, *lease.FieldError) {
	f := Fields{Limits: l}
	feed := engine.Feed{
		TaskID:  f.Required("task_id", m.GetTaskId()),
		LeaseID: f.Required("lease_id", m.GetLeaseId()),
		Stage:   f.ID("stage", m.GetStage()),
		Message: f.Text("message", m.GetMessage(), l.Stack),
		Metrics: ParseMetrics(&f, m.GetMetrics()),
	}
	parseFraction(&f, "progress", m.GetProgress())
	if m.GetZeroProgress() && m.GetProgress() != 0 {
		f.Fail("zero_progress", "is set, but progress is %v", m.GetProgress())
	}
	if m.GetProgress() != 0 || m.GetZeroProgress() {
		feed.Fraction = new(m.GetProgress())
	}
	f.Count("chunks", len(m.GetChunks()), maxChunks)
	for i, c := range m.GetChunks()[:min(len(m.GetChunks()), maxChunks)] {
		feed.Chunks = append(feed.Chunks, parseChunk(&f, fmt.Sprintf("chunks[%d].", i), c))
	}
	return feed, f.Err
}

func parseChunk(f *Fields, path string, m *lessorv1.FeedbackChunk) lease.Chunk {
	field, n := "text", len(m.GetText()) // body is a oneof: no field has that name
	if data := m.GetData(); data != nil {
		field, n = "data", len(data)
	}
	if n > maxChunkBytes {
		f.Fail(path+field, "has %d bytes; the limit is %d", n, maxChunkBytes)
	}
	checkMetadata(f, path+"metadata", m.GetMetadata())
	return lease.Chunk{
		Channel:  f.ID(path+"channel", m.GetChannel()),
		Index:    m.GetIndex(),
		MIMEType: f.ID(path+"mime_type", m.GetMimeType()),
		Text:     m.GetText(),
		Data:     m.GetData(),
		Metadata: m.GetMetadata(),
	}
}

func checkMetadata(f *Fields, path string, m map[string]string) {
	f.Count(path, len(m), f.Limits.Labels)
	for k, v := range m {
		f.ID(path, k)
		f.ID(path, v)
	}
}

// HeartbeatFeed returns the progress in a heartbeat, for watchers. Unlike in a feedback item, a
// progress without a fraction means 0. ok is false if the heartbeat has neither progress nor
// metrics.
func HeartbeatFeed(m *lessorv1.HeartbeatRequest) (feed engine.Feed, ok bool) {
	p := m.GetProgress()
	if p == nil && len(m.GetMetrics()) == 0 {
		return feed, false
	}
	feed = engine.Feed{
		TaskID: m.GetTaskId(), LeaseID: m.GetLeaseId(), Stage: p.GetStage(),
		Message: p.GetMessage(), Metrics: m.GetMetrics(),
	}
	if p != nil {
		feed.Fraction = new(p.GetFraction())
	}
	return feed, true
}
