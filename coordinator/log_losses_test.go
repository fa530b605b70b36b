package coordinator

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/lease"
)

// The log has a line for a lease that time or an operator took, and none for one that a report has ended, that is live, or that its worker did not
// know of.
func TestWhichLeasesAreLost(t *testing.T) {
	const acked = lease.Wall(1)
	for cause, want := range map[lease.Reason][2]bool{ // whether it is a loss: without and with a sign of the worker
		lease.LeaseExpired: {true, true}, lease.DispatchUnacked: {true, true}, lease.DeadlineExceeded: {true, true}, lease.CancelTimeout: {true, true},
		lease.Revoked: {false, true}, lease.CoordinatorRecovered: {false, true}, lease.Reported: {false, false}, lease.TaskCancelled: {false, false},
	} {
		for i, at := range []lease.Wall{0, acked} {
			var log bytes.Buffer
			l := &lossLog{log: slog.New(slog.NewTextHandler(&log, nil))}
			leased := &lease.Task{Spec: &lease.Spec{}, Lease: &lease.Lease{Attempt: 2}}
			ended := &lease.Task{Spec: &lease.Spec{}, Last: lease.Ended{Attempt: 2, Cause: cause, Worker: "w", AckedAt: at}}
			l.changed(leased, leased)
			l.changed(nil, leased)
			l.changed(leased, nil)
			l.changed(ended, ended)
			if log.Len() > 0 {
				t.Errorf("%v: no lease was lost, and the log has %s", cause, &log)
			}
			l.changed(leased, ended)
			if lines := strings.Count(log.String(), "level=INFO"); (lines == 1) != want[i] || lines > 1 {
				t.Errorf("%v, acknowledged at %v: the log has %q, want a line: %v", cause, at, &log, want[i])
			}
		}
	}
}

// When many leases are lost at once, the log has a line for the first of them and one with the number of the rest. The next second begins anew.
func TestManyLossesAtOnce(t *testing.T) {
	var log bytes.Buffer
	l := &lossLog{log: slog.New(slog.NewTextHandler(&log, nil))}
	for range 2 {
		log.Reset()
		for range mostLosses + 7 {
			l.changed(&lease.Task{Lease: &lease.Lease{Attempt: 1}}, &lease.Task{Spec: &lease.Spec{}, Last: lease.Ended{Attempt: 1, Cause: lease.LeaseExpired}})
		}
		l.look()
		l.look()
		if n := strings.Count(log.String(), "a lease was lost"); n != mostLosses || strings.Count(log.String(), "leases=7") != 1 {
			t.Fatalf("the log has %d lines of leases, want %d and one that counts the other 7:\n%s", n, mostLosses, &log)
		}
	}
}
