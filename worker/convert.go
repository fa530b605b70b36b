package worker

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// answer is what the answers to Start, a ReportVerdict, and to Heartbeat, a LeaseAck, have in common (S3).
type answer interface {
	GetVerdict() lessorv1.Verdict
	GetReason() lessorv1.Reason
	GetDetail() string
	GetShouldCancel() bool
	GetCancelReason() string
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

// proto converts an artifact. It replaces text that is not valid UTF-8, because such text could not be sent.
func (a Artifact) proto() *lessorv1.Artifact {
	p := &lessorv1.Artifact{
		ResourceId: clip(a.ResourceID, maxText),
		WorkerId:   clip(a.WorkerID, maxText),
		Type:       clip(a.Type, maxText),
		SizeBytes:  a.Size,
		Inline:     a.Inline,
	}
	if !a.ExpiresAt.IsZero() {
		p.ExpiresAt = timestamppb.New(a.ExpiresAt)
	}
	for k, v := range a.Metadata {
		if p.Metadata == nil {
			p.Metadata = make(map[string]string, len(a.Metadata))
		}
		p.Metadata[clip(k, maxText)] = clip(v, maxText)
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
