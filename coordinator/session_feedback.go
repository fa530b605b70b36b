package coordinator

import (
	"fmt"

	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// Bounds of one feedback item; it is not durable, and a worker that has more to say sends it later.
const (
	maxChunks     = 256
	maxChunkBytes = 64 << 10
)

// feedback passes volatile news of running attempts on.
func (ss *session) feedback(corr string, m *lessorv1.Feedback) {
	if !ss.fits(corr, "feedback.items", len(m.GetItems())) {
		return
	}
	var feeds []engine.Feed
	for i, item := range m.GetItems() {
		feed, err := parseFeedback(item, ss.c.cfg.Limits)
		if err != nil {
			ss.out.fail(corr, codeInvalid, err.Under(fmt.Sprintf("feedback.items[%d]", i)).Error(), "")
			continue
		}
		feeds = append(feeds, feed)
	}
	if bytes := ss.size + answerSize; ss.out.reserve(bytes) {
		ss.c.engine.FeedAll(ss.who.Tenant, feeds, func() { ss.out.release(bytes) })
	}
}

// parseFeedback reads volatile news of a running attempt.
func parseFeedback(m *lessorv1.FeedbackItem, l lease.Limits) (engine.Feed, *lease.FieldError) {
	f := fields{limits: l}
	feed := engine.Feed{
		TaskID: f.required("task_id", m.GetTaskId()), LeaseID: f.required("lease_id", m.GetLeaseId()),
		Fraction: m.GetProgress(), Stage: f.id("stage", m.GetStage()), Message: f.text("message", m.GetMessage(), l.Stack),
		Metrics: parseMetrics(&f, m.GetMetrics()),
	}
	parseFraction(&f, "progress", m.GetProgress())
	f.count("chunks", len(m.GetChunks()), maxChunks)
	for i, c := range m.GetChunks()[:min(len(m.GetChunks()), maxChunks)] {
		feed.Chunks = append(feed.Chunks, parseChunk(&f, fmt.Sprintf("chunks[%d].", i), c))
	}
	return feed, f.err
}

func parseChunk(f *fields, path string, m *lessorv1.FeedbackChunk) engine.Chunk {
	if n := max(len(m.GetText()), len(m.GetData())); n > maxChunkBytes {
		f.fail(path+"body", "has %d bytes; the limit is %d", n, maxChunkBytes)
	}
	f.keep(checkMetadata(f, path+"metadata", m.GetMetadata()))
	return engine.Chunk{
		Channel: f.id(path+"channel", m.GetChannel()), Index: m.GetIndex(), MIMEType: f.id(path+"mime_type", m.GetMimeType()),
		Text: m.GetText(), Data: m.GetData(), Metadata: m.GetMetadata(),
	}
}

func checkMetadata(f *fields, path string, m map[string]string) *lease.FieldError {
	f.count(path, len(m), f.limits.Labels)
	for k, v := range m {
		if err := lease.CheckID(path, k, f.limits); err != nil {
			return err
		}
		if err := lease.CheckID(path, v, f.limits); err != nil {
			return err
		}
	}
	return nil
}

// feedProgress passes the progress that a heartbeat carries to whoever watches. Only the renewal beside it is durable.
func (e *edge) feedProgress(tenant string, m *lessorv1.HeartbeatRequest) {
	p := m.GetProgress()
	if p == nil && len(m.GetMetrics()) == 0 {
		return
	}
	e.engine.Feed(tenant, engine.Feed{
		TaskID: m.GetTaskId(), LeaseID: m.GetLeaseId(),
		Fraction: p.GetFraction(), Stage: p.GetStage(), Message: p.GetMessage(), Metrics: m.GetMetrics(),
	})
}
