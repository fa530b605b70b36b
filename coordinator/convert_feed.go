package coordinator

import (
	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// progressProto is nil where the news says nothing of progress.
func progressProto(f *engine.Feed) *lessorv1.Progress {
	if f.Fraction == 0 && f.Stage == "" && f.Message == "" {
		return nil
	}
	return &lessorv1.Progress{Fraction: f.Fraction, Message: f.Message, Stage: f.Stage}
}

func chunksProto(chunks []engine.Chunk) []*lessorv1.FeedbackChunk {
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
