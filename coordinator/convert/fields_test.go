package convert

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

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
