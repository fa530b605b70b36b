package httpapi

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/lease"
)

// instant is a wall time; the zero value means no time.
type instant struct{ time.Time }

// UnmarshalJSON reads a time. That of time.Time does not know the escapes of JSON, and some
// encoders write "+" as an escape.
func (t *instant) UnmarshalJSON(raw []byte) error {
	var text *string
	if err := json.Unmarshal(raw, &text); err != nil || text == nil {
		return err
	}
	return t.UnmarshalText([]byte(*text))
}

// UnmarshalText reads a time. Its error follows the name of the field.
func (t *instant) UnmarshalText(text []byte) error {
	if t.Time.UnmarshalText(text) != nil {
		return errors.New("is not an RFC 3339 time such as 2026-01-15T10:00:00Z")
	}
	return nil
}

// stamp converts a time to a proto timestamp, and the zero time to nil.
func stamp(t instant) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t.Time)
}

// instantOf converts a proto timestamp to a time, and nil to the zero time.
func instantOf(ts *timestamppb.Timestamp) instant {
	if ts == nil {
		return instant{}
	}
	return instant{ts.AsTime()}
}

// millis is a duration in whole milliseconds.
type millis int64

// Limits returns the least span, and the greatest number that fits; see strictjson.Limited. The
// fields have limits of their own, far below that.
func (millis) Limits() (least int64, most uint64) { return 0, math.MaxInt64 }

// Numbers of which the gRPC calls accept fewer than fit; see strictjson.Defaulted.
type (
	items            uint32 // tasks of a lease, or items of a page
	budget           uint32 // failures or losses
	concurrencyLimit uint32 // leases of a concurrency key
)

// Limits returns the limits of package convert, which a client does not know.
func (items) Limits() (least int64, most uint64) { return 1, 1000 }

// Limits returns those of a RetryPolicy.
func (budget) Limits() (least int64, most uint64) { return 1, lease.MaxBudget }

// Limits returns those of concurrency_limit.
func (concurrencyLimit) Limits() (least int64, most uint64) { return 1, lease.MaxConcurrency }

func (items) ZeroIsDefault()            {}
func (budget) ZeroIsDefault()           {}
func (concurrencyLimit) ZeroIsDefault() {}

// span converts m to a proto duration, and 0 to nil. The gRPC call checks the limits.
func (m millis) span() *durationpb.Duration {
	if m == 0 {
		return nil
	}
	return &durationpb.Duration{Seconds: int64(m / 1000), Nanos: int32(m % 1000 * 1e6)}
}

func millisOf(d *durationpb.Duration) millis { return millis(d.AsDuration().Milliseconds()) }

// percent converts a fraction back to the percentage that the worker sent: 7 is stored as 0.07, and
// 0.07 times 100 is 7.000000000000001.
func percent(fraction float64) float64 {
	const places = 1e10 // a double holds ten decimal places of a percentage
	return math.Round(fraction*100*places) / places
}

// gauges leaves out values that JSON cannot hold: over gRPC a worker may have reported a NaN.
func gauges(all map[string]float64) map[string]float64 {
	finite := maps.Clone(all)
	maps.DeleteFunc(finite, func(_ string, v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
	return finite
}

// entries is a map in a callback. An entry that is null is not sent. Package json would read it as
// 0 or "", and JavaScript writes NaN as null.
type entries[V any] map[string]V

// UnmarshalJSON reads an object.
func (e *entries[V]) UnmarshalJSON(raw []byte) error {
	var sent map[string]*V
	if err := json.Unmarshal(raw, &sent); err != nil || sent == nil {
		return err
	}
	*e = make(entries[V], len(sent))
	for key, value := range sent {
		if value != nil {
			(*e)[key] = *value
		}
	}
	return nil
}
