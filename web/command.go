package web

import (
	"fmt"
	"strconv"
	"strings"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// limits returns the flags of a command that leave the limits of a queue as they are, for its
// reader to change.
func limits(q *lessorv1.Queue) string {
	flags := fmt.Sprintf("--max-inflight %d --rate ", q.GetMaxInflight())
	perSecond := q.GetRateLimit().GetPerSecond()
	if perSecond == 0 {
		return flags + "0"
	}
	flags += exactRate(perSecond)
	if burst := q.GetRateLimit().GetBurst(); burst > 0 {
		flags += fmt.Sprintf(" --burst %d", burst)
	}
	return flags
}

// exactRate returns a rate as a command has it, in the shortest unit in which it is a number of few
// digits.
func exactRate(perSecond float64) string {
	for _, unit := range words.RateUnits {
		n, err := strconv.ParseFloat(strconv.FormatFloat(perSecond*unit.Seconds, 'g', 6, 64), 64)
		if err == nil && n >= 1 && n/unit.Seconds == perSecond {
			return strconv.FormatFloat(n, 'f', -1, 64) + "/" + unit.Name
		}
	}
	return strconv.FormatFloat(perSecond, 'f', -1, 64) + "/s"
}

// argument returns the last word of a command, which is a name even if it looks like a flag.
func argument(name string) string {
	if strings.HasPrefix(name, "-") {
		return "-- " + quoted(name)
	}
	return quoted(name)
}

// quoted returns a word of a command as a shell needs it. Characters that would not be shown as
// they are become numbers, which bash, zsh and ksh read.
func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("-_./:@%+,", r)
	}
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return word
	}
	if strings.ContainsFunc(word, words.Misleads) {
		var text strings.Builder
		for _, r := range word {
			switch {
			case words.Misleads(r):
				for _, b := range []byte(string(r)) {
					fmt.Fprintf(&text, `\%03o`, b)
				}
			case r == '\'', r == '\\':
				text.WriteString(`\` + string(r))
			default:
				text.WriteRune(r)
			}
		}
		return "$'" + text.String() + "'"
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
