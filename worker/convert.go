package worker

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// answer is the part of the answer that Start and Heartbeat have in common (S3).
type answer struct {
	verdict      lessorv1.Verdict
	reason       lessorv1.Reason
	detail       string
	shouldCancel bool
	cancelReason string
	expiresIn    time.Duration
	token        taskToken
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

func answerOfStart(v *lessorv1.ReportVerdict) answer {
	return answer{
		verdict:      v.GetVerdict(),
		reason:       v.GetReason(),
		detail:       v.GetDetail(),
		shouldCancel: v.GetShouldCancel(),
		cancelReason: v.GetCancelReason(),
		expiresIn:    v.GetExpiresIn().AsDuration(),
		token:        tokenOf(v.GetTaskToken(), v.GetTokenExpiresAt()),
	}
}

func answerOfHeartbeat(h *lessorv1.LeaseAck) answer {
	return answer{
		verdict:      h.GetVerdict(),
		reason:       h.GetReason(),
		detail:       h.GetDetail(),
		shouldCancel: h.GetShouldCancel(),
		cancelReason: h.GetCancelReason(),
		expiresIn:    h.GetExpiresIn().AsDuration(),
		token:        tokenOf(h.GetTaskToken(), h.GetTokenExpiresAt()),
	}
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
