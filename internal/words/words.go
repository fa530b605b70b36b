// Package words says in few words what messages of lessor.v1 mean. The command and the page use the
// same words. Times are not among them: each shows them in its own way.
package words

import (
	"fmt"
	"strconv"
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

// Misleads reports whether a character in a text of somebody else would change what stands beside
// the text, or would hide: it controls a terminal, turns the direction of text around, ends a line,
// or takes no room, so that two names look the same.
func Misleads(r rune) bool {
	if ' ' <= r && r <= '~' { // almost all
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Bidi_Control, unicode.Zl, unicode.Zp, hidden)
}

// Visible returns a text in which characters that mislead, except for these, are written as
// numbers: \x1b, \u202e. The coordinator quotes names in the same form.
func Visible(text, except string) string {
	misleads := func(r rune) bool { return Misleads(r) && !strings.ContainsRune(except, r) }
	if !strings.ContainsFunc(text, misleads) {
		return text
	}
	var shown strings.Builder
	for _, r := range text {
		if misleads(r) {
			quoted := strconv.QuoteToASCII(string(r))
			shown.WriteString(quoted[1 : len(quoted)-1])
		} else {
			shown.WriteRune(r)
		}
	}
	return shown.String()
}

// hidden are characters that are shown as nothing. The joiners, U+200C and U+200D, and the
// selectors of variants are not among them: they change how the letters and emoji beside them are
// drawn. They can make a name look like another one all the same, and so can letters of different
// scripts.
var hidden = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x00ad, 0x00ad, 1}, // soft hyphen
		{0x115f, 0x1160, 1}, // fillers of Hangul
		{0x180e, 0x180e, 1}, // vowel separator of Mongolian
		{0x200b, 0x200b, 1}, // zero width space
		{0x2060, 0x2064, 1}, // word joiner, invisible operators
		{0x206a, 0x206f, 1}, // deprecated
		{0x3164, 0x3164, 1}, // filler of Hangul
		{0xfeff, 0xfeff, 1}, // byte order mark
		{0xffa0, 0xffa0, 1}, // filler of Hangul
	},
	R32:         []unicode.Range32{{0xe0000, 0xe007f, 1}}, // tags: hidden ASCII
	LatinOffset: 1,
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

// Age returns a span in its two largest units, 1m59s or 3d4h, without the smaller one if it would
// be 0. What is left is cut off.
func Age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return inUnits(d, time.Minute, "m", time.Second, "s")
	case d < 48*time.Hour:
		return inUnits(d, time.Hour, "h", time.Minute, "m")
	}
	return inUnits(d, 24*time.Hour, "d", time.Hour, "h")
}

func inUnits(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d%s", d/large, largeName)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf("%d%s", rest, smallName)
	}
	return text
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
