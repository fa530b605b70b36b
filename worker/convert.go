package worker

import (
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// answer is what the answers to Start, a ReportVerdict, and to Heartbeat, a LeaseAck, have in
// common (S3).
type answer interface {
	GetVerdict() lessorv1.Verdict
	GetReason() lessorv1.Reason
	GetDetail() string
	GetShouldCancel() bool
	GetCancelReason() string
	GetCancelGraceLeft() *durationpb.Duration
	GetExpiresIn() *durationpb.Duration
	GetTaskToken() string
	GetTokenExpiresAt() *timestamppb.Timestamp
}

// taskToken allows its holder to report on one attempt over HTTP (H1).
type taskToken struct {
	text    string
	expires time.Time
}

// tokenOf converts a task token; it returns the zero taskToken if there is none.
func tokenOf(text string, expires *timestamppb.Timestamp) taskToken {
	if text == "" {
		return taskToken{}
	}
	return taskToken{text, expires.AsTime()}
}

// check returns an error for text that could not be sent. The coordinator checks the rest.
func (a Artifact) check() error {
	texts := []string{a.ResourceID, a.WorkerID, a.Type}
	texts = slices.AppendSeq(slices.AppendSeq(texts, maps.Keys(a.Metadata)), maps.Values(a.Metadata))
	return firstError(slices.Values(texts), func(text string) error {
		if !utf8.ValidString(text) {
			return fmt.Errorf("an artifact has %.100q, which is not valid UTF-8", text)
		}
		return nil
	})
}

// proto converts an artifact.
func (a Artifact) proto() *lessorv1.Artifact {
	p := &lessorv1.Artifact{
		ResourceId: a.ResourceID,
		WorkerId:   a.WorkerID,
		Type:       a.Type,
		SizeBytes:  a.Size,
		Inline:     a.Inline,
		Metadata:   maps.Clone(a.Metadata),
	}
	if !a.ExpiresAt.IsZero() {
		p.ExpiresAt = timestamppb.New(a.ExpiresAt)
	}
	return p
}

func resourceRefs(sent []*lessorv1.ResourceRef) (refs []ResourceRef) {
	for _, r := range sent {
		ref := ResourceRef{
			ResourceID: r.GetResourceId(),
			WorkerID:   r.GetWorkerId(),
			Type:       r.GetType(),
			Scope:      r.GetScope(),
			Metadata:   r.GetMetadata(),
		}
		if r.GetExpiresAt() != nil {
			ref.ExpiresAt = r.GetExpiresAt().AsTime()
		}
		refs = append(refs, ref)
	}
	return refs
}

// spanOr returns d, or otherwise if d is absent.
func spanOr(d *durationpb.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.AsDuration()
}

// optionalSpan returns nil for zero.
func optionalSpan(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}
