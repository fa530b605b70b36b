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

// withTokens lets a coordinator hand out a token with each accept: token-1, token-2 ...
func (c *coordinator) withTokens() {
	n := 0
	c.accepts = func(_ *stream, a *lessorv1.Accept) {
		n++
		a.SessionToken = fmt.Sprintf("token-%d", n)
	}
}

// W8: the next stream names the session, its newest token, and the last frame that was taken in order.
func TestResumeOffer(t *testing.T) {
	t.Attr("rules", "W8")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		c.withTokens()
		r := c.run(worker.Config{}, echo)
		s := c.accept()
		if resume := s.handshake.GetHandshake().GetResume(); resume != nil {
			t.Errorf("first handshake resumes %v", resume)
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
			t.Errorf("resume = %v, want token-1 and seq %d", resume, seen)
		}
		s.finish(errBroken)
		s = c.accept()
		if resume := s.handshake.GetHandshake().GetResume(); resume.GetSessionToken() != "token-2" {
			t.Errorf("resume = %v, want the newest token", resume)
		}
		r.shutdown()
	})
}

// W8: a report that the coordinator had taken is not said again; its verdict comes on the new stream, under the old seq.
func TestResumeTakenReport(t *testing.T) {
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
		time.Sleep(8 * time.Second) // its time begins anew with the stream
		s.resend(missed)
		synctest.Wait()
		s.quiet("report that was taken", isReports)
		r.shutdown()
		if n := len(r.verdicts); n != 1 {
			t.Errorf("%d verdicts, want 1", n)
		}
	})
}

// W8: what the coordinator had not taken is said again, after register, and so is everything when it has lost the
// sequences: then they begin anew with 1.
func TestResumeUntakenReport(t *testing.T) {
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
					t.Errorf("report = %v, want that of %v in a frame of its own", f, first)
				}
				if s.register.GetSeq() != next || f.GetSeq() != next+1 {
					t.Errorf("register has seq %d, report %d, want %d and one more", s.register.GetSeq(), f.GetSeq(), next)
				}
				s.commit(f)
				r.shutdown()
			})
		})
	}
}

// W8: a token that is refused is forgotten, and the worker begins a session without it; its handler goes on.
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
					t.Errorf("%d openings with a token, want 1", refused)
				}
				if resume := s.handshake.GetHandshake().GetResume(); resume != nil {
					t.Errorf("the handshake after a refusal resumes %v", resume)
				}
				if got := s.renewal().GetHeartbeat().GetLeases(); len(got) != 1 {
					t.Errorf("renewed = %v, want the lease that lives", got)
				}
				close(goOn)
				f, _ := s.outcome()
				s.commit(f)
				if err := <-stopped; err != nil {
					t.Errorf("the handler's context ended: %v", err)
				}
				r.shutdown()
			})
		})
	}
}

// A token that is past its time, by the span in which it was told, is not offered.
func TestResumeExpired(t *testing.T) {
	t.Attr("rules", "W8")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		far := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC) // the clocks need not agree
		c.accepts = func(_ *stream, a *lessorv1.Accept) {
			a.SessionToken, a.ServerTime, a.ExpiresAt = "token", timestamppb.New(far), timestamppb.New(far.Add(time.Hour))
		}
		r := c.run(worker.Config{}, echo)
		s := c.accept()
		time.Sleep(59 * time.Minute)
		s.finish(errBroken)
		s = c.accept()
		if s.handshake.GetHandshake().GetResume() == nil {
			t.Error("no resume after 59 minutes")
		}
		time.Sleep(time.Hour)
		s.finish(errBroken)
		s = c.accept()
		if resume := s.handshake.GetHandshake().GetResume(); resume != nil {
			t.Errorf("resume = %v after an hour", resume)
		}
		r.shutdown()
	})
}

// A verdict that does not come is asked for anew: a coordinator that took the report may have lost it.
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
		s = c.accept() // the answer is overdue
		f, _ = s.outcome()
		s.commit(f)
		r.shutdown()
	})
}
