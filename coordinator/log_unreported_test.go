package coordinator

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/lease"
)

// The log has a line for a lease that time or an operator took, and none for one that a report has
// ended, that is live, or that its worker did not know of.
func TestWhichLeasesEndUnreported(t *testing.T) {
	const acked = lease.Wall(1)
	for cause, want := range map[lease.Reason][2]bool{ // whether it has a line: without and with a sign of the worker
		lease.LeaseExpired: {true, true}, lease.DispatchUnacked: {true, true}, lease.DeadlineExceeded: {true, true},
		lease.CancelTimeout: {true, true},
		lease.Revoked:       {false, true}, lease.CoordinatorRecovered: {false, true}, lease.Reported: {false, false},
		lease.TaskCancelled: {false, false},
	} {
		for i, at := range []lease.Wall{0, acked} {
			var log bytes.Buffer
			l := &unreportedLog{log: slog.New(slog.NewTextHandler(&log, nil))}
			leased := &lease.Task{Spec: &lease.Spec{}, Lease: &lease.Lease{Attempt: 2}}
			ended := &lease.Task{Spec: &lease.Spec{}, Last: lease.Ended{Attempt: 2, Cause: cause, Worker: "w", AckedAt: at}}
			l.changed(leased, leased)
			l.changed(nil, leased)
			l.changed(leased, nil)
			l.changed(ended, ended)
			if log.Len() > 0 {
				t.Errorf("%v: no lease has just ended, and the log has %s", cause, &log)
			}
			l.changed(leased, ended)
			if lines := strings.Count(log.String(), "level=INFO"); (lines == 1) != want[i] || lines > 1 {
				t.Errorf("%v, acknowledged at %v: the log has %q, want a line: %v", cause, at, &log, want[i])
			}
		}
	}
}

// The line has what the task counts: a dispatch that nobody acknowledged is no loss (T5).
func TestUnreportedLeaseHasTheCounts(t *testing.T) {
	var log bytes.Buffer
	l := &unreportedLog{log: slog.New(slog.NewTextHandler(&log, nil))}
	l.changed(&lease.Task{Lease: &lease.Lease{Attempt: 5}}, &lease.Task{
		Spec: &lease.Spec{}, Losses: 2, Failures: 1, Unacked: 3,
		Last: lease.Ended{Attempt: 5, Cause: lease.DispatchUnacked, Worker: "w"},
	})
	if line, want := log.String(), " losses=2 failures=1 unacknowledged=3\n"; !strings.HasSuffix(line, want) || strings.Contains(line, "lost") {
		t.Errorf("the log has %q, want a line that ends in %q and speaks of no loss", line, want)
	}
}

// When many leases end so at once, the log has a line for the first of them and one with the number
// of the rest. The next second begins anew.
func TestManyUnreportedAtOnce(t *testing.T) {
	var log bytes.Buffer
	l := &unreportedLog{log: slog.New(slog.NewTextHandler(&log, nil))}
	for range 2 {
		log.Reset()
		for range mostUnreported + 7 {
			l.changed(&lease.Task{Lease: &lease.Lease{Attempt: 1}},
				&lease.Task{Spec: &lease.Spec{}, Last: lease.Ended{Attempt: 1, Cause: lease.LeaseExpired}})
		}
		l.look()
		l.look()
		if n := strings.Count(log.String(), "a lease ended without a report"); n != mostUnreported || strings.Count(log.String(), "leases=7") != 1 {
			t.Fatalf("the log has %d lines of leases, want %d and one that counts the other 7:\n%s", n, mostUnreported, &log)
		}
	}
}
