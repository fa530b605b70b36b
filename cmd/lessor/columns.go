package main

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// columns returns how many columns of a terminal a text takes.
func columns(s string) (n int) {
	for _, r := range s {
		n += columnsOf(r)
	}
	return n
}

// columnsOf returns the columns of one character: two if it is a wide one, such as a Chinese
// character or an emoji, and none if it only changes the one before it, such as an accent.
func columnsOf(r rune) int {
	// of a Korean syllable that is written in parts, as in file names of macOS
	const firstVowel, lastFinal = 0x1160, 0x11ff
	if ' ' <= r && r <= '~' { // most characters, and the others take long to look up
		return 1
	}
	switch kind := width.LookupRune(r).Kind(); {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf), firstVowel <= r && r <= lastFinal:
		return 0
	case kind == width.EastAsianWide, kind == width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// padded returns a text with as many spaces behind it as it needs to take n columns.
func padded(s string, n int) string {
	return s + strings.Repeat(" ", max(n-columns(s), 0))
}

// clipped shortens a text, so that a table stays readable.
func clipped(s string) string {
	const most = 60
	return clippedTo(s, most)
}

// clippedTo shortens a text to at most so many columns.
func clippedTo(s string, most int) string {
	if columns(s) <= most {
		return s
	}
	used := 0
	for i, r := range s {
		if used += columnsOf(r); used >= most { // one column is for the ellipsis
			return s[:i] + "…"
		}
	}
	return s
}
