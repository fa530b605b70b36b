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

// A piece of output may be as long as the limit.
func TestChunkAtItsLimit(t *testing.T) {
	for size, field := range map[int]string{maxChunkBytes: "", maxChunkBytes + 1: "chunks[1].body"} {
		for _, c := range []*lessorv1.FeedbackChunk{
			{Body: &lessorv1.FeedbackChunk_Text{Text: text(size)}}, {Body: &lessorv1.FeedbackChunk_Data{Data: make([]byte, size)}},
		} {
			_, bad := ParseFeedback(&lessorv1.FeedbackItem{TaskId: "t", LeaseId: "l", Chunks: []*lessorv1.FeedbackChunk{{}, c}}, lease.DefaultLimits())
			if (bad != nil) != (field != "") || bad != nil && bad.Field != field {
				t.Errorf("%d bytes: the error is %v, want one of %q", size, bad, field)
			}
		}
	}
}
