package httpapi

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// exceptions are the fields whose names here are not those of the protos in camelCase.
var exceptions = map[string]string{
	"attempt_timeout": "attemptTimeoutMs", "start_timeout": "startTimeoutMs", "retention": "retentionMs", "ttl": "ttlMs", "wait": "waitMs",
	"heartbeat_interval": "heartbeatIntervalMs", "heartbeat_timeout": "heartbeatTimeoutMs", "cancel_grace": "cancelGracePeriodMs",
	"initial_backoff": "initialBackoffMs", "max_backoff": "maxBackoffMs", "retry_after": "retryAfterMs", "fraction": "progressPct",
	"after_sequence": "Last-Event-ID",
}

// jsonPath is the path of a field as it is here: task.retry_policy.max_backoff is retryPolicy.maxBackoffMs. What is an envelope in the protos
// (task, progress) has no name here.
func jsonPath(path string) string {
	for _, envelope := range []string{"task.", "progress."} {
		path = strings.TrimPrefix(path, envelope)
	}
	parts := strings.Split(path, ".")
	for i, part := range parts {
		name, index, listed := strings.Cut(part, "[")
		parts[i] = jsonName(name)
		if listed {
			parts[i] += "[" + index
		}
	}
	return strings.Join(parts, ".")
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

// reasonOf is the reason that goes with a code: E.AUTH.FORBIDDEN is AUTH_FORBIDDEN (S4).
func reasonOf(code string) string {
	return strings.ReplaceAll(strings.TrimPrefix(code, "E."), ".", "_")
}

// enum is the name of a value without the prefix of its enum; empty for the zero value.
func enum(value protoreflect.Enum, prefix string) string {
	if value.Number() == 0 {
		return ""
	}
	name := value.Descriptor().Values().ByNumber(value.Number()).Name()
	return strings.TrimPrefix(string(name), prefix)
}
