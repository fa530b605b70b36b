package words

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Cause returns the code of the cause for which a lease ended, and then says it for people.
func Cause(l *lessorv1.LeaseStory) string {
	text := Name(l.GetCause())
	switch l.GetCause() {
	case lessorv1.Reason_REASON_REPORTED:
		text += ": its worker reported"
	case lessorv1.Reason_REASON_LEASE_EXPIRED: // the worker may have been heard: what is rejected renews nothing
		text += withDetail(fmt.Sprintf(": its worker did not renew it for %v", unrenewed(l)), l)
	case lessorv1.Reason_REASON_DISPATCH_UNACKED:
		text += withDetail(fmt.Sprintf(": nothing was heard of the worker for %v", unrenewed(l)), l)
	case lessorv1.Reason_REASON_CANCEL_TIMEOUT:
		text += ": its worker did not stop within cancel_grace"
	case lessorv1.Reason_REASON_DEADLINE_EXCEEDED:
		text += ": " + cmp.Or(l.GetDetail(), "attempt_timeout or the deadline passed")
	case lessorv1.Reason_REASON_REVOKED:
		if l.GetDetail() != "" {
			return text + ": " + l.GetDetail()
		}
		text += ": it was revoked, or its worker said goodbye"
	case lessorv1.Reason_REASON_COORDINATOR_RECOVERED:
		text += ": the coordinator ended older leases at its start: its store was restored, or it was started with --recovery"
	}
	return text
}

// withDetail adds what the history has about the end of the lease, if anything.
func withDetail(text string, l *lessorv1.LeaseStory) string {
	if l.GetDetail() == "" {
		return text
	}
	return text + ": " + l.GetDetail()
}

// unrenewed returns the time from the last message that renewed a lease, at first its grant, to the
// end of the lease.
func unrenewed(l *lessorv1.LeaseStory) time.Duration {
	last := l.GetGrantedAt().AsTime()
	for _, at := range []*timestamppb.Timestamp{l.GetStartedAt(), l.GetHeartbeatAt()} {
		if at != nil && at.AsTime().After(last) {
			last = at.AsTime()
		}
	}
	return l.GetEndedAt().AsTime().Sub(last).Round(time.Millisecond)
}

// Refused says what a refused report got, and why.
func Refused(r *lessorv1.Refusal) string {
	return strings.Join([]string{Name(r.GetVerdict()), Name(r.GetReason()), r.GetDetail()}, ": ")
}

// LateBy says how late a report came, or "" if it was not late.
func LateBy(r *lessorv1.Refusal) string {
	if r.GetLateBy() == nil {
		return ""
	}
	return Span(r.GetLateBy().AsDuration())
}
