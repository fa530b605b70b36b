package main

import (
	"fmt"
	"strings"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// statusCmd is lessor status.
type statusCmd struct {
	server `embed:""`
}

func (c statusCmd) Run(a *app) error {
	return c.with(a, func(cl *client) error {
		s, err := cl.admin.GetStatus(a.ctx, &lessorv1.GetStatusRequest{})
		if err != nil {
			return err
		}
		if a.json {
			return printJSON(a.out, s)
		}
		d := newDetails(a.out)
		d.add("version", s.GetVersion())
		d.add("serving since", clock(s.GetStartedAt()))
		d.add("epoch", fmt.Sprint(s.GetEpoch()))
		d.add("live leases", fmt.Sprint(s.GetLeases()))
		d.add("open sessions", fmt.Sprint(s.GetSessions()))
		d.add("store", storeText(s)) // nothing, where the caller is not told
		if s.GetStoreGone() {
			d.add("store file", "moved or removed: no tasks are accepted or granted; take a backup, then stop the coordinator")
		}
		switch {
		case s.GetGrantsStopped():
			d.add("disk", "almost full: new tasks are refused and none are granted until there is room"+roomText(s))
		case s.GetDiskFull():
			d.add("disk", "nearly full: new tasks are refused until there is room"+roomText(s))
		}
		for _, one := range s.GetStandbys() {
			d.add("standby", one.GetName()+", "+standbyText(one))
		}
		if wait := s.GetStandbyWait(); wait != nil {
			if len(s.GetStandbys()) == 0 {
				d.add("standby", "none follows")
			}
			d.add("results", resultsText(s.GetWaitsForStandby(), words.Span(wait.AsDuration())))
		}
		d.add("access", accessText(s.GetOpen()))
		d.add("host tenant", s.GetHostTenant())
		d.add("your credential", credentialText(s))
		for _, q := range s.GetQuotas() {
			d.add("quota of "+q.GetLimit()+", "+q.GetOf(), quotaText(q))
		}
		return d.flush()
	})
}

// credentialText says whose the credential of the call is, and until when it is valid, as far as
// that is told.
func credentialText(s *lessorv1.GetStatusResponse) string {
	var parts []string
	if h := s.GetHolder(); h != nil {
		parts = append(parts, fmt.Sprintf("%s %s of tenant %s", strings.ToLower(words.Name(h.GetRole())),
			h.GetSubject(), h.GetTenant()))
	}
	if ends := s.GetCredentialEndsAt(); ends != nil {
		parts = append(parts, "good until "+clock(ends)+", for "+words.Span(ends.AsTime().Sub(s.GetServerTime().AsTime())))
	}
	return strings.Join(parts, ", ")
}

// roomText says how much room there is and how much new tasks need, where that is told.
func roomText(s *lessorv1.GetStatusResponse) string {
	if s.DiskNeededBytes == nil {
		return ""
	}
	if s.GetStoreNeededBytes() == 0 {
		return ": lessor.reserve is made first; if it cannot be, the log of the coordinator says why"
	}
	has := words.Bytes(s.GetDiskFreeBytes()) + " are free on the disk and " + words.Bytes(s.GetStoreFreeBytes()) + " inside the store; new tasks need " +
		words.Bytes(s.GetDiskNeededBytes()) + " on the disk"
	if s.GetStoreNeededBytes() > s.GetStoreBytes() {
		return ": " + has + ", which deleting tasks cannot give: remove other files, or compact or move the store"
	}
	return ": " + has + ", or " + words.Bytes(s.GetStoreNeededBytes()) + " inside the store, where deleting tasks makes room"
}

// storeText says how large the store is, and how much it can grow where that is told.
func storeText(s *lessorv1.GetStatusResponse) string {
	if s.GetStoreBytes() == 0 {
		return ""
	}
	size := words.Bytes(s.GetStoreBytes())
	if s.DiskFreeBytes == nil {
		return size
	}
	return size + ", and its disk has " + words.Bytes(s.GetDiskFreeBytes()) + " free"
}

// standbyText says how far a standby is.
func standbyText(s *lessorv1.Standby) string {
	switch {
	case !s.GetComplete():
		return "to which the store is being copied: " + words.Bytes(s.GetSentBytes()) + " sent"
	case s.GetCommitsBehind() == 0:
		return "which has everything"
	}
	return fmt.Sprintf("%s behind (%d commits)", words.Span(s.GetBehind().AsDuration()), s.GetCommitsBehind())
}

// quotaText says how much of a limit is used, or "" if there is no limit.
func quotaText(q *lessorv1.Quota) string {
	switch {
	case q.GetValue() == "none":
		return ""
	case strings.Contains(q.GetValue(), "/"):
		return q.GetValue()
	}
	return fmt.Sprintf("%d of %s", q.GetUsed(), q.GetValue())
}

func accessText(open bool) string {
	if open {
		return "no credentials: all act for tenant \"default\""
	}
	return "credentials are required"
}

// resultsText says what --standby-wait does at present.
func resultsText(waits bool, wait string) string {
	if waits {
		return "are told when a standby has them, too"
	}
	return "do not wait for a standby (--standby-wait " + wait + "), since none has everything: they may be on this machine only"
}
