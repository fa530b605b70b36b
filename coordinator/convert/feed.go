package convert

import (
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// ProgressProto converts the newest progress of a running attempt.
func ProgressProto(f *lease.Feedback) *lessorv1.Progress {
	return &lessorv1.Progress{
		Fraction: f.Fraction,
		Message:  f.Message,
		Stage:    f.Stage,
		Metrics:  f.Metrics,
		Attempt:  f.Attempt,
	}
}

// ChunksProto converts pieces of output.
func ChunksProto(chunks []lease.Chunk) []*lessorv1.FeedbackChunk {
	all := make([]*lessorv1.FeedbackChunk, len(chunks))
	for i, c := range chunks {
		m := &lessorv1.FeedbackChunk{Channel: c.Channel, Index: c.Index, MimeType: c.MIMEType, Metadata: c.Metadata}
		if c.Data != nil {
			m.Body = &lessorv1.FeedbackChunk_Data{Data: c.Data}
		} else {
			m.Body = &lessorv1.FeedbackChunk_Text{Text: c.Text}
		}
		all[i] = m
	}
	return all
}
