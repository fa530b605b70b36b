package httpapi

import (
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// instant is a wall time; the zero value is none.
type instant = time.Time

// stamp is a time as the protos have it; nil for none.
func stamp(t instant) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// instantOf is the time of a stamp, none for nil.
func instantOf(ts *timestamppb.Timestamp) instant {
	if ts == nil {
		return instant{}
	}
	return ts.AsTime()
}

// millis is a span in whole milliseconds.
type millis int64

// span is the span as the protos have it; nil for 0. Its limits are checked by the call.
func (m millis) span() *durationpb.Duration {
	if m == 0 {
		return nil
	}
	return &durationpb.Duration{Seconds: int64(m / 1000), Nanos: int32(m % 1000 * 1e6)}
}

func millisOf(d *durationpb.Duration) millis { return millis(d.AsDuration().Milliseconds()) }

// percent is a fraction as it was told in percent: 7, whose hundredth times 100 is 7.000000000000001.
func percent(fraction float64) float64 {
	const places = 1e10 // as many as stay whole on the way
	return math.Round(fraction*100*places) / places
}

// gauges leaves out what JSON has no number for: a worker may have reported a NaN over gRPC.
func gauges(all map[string]float64) map[string]float64 {
	finite := maps.Clone(all)
	maps.DeleteFunc(finite, func(_ string, v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
	return finite
}

// writeJSON answers with a body. A body is never kept by anybody on the way: it may hold tokens.
func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(body) // the caller is gone
}
