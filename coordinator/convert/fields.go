package convert

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/internal/traceparent"
	"github.com/lessor-dev/lessor/lease"
)

// Limits of a worker's request for work.
const (
	MaxParallel = 10_000 // slots of a session, in all or for one type
	maxQueues   = 100
	maxTypes    = 1000
)

// MaxReason is the greatest length of the reason that a caller gives for a cancel or a release, in
// bytes.
const MaxReason = 1024

// DefaultWorkspace is the workspace of a request whose workspace_id is empty.
const DefaultWorkspace = "default"

// Fields reads the fields of a request one by one and remembers the first bad one in Err. So a
// parser can read from top to bottom and check once at its end. The names of fields are paths, for
// example "retry_policy.max_backoff".
type Fields struct {
	Limits lease.Limits
	Err    *lease.FieldError
}

// Fail reports a bad field. The text says what is wrong with its value, and the limit.
func (f *Fields) Fail(name, format string, args ...any) {
	f.keep(&lease.FieldError{Field: name, Problem: fmt.Sprintf(format, args...)})
}

func (f *Fields) keep(err *lease.FieldError) {
	if f.Err == nil {
		f.Err = err
	}
}

// ID reads an identifier, which may be empty.
func (f *Fields) ID(name, value string) string {
	f.keep(lease.CheckID(name, value, f.Limits))
	return value
}

// Traceparent reads a W3C trace context, which may be empty.
func (f *Fields) Traceparent(name, value string) string {
	if value != "" {
		if _, ok := traceparent.Parse(value); !ok {
			f.Fail(name, "is not a W3C trace context of version 00, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
		}
	}
	return value
}

// Required reads an identifier that must not be empty.
func (f *Fields) Required(name, value string) string {
	if value == "" {
		f.Fail(name, "must not be empty")
	}
	return f.ID(name, value)
}

// Workspace reads a workspace_id.
func (f *Fields) Workspace(name, value string) string {
	w, err := Workspace(name, value, f.Limits)
	f.keep(err)
	return w
}

// TaskID reads a task id. known is false if the id has the wrong form. Such an id is treated like
// the id of a task that does not exist (S4).
func (f *Fields) TaskID(value string) (id lease.TaskID, known bool) {
	if f.Required("task_id", value); f.Err != nil {
		return lease.TaskID{}, false
	}
	return lease.ParseTaskID(value)
}

// Span reads a duration, which must not be negative. An absent one is 0. One that does not fit into
// a time.Duration is refused with the limit most, because the caller could name it only as another
// one. With the limit NoLimit it becomes the longest that fits: the caller cuts it. All others are
// for the caller to compare with the limit.
func (f *Fields) Span(name string, d *durationpb.Duration, most time.Duration) time.Duration {
	seconds, nanos := d.GetSeconds(), int64(d.GetNanos())
	switch {
	case d == nil:
		return 0
	case nanos <= -int64(time.Second) || nanos >= int64(time.Second) || seconds > 0 && nanos < 0 ||
		seconds < 0 && nanos > 0:
		f.Fail(name, "is not a valid duration: %d s and %d ns", seconds, nanos)
	case seconds < 0 || nanos < 0:
		f.Fail(name, "is %s; it cannot be negative", spanText(d))
	case d.AsDuration() == NoLimit && most != NoLimit:
		f.Fail(name, "is %s; the limit is %v", spanText(d), most)
	}
	return d.AsDuration()
}

// NoLimit is the limit of a span that is cut, not refused, if it is too long.
const NoLimit time.Duration = math.MaxInt64

// spanText returns a valid duration as Go writes it, or only in seconds if it does not fit into a
// time.Duration.
func spanText(d *durationpb.Duration) string {
	if v := d.AsDuration(); v != math.MinInt64 && v != math.MaxInt64 {
		return v.String()
	}
	text := strconv.FormatInt(d.GetSeconds(), 10)
	if nanos := max(d.GetNanos(), -d.GetNanos()); nanos != 0 {
		text += strings.TrimRight(fmt.Sprintf(".%09d", nanos), "0")
	}
	return text + "s"
}

// latestSecond is the latest time that fits into a lease.Wall, in seconds since 1970.
const latestSecond = math.MaxInt64/int64(time.Second) - 1

// Wall reads a timestamp. An absent one is 0. The first instant of 1970 becomes 1 ns, so that it
// does not look absent.
func (f *Fields) Wall(name string, ts *timestamppb.Timestamp) lease.Wall {
	switch {
	case ts == nil:
		return 0
	case ts.CheckValid() != nil:
		f.Fail(name, "is not a valid timestamp: %d s and %d ns", ts.GetSeconds(), ts.GetNanos())
	case ts.GetSeconds() < 0:
		f.Fail(name, "is %s; it cannot be before 1970", ts.AsTime().Format(time.RFC3339))
	case ts.GetSeconds() > latestSecond:
		f.Fail(name, "is %s; the limit is %s",
			ts.AsTime().Format(time.RFC3339), time.Unix(latestSecond, 0).UTC().Format(time.RFC3339))
	}
	return max(1, lease.Wall(ts.GetSeconds()*int64(time.Second)+int64(ts.GetNanos())))
}

// maxItems is how many tasks of a Lease, or items of a page, a caller may ask for.
const maxItems = 1000

// Items reads how many items a caller asks for; 0 means def.
func (f *Fields) Items(name string, value, def uint32) int {
	if value > maxItems {
		f.Fail(name, "is %d; the limit is %d", value, maxItems)
	}
	if value == 0 {
		return int(def)
	}
	return int(value)
}

// Count checks the length of a list or map.
func (f *Fields) Count(name string, n, most int) {
	if n > most {
		f.Fail(name, "has %d entries; the limit is %d", n, most)
	}
}

// Text checks the length in bytes of a text for people.
func (f *Fields) Text(name, value string, most int) string {
	if len(value) > most {
		f.Fail(name, "has %d bytes; the limit is %d", len(value), most)
	}
	return value
}

// enum reads an enum by its number, from 0 to last.
func enum[T ~uint8, E ~int32](f *Fields, name string, value E, last T) T {
	if value < 0 || int32(value) > int32(last) {
		f.Fail(name, "is %d, which is not a known value", value)
		return 0
	}
	return T(value)
}

// Queues reads a list of queue names, of which at least one is required.
func (f *Fields) Queues(name string, list []string) []string {
	if len(list) == 0 {
		f.Fail(name, "must not be empty; name at least one queue")
	}
	f.Count(name, len(list), maxQueues)
	for i, value := range list[:min(len(list), maxQueues)] {
		f.Required(fmt.Sprintf("%s[%d]", name, i), value)
		if f.Err == nil { // otherwise it may be long
			list[i] = queueNames.shared(value)
		}
	}
	return list
}

// queueNames has names of queues that workers wait for: thousands of them wait for the same ones,
// and each request brings its own copy.
var queueNames names

// names has some of the strings that were seen last.
type names [4096]atomic.Pointer[string]

var namesSeed = maphash.MakeSeed()

// shared returns a string that is equal to s and, if there was one, one that it has returned
// before, so that they share memory.
func (n *names) shared(s string) string {
	slot := &n[maphash.String(namesSeed, s)%uint64(len(n))]
	if known := slot.Load(); known != nil && *known == s {
		return *known
	}
	slot.Store(&s)
	return s
}

// types reads a list of task types. The empty string is a type like the others.
func (f *Fields) types(name string, list []string) []string {
	f.Count(name, len(list), maxTypes)
	for i, value := range list[:min(len(list), maxTypes)] {
		f.ID(fmt.Sprintf("%s[%d]", name, i), value)
	}
	return list
}

// TypeLimits reads the numbers of slots by task type.
func (f *Fields) TypeLimits(name string, limits map[string]uint32) map[string]uint32 {
	f.Count(name, len(limits), maxTypes)
	for typ, slots := range limits {
		field := fmt.Sprintf("%s[%q]", name, typ)
		if len(typ) > f.Limits.ID {
			field = name
		}
		f.ID(field, typ)
		if slots > MaxParallel {
			f.Fail(field, "is %d; the range is 0 to %d", slots, MaxParallel)
		}
	}
	return limits
}

// Under puts a prefix before the field's path in an error about a field. It returns any other error
// unchanged.
func Under(prefix string, err error) error {
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

// Workspace reads a workspace_id.
func Workspace(field, id string, l lease.Limits) (string, *lease.FieldError) {
	if id == "" {
		return DefaultWorkspace, nil
	}
	return id, lease.CheckID(field, id, l)
}
