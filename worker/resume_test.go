package worker_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
)

// withTokens makes the coordinator issue a session token with each accept: token-1, token-2 ...
func (c *coordinator) withTokens() {
	n := 0
	c.accepts = func(_ *stream, a *lessorv1.Accept) {
		n++
		a.SessionToken = fmt.Sprintf("token-%d", n)
	}
}

// W8: the handshake of the next stream offers to resume the session: it names the session, its
// newest token and the seq of the last frame that came without a gap.
func TestResumeOffer(t *testing.T) {
	t.Attr("rules", "W8")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		c.withTokens()
		r := c.run(worker.Config{}, echo)
		s := c.accept()
		if resume := s.handshake.GetHandshake().GetResume(); resume != nil {
			t.Errorf("resume of the first handshake = %v, want none", resume)
		}
		s.send(&lessorv1.SessionResponse{})
		synctest.Wait()
		seen := s.lastSeq()
		s.lose(&lessorv1.SessionResponse{})
		s.send(&lessorv1.SessionResponse{})
		synctest.Wait()
		s.finish(errBroken)
		s = c.accept()
		resume := s.handshake.GetHandshake().GetResume()
		if resume.GetSessionId() != "s" || resume.GetSessionToken() != "token-1" || resume.GetLastSeenSeq() != seen {
			t.Errorf("resume = %v, want session s, token-1 and last_seen_seq %d", resume, seen)
		}
		s.finish(errBroken)
		s = c.accept()
		if resume := s.handshake.GetHandshake().GetResume(); resume.GetSessionToken() != "token-2" {
			t.Errorf("resume = %v, want the newest token, token-2", resume)
		}
		r.shutdown()
	})
}

// W8: if the accept of a resumed session says that the coordinator has received a report, the
// worker does not send the report again. The verdict, which was lost with the old stream, comes on
// the new one with its old seq. The time after which the worker gives up waiting for it begins
// anew.
func TestResumeAfterReceivedReport(t *testing.T) {
	t.Attr("rules", "W7 W8")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		c.withTokens()
		r := c.run(worker.Config{}, echo)
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		f, _ := s.outcome()
		synctest.Wait()
		time.Sleep(25 * time.Second)
		missed := s.lose(verdictsOn(f, committed))
		synctest.Wait()
		next, sent := f.GetSeq()+1, s.lastSeq()+1
		c.accepts = func(fresh *stream, a *lessorv1.Accept) {
			a.Resumed, a.NextSeq = true, next
			fresh.lastSent = sent
		}
		s.finish(errBroken)
		s = c.accept()
		if got := s.register.GetSeq(); got != f.GetSeq()+1 {
			t.Errorf("register has seq %d, want %d", got, f.GetSeq()+1)
		}
		time.Sleep(8 * time.Second) // with the 25 s on the old stream longer than the worker waits for a verdict
		s.resend(missed)
		synctest.Wait()
		s.quiet("report that was taken", isReports)
		r.shutdown()
		if n := len(r.verdicts); n != 1 {
			t.Errorf("OnVerdict was called %d times, want once", n)
		}
	})
}

// W8: a report that the coordinator has not received before the stream broke is sent again after
// register. If the coordinator restarted it has lost the sequences: both sides begin with seq 1
// again, and the worker sends everything again that has no verdict.
func TestResumeAfterLostReport(t *testing.T) {
	t.Attr("rules", "W8")
	for name, restarted := range map[string]bool{"blink": false, "restart": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				c.withTokens()
				r := c.run(worker.Config{}, echo)
				s := c.accept()
				s.dispatch("t1")
				s.started("t1")
				first, _ := s.outcome()
				synctest.Wait()
				next := first.GetSeq()
				if restarted {
					next = 1
				}
				sent := s.lastSeq()
				c.accepts = func(fresh *stream, a *lessorv1.Accept) {
					if a.Resumed, a.NextSeq = true, next; !restarted {
						fresh.lastSent = sent
					}
				}
				s.finish(errBroken)
				s = c.accept()
				f, report := s.outcome()
				if report.GetComplete().GetReportId() != outcomeOf(first).GetComplete().GetReportId() || f.GetId() == first.GetId() {
					t.Errorf("report = %v, want the report of %v in a new frame", f, first)
				}
				if s.register.GetSeq() != next || f.GetSeq() != next+1 {
					t.Errorf("register has seq %d and the report %d, want %d and %d",
						s.register.GetSeq(), f.GetSeq(), next, next+1)
				}
				s.commit(f)
				r.shutdown()
			})
		})
	}
}

// W8: if the coordinator refuses the session token, the worker forgets it and begins a new session
// at once. Its handlers go on and their leases are renewed.
func TestResumeRefused(t *testing.T) {
	t.Attr("rules", "W8")
	denied := &lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Error{Error: &lessorv1.Error{Code: "E.AUTH.INVALID_TOKEN"}}}
	stale := &lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Reset_{Reset_: &lessorv1.Reset{Code: "E.SESSION.STALE_BINDING"}}}
	for name, refuse := range map[string]func(*stream) error{
		"error frame": func(s *stream) error { s.send(denied); return status.Error(codes.Unauthenticated, "token") },
		"status":      func(*stream) error { return status.Error(codes.Unauthenticated, "token") },
		"stale":       func(s *stream) error { s.send(stale); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				c.withTokens()
				stopped := make(chan error, 1)
				goOn := make(chan struct{})
				r := c.run(worker.Config{}, func(ctx context.Context, _ *worker.Task) ([]byte, error) {
					<-goOn
					stopped <- ctx.Err()
					return nil, nil
				})
				s := c.accept()
				s.dispatch("t1")
				s.started("t1")
				refused := 0
				c.refuse = func(s *stream) error {
					if _, err := s.grpc.Recv(); err != nil {
						return err
					}
					refused++
					c.refuse = nil
					return refuse(s)
				}
				s.finish(errBroken)
				s = c.accept()
				if refused != 1 {
					t.Errorf("%d streams with a token were refused, want 1", refused)
				}
				if resume := s.handshake.GetHandshake().GetResume(); resume != nil {
					t.Errorf("resume of the handshake after the refusal = %v, want none", resume)
				}
				if got := s.renewal().GetHeartbeat().GetLeases(); len(got) != 1 {
					t.Errorf("the first renewal names %v, want the one lease that lives", got)
				}
				close(goOn)
				f, _ := s.outcome()
				s.commit(f)
				if err := <-stopped; err != nil {
					t.Errorf("the handler's context ended with %v, want it to go on", err)
				}
				r.shutdown()
			})
		})
	}
}

// W8: a token that has expired is not offered. Its expiry counts as a span from server_time,
// because the clocks of both sides need not agree.
func TestResumeExpired(t *testing.T) {
	t.Attr("rules", "W8")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		far := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC) // a year behind the worker's clock
		c.accepts = func(_ *stream, a *lessorv1.Accept) {
			a.SessionToken, a.ServerTime, a.ExpiresAt = "token", timestamppb.New(far), timestamppb.New(far.Add(time.Hour))
		}
		r := c.run(worker.Config{}, echo)
		s := c.accept()
		time.Sleep(59 * time.Minute)
		s.finish(errBroken)
		s = c.accept()
		if s.handshake.GetHandshake().GetResume() == nil {
			t.Error("the handshake after 59 minutes offers no resume, want one: the token is valid for an hour")
		}
		time.Sleep(time.Hour)
		s.finish(errBroken)
		s = c.accept()
		if resume := s.handshake.GetHandshake().GetResume(); resume != nil {
			t.Errorf("resume = %v an hour after the token was issued, want none", resume)
		}
		r.shutdown()
	})
}

// K5, W8: if the verdict on a report does not come for some time, the worker opens another stream
// and sends the report again, even if the accept says that the coordinator has received it: the
// coordinator may have lost it since.
func TestResumeWithoutVerdict(t *testing.T) {
	t.Attr("rules", "K5 W8")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		c.withTokens()
		r := c.run(worker.Config{}, echo)
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		f, _ := s.outcome()
		synctest.Wait()
		next, sent := f.GetSeq()+1, s.lastSeq()+1
		c.accepts = func(fresh *stream, a *lessorv1.Accept) {
			a.Resumed, a.NextSeq = true, next
			fresh.lastSent = sent
		}
		s.send(&lessorv1.SessionResponse{})
		s = c.accept() // the worker has waited too long for the verdict
		f, _ = s.outcome()
		s.commit(f)
		r.shutdown()
	})
}
