package coordinator

import (
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/lease"
)

// fields reads the fields of a request one by one and remembers the first that is bad, so that a parser reads top to bottom and
// checks once at its end. Names are paths, for example "retry_policy.max_backoff".
type fields struct {
	limits lease.Limits
	err    *lease.FieldError
}

// fail reports a bad field: its value's problem and the limit.
func (f *fields) fail(name, format string, args ...any) {
	f.keep(&lease.FieldError{Field: name, Problem: fmt.Sprintf(format, args...)})
}

func (f *fields) keep(err *lease.FieldError) {
	if f.err == nil {
		f.err = err
	}
}

// id reads an identifier, which may be empty.
func (f *fields) id(name, value string) string {
	f.keep(lease.CheckID(name, value, f.limits))
	return value
}

// required reads an identifier that must be there.
func (f *fields) required(name, value string) string {
	if value == "" {
		f.fail(name, "is empty")
	}
	return f.id(name, value)
}

func (f *fields) workspace(name, value string) string {
	w, err := workspace(name, value, f.limits)
	f.keep(err)
	return w
}

// taskID reads a task id. One of the wrong form names no task, as a random one does (S4).
func (f *fields) taskID(value string) (id lease.TaskID, known bool) {
	if f.required("task_id", value); f.err != nil {
		return lease.TaskID{}, false
	}
	return lease.ParseTaskID(value)
}

// longestSpan keeps a span within time.Duration; every limit is far below it.
const longestSpan = math.MaxInt64 / int64(time.Second)

// span reads a duration that can not be negative; absent is 0.
func (f *fields) span(name string, d *durationpb.Duration) time.Duration {
	switch {
	case d == nil:
		return 0
	case d.CheckValid() != nil || d.GetSeconds() >= longestSpan:
		f.fail(name, "is no valid duration: %d s and %d ns", d.GetSeconds(), d.GetNanos())
	case d.GetSeconds() < 0 || d.GetNanos() < 0:
		f.fail(name, "is %v; it can not be negative", d.AsDuration())
	}
	return d.AsDuration()
}

// latestSecond is the last that fits a lease.Wall.
const latestSecond = math.MaxInt64/int64(time.Second) - 1

// wall reads a timestamp; absent is 0. The very start of 1970 becomes the nanosecond after it, since it was sent.
func (f *fields) wall(name string, ts *timestamppb.Timestamp) lease.Wall {
	switch {
	case ts == nil:
		return 0
	case ts.CheckValid() != nil:
		f.fail(name, "is no valid timestamp: %d s and %d ns", ts.GetSeconds(), ts.GetNanos())
	case ts.GetSeconds() < 0:
		f.fail(name, "is %s; it can not lie before 1970", ts.AsTime().Format(time.RFC3339))
	case ts.GetSeconds() > latestSecond:
		f.fail(name, "is %s; the limit is %s", ts.AsTime().Format(time.RFC3339), time.Unix(latestSecond, 0).UTC().Format(time.RFC3339))
	}
	return max(1, lease.Wall(ts.GetSeconds()*int64(time.Second)+int64(ts.GetNanos())))
}

// maxItems is the most that anybody may ask for at once: tasks of a Lease, items of a page.
const maxItems = 1000

// items reads how many are asked for; 0 stands for the default.
func (f *fields) items(name string, value, def uint32) int {
	if value > maxItems {
		f.fail(name, "is %d; the limit is %d", value, maxItems)
	}
	if value == 0 {
		return int(def)
	}
	return int(value)
}

// count checks the length of a list or map.
func (f *fields) count(name string, n, most int) {
	if n > most {
		f.fail(name, "has %d entries; the limit is %d", n, most)
	}
}

// text checks the length of words for people.
func (f *fields) text(name, value string, most int) string {
	if len(value) > most {
		f.fail(name, "has %d bytes; the limit is %d", len(value), most)
	}
	return value
}

// enum reads an enum by its number: at most last, the zero value included.
func enum[T ~uint8, E ~int32](f *fields, name string, value E, last T) T {
	if value < 0 || int32(value) > int32(last) {
		f.fail(name, "is %d, which is none of its values", value)
		return 0
	}
	return T(value)
}

// queues reads a list of queue names, of which at least one is required.
func (f *fields) queues(name string, list []string) []string {
	if len(list) == 0 {
		f.fail(name, "is empty; at least one queue is required")
	}
	f.count(name, len(list), maxQueues)
	for i, value := range list[:min(len(list), maxQueues)] {
		f.required(fmt.Sprintf("%s[%d]", name, i), value)
	}
	return list
}

// types reads a list of task types. The empty type is one of its own.
func (f *fields) types(name string, list []string) []string {
	f.count(name, len(list), maxTypes)
	for i, value := range list[:min(len(list), maxTypes)] {
		f.id(fmt.Sprintf("%s[%d]", name, i), value)
	}
	return list
}

// typeLimits reads slots by type.
func (f *fields) typeLimits(name string, limits map[string]uint32) map[string]uint32 {
	f.count(name, len(limits), maxTypes)
	for typ, slots := range limits {
		field := fmt.Sprintf("%s[%q]", name, typ)
		if len(typ) > f.limits.ID {
			field = name
		}
		f.id(field, typ)
		if slots > maxParallel {
			f.fail(field, "is %d; the range is 0 to %d", slots, maxParallel)
		}
	}
	return limits
}

// under puts a prefix before the path of the field that an error is about; any other error stays as it is.
func under(prefix string, err error) error {
	var (
		field  *lease.FieldError
		exists *lease.ExistsError
	)
	switch {
	case errors.As(err, &field):
		return field.Under(prefix)
	case errors.As(err, &exists):
		moved := *exists
		moved.Field = prefix + "." + exists.Field
		return &moved
	}
	return err
}
