package convert

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// A heartbeat that has only metrics is shown to watchers, too.
func TestHeartbeatFeed(t *testing.T) {
	metrics := map[string]float64{"loss": 0.5}
	zero := 0.0
	for name, tt := range map[string]struct {
		beat *lessorv1.HeartbeatRequest
		want engine.Feed
		ok   bool
	}{
		"nothing":  {&lessorv1.HeartbeatRequest{TaskId: "t", LeaseId: "l"}, engine.Feed{}, false},
		"metrics":  {&lessorv1.HeartbeatRequest{TaskId: "t", LeaseId: "l", Metrics: metrics}, engine.Feed{TaskID: "t", LeaseID: "l", Metrics: metrics}, true},
		"progress": {&lessorv1.HeartbeatRequest{TaskId: "t", LeaseId: "l", Progress: &lessorv1.Progress{Stage: "s", Message: "m"}}, engine.Feed{TaskID: "t", LeaseID: "l", Fraction: &zero, Stage: "s", Message: "m"}, true},
	} {
		got, ok := HeartbeatFeed(tt.beat)
		if diff := cmp.Diff(tt.want, got); diff != "" || ok != tt.ok {
			t.Errorf("%s: ok is %v, want %v; -want +got:\n%s", name, ok, tt.ok, diff)
		}
	}
}

// A piece of output may be as long as the limit. An error about a longer one names its field, which
// is not the oneof around it.
func TestChunkAtItsLimit(t *testing.T) {
	for _, size := range []int{maxChunkBytes, maxChunkBytes + 1} {
		for field, c := range map[string]*lessorv1.FeedbackChunk{
			"chunks[1].text": {Body: &lessorv1.FeedbackChunk_Text{Text: text(size)}},
			"chunks[1].data": {Body: &lessorv1.FeedbackChunk_Data{Data: make([]byte, size)}},
		} {
			_, bad := ParseFeedback(&lessorv1.FeedbackItem{
				TaskId: "t", LeaseId: "l",
				Chunks: []*lessorv1.FeedbackChunk{{}, c},
			}, lease.DefaultLimits())
			if (bad != nil) != (size > maxChunkBytes) || bad != nil && bad.Field != field {
				t.Errorf("%s of %d bytes: the error is %v, want one of that field only above %d", field, size, bad, maxChunkBytes)
			}
		}
	}
}

// An item of feedback is converted with all that it says. Its progress is 0 only if it says so.
func TestFeedbackIsConverted(t *testing.T) {
	half, zero := 0.5, 0.0
	for name, tt := range map[string]struct {
		progress float64
		isZero   bool
		want     *float64
	}{"none": {0, false, nil}, "zero": {0, true, &zero}, "half": {0.5, false, &half}} {
		got, bad := ParseFeedback(&lessorv1.FeedbackItem{
			TaskId: "t", LeaseId: "l", Stage: "s", Message: "m", Metrics: gauges(1), Progress: tt.progress,
			ZeroProgress: tt.isZero,
			Chunks: []*lessorv1.FeedbackChunk{{
				Channel: "c", Index: 3, MimeType: "text/plain", Body: &lessorv1.FeedbackChunk_Text{Text: "x"},
				Metadata: labels(1),
			}},
		}, lease.DefaultLimits())
		want := engine.Feed{
			TaskID: "t", LeaseID: "l", Stage: "s", Message: "m", Metrics: gauges(1), Fraction: tt.want,
			Chunks: []lease.Chunk{{Channel: "c", Index: 3, MIMEType: "text/plain", Text: "x", Metadata: labels(1)}},
		}
		if diff := cmp.Diff(want, got); diff != "" || bad != nil {
			t.Errorf("%s: the error is %v, want none; -want +got:\n%s", name, bad, diff)
		}
	}
}

// S4, S7: the error for a bad item of feedback has the path of the field, the problem, and the
// limit.
func TestFeedbackIsChecked(t *testing.T) {
	t.Attr("rules", "S4 S7")
	chunk := func(metadata map[string]string) *lessorv1.FeedbackItem {
		return &lessorv1.FeedbackItem{Chunks: []*lessorv1.FeedbackChunk{{}, {Metadata: metadata}}}
	}
	for _, tt := range []struct {
		name           string
		item           *lessorv1.FeedbackItem
		field, problem string
	}{
		{"progress at its end", &lessorv1.FeedbackItem{Progress: 1}, "", ""},
		{"progress over", &lessorv1.FeedbackItem{Progress: 1.01}, "progress", "0 to 1"},
		{"progress and none", &lessorv1.FeedbackItem{Progress: 0.5, ZeroProgress: true}, "zero_progress", "progress is 0.5"},
		{"stage over", &lessorv1.FeedbackItem{Stage: text(257)}, "stage", "the limit is 256"},
		{"gauges over", &lessorv1.FeedbackItem{Metrics: gauges(65)}, "metrics", "the limit is 64"},
		{"chunks at the limit", &lessorv1.FeedbackItem{Chunks: make([]*lessorv1.FeedbackChunk, 256)}, "", ""},
		{"chunks over", &lessorv1.FeedbackItem{Chunks: make([]*lessorv1.FeedbackChunk, 257)}, "chunks", "has 257 entries; the limit is 256"},
		{"metadata at the limit", chunk(labels(64)), "", ""},
		{"metadata over", chunk(labels(65)), "chunks[1].metadata", "has 65 entries; the limit is 64"},
		{"metadata's key over", chunk(map[string]string{text(257): ""}), "chunks[1].metadata", "the limit is 256"},
		{"metadata's value over", chunk(map[string]string{"k": text(257)}), "chunks[1].metadata", "the limit is 256"},
	} {
		tt.item.TaskId, tt.item.LeaseId = "t", "l"
		var err error
		if _, bad := ParseFeedback(tt.item, lease.DefaultLimits()); bad != nil {
			err = bad
		}
		wantField(t, tt.name, err, tt.field, tt.problem, "")
	}
}
