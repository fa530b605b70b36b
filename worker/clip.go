package worker

import (
	"strings"
	"unicode/utf8"

	"github.com/lessor-dev/lessor/worker/internal/text"
)

// clip makes s valid UTF-8 of at most limit bytes. If it cuts s, the result is a copy: it may wait
// for long, and would keep all of s in memory.
func clip(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	return strings.Clone(s[:runeStart(s, limit)])
}

// clipID is clip for text that the coordinator treats as an identifier: at most maxID bytes, and
// each control character becomes a space.
func clipID(s string) string {
	return clip(strings.Map(func(r rune) rune {
		if text.IsControl(r) {
			return ' '
		}
		return r
	}, s), maxID)
}

// clipFront is like clip, but it keeps the end of s.
func clipFront(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	cut := len(s) - limit
	for cut < len(s) && !utf8.RuneStart(s[cut]) {
		cut++
	}
	return strings.Clone(s[cut:])
}

// runeStart returns the largest index, at most limit, at which s can be cut without splitting a
// rune.
func runeStart[T string | []byte](s T, limit int) int {
	for cut := limit; cut > limit-utf8.UTFMax && cut >= 0; cut-- {
		if utf8.RuneStart(s[cut]) {
			return cut
		}
	}
	return limit
}

// unfinishedRune returns how many bytes at the end of p are the beginning of a rune whose rest is
// missing.
func unfinishedRune(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if end := p[len(p)-n:]; utf8.RuneStart(end[0]) {
			if utf8.FullRune(end) {
				return 0
			}
			return n
		}
	}
	return 0
}
