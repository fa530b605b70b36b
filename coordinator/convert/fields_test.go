package convert

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	"unsafe"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/lease"
)

// Under moves errors about fields to another path, and leaves any other error as it is.
func TestUnder(t *testing.T) {
	field, exists := &lease.FieldError{Field: "queue", Problem: "p"}, &lease.ExistsError{Field: "idempotency_key", Key: "k"}
	if got := new(lease.FieldError); !errors.As(Under("tasks[1]", field), &got) || got.Field != "tasks[1].queue" || field.Field != "queue" {
		t.Errorf("the field is %q, want tasks[1].queue; that of the first error has become %q", got.Field, field.Field)
	}
	if got := new(lease.ExistsError); !errors.As(Under("tasks[1]", exists), &got) || got.Field != "tasks[1].idempotency_key" || exists.Field != "idempotency_key" {
		t.Errorf("the field is %q, want tasks[1].idempotency_key; that of the first error has become %q", got.Field, exists.Field)
	}
	if got := Under("tasks[1]", lease.ErrNotFound); !errors.Is(got, lease.ErrNotFound) {
		t.Errorf("another error becomes %v", got)
	}
}

// Requests that name the same queues share the memory of the names. Names that are refused are not
// kept, since they may be long.
func TestNamesOfQueuesAreShared(t *testing.T) {
	parse := func(name string) (got string, ok bool) {
		f := &Fields{Limits: lease.DefaultLimits()}
		got = f.Queues("queues", []string{name})[0]
		return got, f.Err == nil
	}
	for _, name := range []string{"mail", "thumbs"} {
		first, ok1 := parse(name)
		second, ok2 := parse(strings.Clone(name))
		if !ok1 || !ok2 || first != name || second != name {
			t.Fatalf("got %s and %s, accepted: %v and %v, want %s", first, second, ok1, ok2, name)
		}
		if unsafe.StringData(first) != unsafe.StringData(second) {
			t.Errorf("two requests that name %s do not share the memory of the name", name)
		}
	}
	long := strings.Repeat("x", 1000)
	if _, ok := parse(long); ok {
		t.Fatal("a long name is accepted")
	}
	if got := queueNames.shared(strings.Clone(long)); unsafe.StringData(got) == unsafe.StringData(long) {
		t.Error("a name that was refused is kept")
	}
}

// S4: an error about a duration names what was sent, also if no time.Duration holds it.
func TestSpansAreNamedAsSent(t *testing.T) {
	t.Attr("rules", "S4")
	for _, c := range []struct {
		seconds int64
		nanos   int32
		want    string // empty: no error here
	}{
		{3601, 0, ""}, // only the caller compares what fits
		{math.MaxInt64 / 1_000_000_000, 854775807, "is 9223372036.854775807s; the limit is 1h0m0s"},
		{315_576_000_001, 0, "is 315576000001s; the limit is 1h0m0s"},
		{1 << 62, 500_000_000, "is 4611686018427387904.5s; the limit is 1h0m0s"},
		{-5, -500_000_000, "is -5.5s; it cannot be negative"},
		{math.MinInt64, -1, "is -9223372036854775808.000000001s; it cannot be negative"},
		{1 << 62, -1, "is not a valid duration: 4611686018427387904 s and -1 ns"},
	} {
		sent := &durationpb.Duration{Seconds: c.seconds, Nanos: c.nanos}
		f, got := Fields{}, ""
		f.Span("wait", sent, time.Hour)
		if f.Err != nil {
			got = f.Err.Problem
		}
		if got != c.want {
			t.Errorf("%v: the problem is %q, want %q", sent, got, c.want)
		}
	}
	cut := Fields{}
	if d := cut.Span("wait", &durationpb.Duration{Seconds: 1 << 62}, NoLimit); d != math.MaxInt64 || cut.Err != nil {
		t.Errorf("without a limit: %v (%v), want the longest duration", d, cut.Err)
	}
}
