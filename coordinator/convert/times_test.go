package convert

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/lease"
)

// Times converts like packages timestamppb and durationpb, whether it has cached the value or not.
// Later conversions do not change cached values.
func TestTimes(t *testing.T) {
	at := &Times{Now: lease.Now{Serving: 1000, Wall: 5_000_000_000}}
	walls := []lease.Wall{1, 999_999_999, 1_000_000_000, 1_790_000_000_123_456_789, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1}
	spans := []time.Duration{
		1, time.Second - 1, time.Second, 90*time.Minute + 1, -1, -time.Second - 1, 1, 2, 3, 4, 5,
		6, 7, 8, 9, 1,
	}
	var stamps []*timestamppb.Timestamp
	for _, w := range walls {
		stamps = append(stamps, at.Stamp(w))
	}
	var durations []*durationpb.Duration
	for _, d := range spans {
		durations = append(durations, at.Span(d))
	}
	for i, w := range walls {
		if want := timestamppb.New(w.Time()); !proto.Equal(stamps[i], want) {
			t.Errorf("%d is %v, want %v", w, stamps[i], want)
		}
	}
	for i, d := range spans {
		if want := durationpb.New(d); !proto.Equal(durations[i], want) {
			t.Errorf("%v is %v, want %v", d, durations[i], want)
		}
	}
	if stamp, span := at.Stamp(1), at.Span(1); stamp != at.Stamp(1) || span != at.Span(1) {
		t.Error("the last value was not cached")
	}
	if at.Stamp(0) != nil || at.StampAt(0) != nil || at.Span(0) != nil || at.Left(0) != nil {
		t.Error("a missing time is converted to a message, want nil")
	}
	if left := at.Left(500); left == nil || left.AsDuration() != 0 {
		t.Errorf("the time left before an instant in the past is %v, want 0", left)
	}
	if got := at.StampAt(2000); got.AsTime() != time.Unix(5, 1000).UTC() {
		t.Errorf("StampAt returned %v, want 1000 ns after now", got)
	}
}
