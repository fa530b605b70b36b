package httpapi

import (
	"strings"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/strictjson"
	"github.com/lessor-dev/lessor/internal/words"
)

// taskError says why an attempt failed.
type taskError struct {
	Category     string `json:"category,omitempty"`
	Message      string `json:"message,omitempty"`
	StackTrace   string `json:"stackTrace,omitempty"`
	Retryable    *bool  `json:"retryable,omitempty"`
	RetryAfterMs millis `json:"retryAfterMs,omitzero"`
}

// proto returns nil for a nil error; the call refuses that.
func (e *taskError) proto() (*lessorv1.TaskError, *problem) {
	if e == nil {
		return nil, nil
	}
	category, known := words.CategoryNamed(e.Category)
	if !known && e.Category != "" {
		return nil, unknownCategory("error.category", e.Category)
	}
	return &lessorv1.TaskError{
		Category:   category,
		Message:    e.Message,
		StackTrace: e.StackTrace,
		Retryable:  e.Retryable,
		RetryAfter: e.RetryAfterMs.span(),
	}, nil
}

func taskErrorOf(m *lessorv1.TaskError) *taskError {
	if m == nil {
		return nil
	}
	return &taskError{
		Category:     enum(m.GetCategory(), "ERROR_CATEGORY_"),
		Message:      m.GetMessage(),
		StackTrace:   m.GetStackTrace(),
		Retryable:    m.Retryable,
		RetryAfterMs: millisOf(m.GetRetryAfter()),
	}
}

func unknownCategory(field, name string) *problem {
	return invalid(field, "is %q, which is not a known category; they are %s",
		strictjson.Clip(name), strings.Join(words.CategoryNames(), ", "))
}

// artifact describes a result that is stored elsewhere.
type artifact struct {
	ResourceID string          `json:"resourceId"`
	WorkerID   string          `json:"workerId,omitempty"`
	Type       string          `json:"type,omitempty"`
	SizeBytes  int64           `json:"sizeBytes,omitempty"`
	ExpiresAt  instant         `json:"expiresAt,omitzero"`
	Inline     bool            `json:"inline,omitempty"`
	Metadata   entries[string] `json:"metadata,omitempty"`
}

func artifactProtos(sent []artifact) []*lessorv1.Artifact {
	all := make([]*lessorv1.Artifact, len(sent))
	for i, a := range sent {
		all[i] = &lessorv1.Artifact{
			ResourceId: a.ResourceID,
			WorkerId:   a.WorkerID,
			Type:       a.Type,
			SizeBytes:  a.SizeBytes,
			ExpiresAt:  stamp(a.ExpiresAt),
			Inline:     a.Inline,
			Metadata:   a.Metadata,
		}
	}
	return all
}

func artifactsOf(sent []*lessorv1.Artifact) []artifact {
	var all []artifact
	for _, m := range sent {
		all = append(all, artifact{
			ResourceID: m.GetResourceId(), WorkerID: m.GetWorkerId(), Type: m.GetType(), SizeBytes: m.GetSizeBytes(),
			ExpiresAt: instantOf(m.GetExpiresAt()), Inline: m.GetInline(), Metadata: m.GetMetadata(),
		})
	}
	return all
}
