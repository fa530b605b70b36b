// Package words says in few words what messages of lessor.v1 mean. The command and the page use the same words. Times are not among them: each shows them
// in its own way.
package words

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Name returns an enum value without the prefix of its enum: READY for TASK_STATE_READY.
func Name(value protoreflect.Enum) string {
	all := value.Descriptor().Values()
	prefix := strings.TrimSuffix(string(all.ByNumber(0).Name()), "UNSPECIFIED")
	if known := all.ByNumber(value.Number()); known != nil {
		return strings.TrimPrefix(string(known.Name()), prefix)
	}
	return fmt.Sprint(value.Number()) // of a newer coordinator
}

// Misleads reports whether a character in a text of somebody else would change what stands beside the text: it controls a terminal, turns the direction of
// text around, or ends a line.
func Misleads(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
}

// Bytes returns a size in the largest unit that fits.
func Bytes(n uint64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	size, suffix := float64(n)/unit, "KiB"
	for _, next := range []string{"MiB", "GiB", "TiB"} {
		if size < unit {
			break
		}
		size, suffix = size/unit, next
	}
	return fmt.Sprintf("%.1f %s", size, suffix)
}

// Age returns a span in its largest unit.
func Age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// Span returns a duration, rounded as far as people need it.
func Span(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < 48*time.Hour:
		return d.Round(time.Second).String()
	}
	hours := int(d.Round(time.Hour).Hours())
	return fmt.Sprintf("%dd%dh", hours/24, hours%24)
}
