package httpapi

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// exceptions are the fields whose names in this API are not their proto names in camelCase.
var exceptions = map[string]string{
	"attempt_timeout":    "attemptTimeoutMs",
	"start_timeout":      "startTimeoutMs",
	"retention":          "retentionMs",
	"ttl":                "ttlMs",
	"wait":               "waitMs",
	"heartbeat_interval": "heartbeatIntervalMs",
	"heartbeat_timeout":  "heartbeatTimeoutMs",
	"cancel_grace":       "cancelGracePeriodMs",
	"initial_backoff":    "initialBackoffMs",
	"max_backoff":        "maxBackoffMs",
	"retry_after":        "retryAfterMs",
	"fraction":           "progressPct",
	"after_sequence":     "Last-Event-ID",
	"expires_in":         "expiresInMs",
	"cancel_grace_left":  "cancelGraceLeftMs",
}

// jsonPath returns the path of a proto field as this API names it: task.retry_policy.max_backoff
// becomes retryPolicy.maxBackoffMs. The messages task, filter and progress only wrap fields, and
// have no name here.
func jsonPath(path string) string {
	for _, envelope := range []string{"task.", "filter.", "progress."} {
		path = strings.TrimPrefix(path, envelope)
	}
	path, key, ofMap := strings.Cut(path, `["`) // the key of a map is the caller's own
	parts := strings.Split(path, ".")
	for i, part := range parts {
		name, index, listed := strings.Cut(part, "[")
		parts[i] = jsonName(name)
		if listed {
			parts[i] += "[" + index
		}
	}
	path = strings.Join(parts, ".")
	if ofMap {
		path += `["` + key
	}
	return path
}

func jsonName(name string) string {
	if other, ok := exceptions[name]; ok {
		return other
	}
	words := strings.Split(name, "_")
	for i, word := range words[1:] {
		if word != "" {
			words[i+1] = strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return strings.Join(words, "")
}

// quotedOrField matches what a text quotes, which is the caller's own, and the names of proto
// fields with an underscore.
var quotedOrField = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[a-z]+(?:_[a-z]+)+`)

// jsonNames returns a text in which fields have the names of this API.
func jsonNames(text string) string {
	return quotedOrField.ReplaceAllStringFunc(text, func(found string) string {
		if found[0] == '"' {
			return found
		}
		return jsonName(found)
	})
}

// quotedOrSpan matches what a text quotes, and the durations that Go writes.
var quotedOrSpan = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|-?\b(?:\d+(?:\.\d+)?(?:h|ms|m|s|µs|ns))+\b`)

// inMillis returns a text in which durations are numbers of milliseconds, as the fields of this API
// are. Least limits below one become 1: 0 is not below the others, but means the default.
func inMillis(text string) string {
	return quotedOrSpan.ReplaceAllStringFunc(text, func(found string) string {
		d, err := time.ParseDuration(found)
		switch {
		case err != nil && found[0] == '"':
			return found
		case err != nil: // seconds that do not fit into a time.Duration
			whole, part, _ := strings.Cut(strings.TrimSuffix(found, "s"), ".")
			return whole + (part + "000")[:3]
		case d > 0 && d < time.Millisecond:
			return "1"
		}
		return strconv.FormatInt(d.Milliseconds(), 10)
	})
}

// enum returns the name of an enum value without the prefix of its enum, or "" for the zero value.
func enum(value protoreflect.Enum, prefix string) string {
	if value.Number() == 0 {
		return ""
	}
	name := value.Descriptor().Values().ByNumber(value.Number()).Name()
	return strings.TrimPrefix(string(name), prefix)
}
