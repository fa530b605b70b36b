package web

import (
	"fmt"
	"html/template"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// functions are what templates call.
var functions = template.FuncMap{
	"name":       words.Name,
	"bytes":      words.Bytes,
	"settings":   words.Settings,
	"oldest":     words.Oldest,
	"rate":       words.Rate,
	"attempts":   words.Attempts,
	"error":      words.Error,
	"errorLabel": words.ErrorLabel,
	"errorText":  words.ErrorMessage,
	"artifact":   words.Artifact,
	"event":      words.Event,
	"why":        words.Why,
	"cause":      words.Cause,
	"refused":    words.Refused,
	"lateBy":     words.LateBy,
	"lower":      strings.ToLower,
	"join":       strings.Join,
	"when":       when,
	"moment":     moment,
	"span":       span,
	"between":    between,
	"content":    func(id string, data []byte) content { c := contentOf(data); c.ID = id; return c },
	"limits":     limits,
	"held":       func() string { return names(words.Held(), ",") },
	"link":       link,
	"linked":     linked,
	"boxed":      boxed,
	"kept":       func(name, value string) string { return kept(url.Values{name: {value}}) },
	"quoted":     quoted,
	"argument":   argument,
	"printed":    printed,
	"age":        func(d *durationpb.Duration) string { return words.Age(d.AsDuration()) },
	"percent":    words.Percent,
}

// when returns how far a time is from now, with the time itself as its title; "" if there is none.
func when(t *timestamppb.Timestamp) template.HTML {
	if t == nil {
		return ""
	}
	text := "now"
	switch d := time.Until(t.AsTime()); {
	case d >= time.Second:
		text = "in " + words.Age(d)
	case d <= -time.Second:
		text = words.Age(-d) + " ago"
	}
	// The parts are our own, and have nothing that HTML would escape.
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s">%s</time>`, t.AsTime().UTC().Format(time.RFC3339Nano), moment(t), text)) //nolint:gosec // see above
}

// moment returns a time.
func moment(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().UTC().Format("2006-01-02 15:04:05.000 UTC")
}

func span(d *durationpb.Duration) string {
	if d == nil {
		return ""
	}
	return words.Span(d.AsDuration())
}

// between returns how long it is from one time to another.
func between(from, to *timestamppb.Timestamp) string {
	return words.Span(to.AsTime().Sub(from.AsTime()))
}

// link returns a path with a query, whose names and values alternate; empty values are left out.
func link(path string, query ...string) string {
	values := url.Values{}
	for i := 0; i+1 < len(query); i += 2 {
		if query[i+1] != "" {
			values.Set(query[i], query[i+1])
		}
	}
	if len(values) == 0 {
		return path
	}
	return path + "?" + values.Encode()
}

// taskID is the form of a task's id within a text; an id has no i, l, o and u.
var taskID = regexp.MustCompile(`\bt[0-9a-hjkmnp-tv-z]{16}\b`)

// linked returns a text of the coordinator in which the ids of tasks are links, so that one can go from a task that waits to those for which it waits.
func linked(text string) template.HTML {
	escaped := template.HTMLEscapeString(text)                                                         // escaping makes nothing that looks like an id
	return template.HTML(taskID.ReplaceAllString(escaped, `<a class="id" href="/ui/tasks/$0">$0</a>`)) //nolint:gosec // see above
}

// names returns the names of enum values.
func names[E protoreflect.Enum](all []E, separator string) string {
	texts := make([]string, len(all))
	for i, value := range all {
		texts[i] = words.Name(value)
	}
	return strings.Join(texts, separator)
}

// limits returns the flags of a command that leave the limits of a queue as they are, for its reader to change.
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

// exactRate returns a rate as a command has it, in the shortest unit in which it is a number of few digits.
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

// quoted returns a word of a command as a shell needs it. Characters that would not be shown as they are become numbers, which bash, zsh and ksh read.
func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+,", r)
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
