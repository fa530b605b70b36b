package web

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// timeLimit is a parameter that limits a time of the tasks, and the field of a filter for it.
type timeLimit struct {
	name string
	at   **timestamppb.Timestamp
}

func timeLimits(f *lessorv1.TaskFilter) []timeLimit {
	return []timeLimit{
		{"ended_since", &f.FinishedAfter},
		{"ended_until", &f.FinishedBefore},
		{"since", &f.CreatedAfter},
		{"until", &f.CreatedBefore},
	}
}

// readTimes reads the limits on the times of tasks into a filter.
func readTimes(query url.Values, now time.Time, filter *lessorv1.TaskFilter) error {
	for _, limit := range timeLimits(filter) {
		text := strings.TrimSpace(query.Get(limit.name))
		if text == "" {
			continue
		}
		at, err := timeOf(text, now)
		if err != nil {
			return malformed(limit.name, err.Error())
		}
		if strings.HasSuffix(limit.name, "since") && at.After(now) {
			return malformed(limit.name, text+" is in the future; -1h is an hour ago")
		}
		*limit.at = timestamppb.New(at)
	}
	return nil
}

// layouts are RFC 3339, what the page shows, and the beginnings of both.
var layouts = []string{
	time.RFC3339, "2006-01-02 15:04:05 UTC", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04:05",
	"2006-01-02T15:04", time.DateOnly,
}

// timeOf reads a time, in UTC if it does not say in which zone, or a span from now.
func timeOf(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(d), nil
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is neither a time such as 2026-12-01T06:00:00Z nor a span such as -1h", text)
}

// fixed returns the limits of a filter as parameters that do not move with the clock: all pages of
// a list have the same filter.
func fixed(f *lessorv1.TaskFilter) url.Values {
	values := url.Values{}
	for _, limit := range timeLimits(f) {
		if *limit.at != nil {
			values.Set(limit.name, (*limit.at).AsTime().Format(time.RFC3339Nano))
		}
	}
	return values
}
