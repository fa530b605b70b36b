package main

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// when is a flag that holds a point in time: RFC 3339, or a span from now.
type when struct {
	time.Time
	ago time.Duration // how long ago, if it was given as a span before now
}

// UnmarshalText reads the flag. The zero time, which programs in Go print for none, is refused: it
// would be taken for a flag that was left out, and a filter would select every task.
func (w *when) UnmarshalText(text []byte) error {
	if d, err := time.ParseDuration(string(text)); err == nil {
		w.Time, w.ago = time.Now().Add(d), max(-d, 0)
		return nil
	}
	t, err := time.Parse(time.RFC3339, string(text))
	if err != nil || t.IsZero() {
		return fmt.Errorf("%q is neither a time such as 2026-12-01T06:00:00Z nor a span such as 10m", text)
	}
	w.Time, w.ago = t, 0
	return nil
}

// checkSpan refuses a time between --since and --until, or flags whose names have a prefix before
// that, in which nothing can be; hint is for one that ends before it begins.
func checkSpan(prefix string, since, until when, hint string) error {
	switch {
	case since.After(time.Now()):
		return fail(exitUsage, "-5m is five minutes ago", "--%ssince: %s is in the future",
			prefix, since.Format(time.RFC3339))
	case !since.IsZero() && !until.IsZero() && !until.After(since.Time):
		return fail(exitUsage, hint, "--%suntil: %s is not after --%[1]ssince, %[3]s",
			prefix, until.Format(time.RFC3339), since.Format(time.RFC3339))
	}
	return nil
}

// timestamp returns nil if the flag was not given.
func (w when) timestamp() *timestamppb.Timestamp {
	if w.IsZero() {
		return nil
	}
	return timestamppb.New(w.Time)
}

// span converts a duration; 0, which means the default, is nil.
func span(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}
