package web

import (
	"fmt"
	"html/template"
	"net/url"
	"regexp"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

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
	"minute":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") },
	"span":       span,
	"between":    between,
	"content":    func(id string, data []byte) content { c := contentOf(data); c.ID = id; return c },
	"limits":     limits,
	"held":       func() string { return names(words.Held(), ",") },
	"link":       link,
	"linked":     linked,
	"idle":       idle,
	"boxed":      boxed,
	"kept":       func(name, value string) string { return kept(url.Values{name: {value}}) },
	"quoted":     quoted,
	"argument":   argument,
	"printed":    printed,
	"age":        func(d *durationpb.Duration) string { return words.Age(d.AsDuration()) },
	"ofAttempt":  words.OfAttempt,
	"percent":    words.Percent,
	"number":     words.Number,
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

// linked returns a text of the coordinator in which the ids of tasks are links, so that one can go
// from a task that waits to those for which it waits.
func linked(text string) template.HTML {
	// escaping makes nothing that looks like an id
	escaped := template.HTMLEscapeString(text)
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
