package worker_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
)

// A session that breaks is opened again, with waits that grow up to MaxBackoff (W1).
func TestBackoffGrows(t *testing.T) {
	t.Attr("rules", "W1")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		var opened []time.Time
		c.refuse = func(*stream) error { opened = append(opened, time.Now()); return errBroken }
		r := c.run(worker.Config{MinBackoff: time.Second, MaxBackoff: 8 * time.Second}, echo)
		time.Sleep(40 * time.Second)
		synctest.Wait()
		for i, span := range []time.Duration{1, 2, 4, 8, 8} {
			span *= time.Second
			if got := opened[i+1].Sub(opened[i]); got < span/2 || got > span {
				t.Errorf("wait %d = %v, want %v to %v", i, got, span/2, span)
			}
		}
		r.shutdown()
		if !slices.Contains(r.states, worker.StateBackoff) || !r.seen(errBroken) {
			t.Errorf("states = %v, errors = %v", r.states, r.errors)
		}
	})
}

// A reset says how long to stay away.
func TestResetRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, echo)
		s := c.accept()
		begun := time.Now()
		s.send(&lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Reset_{Reset_: &lessorv1.Reset{
			Code: "E.INTERNAL", RetryAfter: durationpb.New(time.Minute),
		}}})
		c.accept()
		if got := time.Since(begun); got < time.Minute {
			t.Errorf("back after %v", got)
		}
		r.shutdown()
	})
}

// A refusal that no repeat can cure ends Run, and says so with the coordinator's code.
func TestRefusalEndsRun(t *testing.T) {
	for _, test := range []struct {
		name   string
		refuse func(*stream) error
		code   string
	}{
		{"status", func(*stream) error { return status.Error(codes.Unauthenticated, "no token") }, "Unauthenticated"},
		{"status with a code", func(*stream) error { return coordinatorStatus(codes.PermissionDenied, "SESSION_DENIED") }, "E.SESSION.DENIED"},
		{"error frame", func(s *stream) error { return s.deny(1) }, "E.SESSION.DENIED"},
		{"error frame on register", func(s *stream) error { return s.deny(2) }, "E.SESSION.DENIED"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				c.refuse = test.refuse
				err := c.run(worker.Config{}, echo).done()
				var refused *worker.RefusedError
				if !errors.As(err, &refused) || refused.Code != test.code {
					t.Errorf("Run = %v, want a refusal with code %s", err, test.code)
				}
			})
		})
	}
}

// A worker without a configured tenant takes over the one that the coordinator names in its first refusal, and connects again at once. It does so
// only once, and never after a coordinator has accepted it: then another tenant means other credentials, and ends Run.
func TestTenantOfTheCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		refusals := 1
		c.refuse = func(s *stream) error {
			if refusals--; refusals == 0 {
				c.refuse = nil
			}
			return s.ofTenant("acme")
		}
		begun := time.Now()
		r := c.run(worker.Config{}, echo)
		s := c.accept()
		if got := s.handshake.GetTenant(); got != "acme" || time.Since(begun) != 0 {
			t.Errorf("the second handshake states tenant %q after %v, want acme at once", got, time.Since(begun))
		}
		s.send(&lessorv1.SessionResponse{Tenant: "acme"})
		c.refuse = func(s *stream) error { return s.ofTenant("other") }
		s.finish(errBroken)
		wantDenied(t, r.done())
	})
	t.Run("configured", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := startCoordinator(t)
			c.refuse = func(s *stream) error { return s.ofTenant("acme") }
			wantDenied(t, c.run(worker.Config{Tenant: "default"}, echo).done())
		})
	})
	t.Run("accepted", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := startCoordinator(t)
			r := c.run(worker.Config{}, echo)
			s := c.accept()
			c.refuse = func(s *stream) error { return s.ofTenant("acme") }
			s.finish(errBroken)
			wantDenied(t, r.done())
		})
	})
}

// wantDenied checks that Run ended because the worker's tenant is not that of its credentials.
func wantDenied(t *testing.T, err error) {
	t.Helper()
	var refused *worker.RefusedError
	if !errors.As(err, &refused) || refused.Code != "E.SESSION.DENIED" || !strings.Contains(refused.Message, "the credentials belong to tenant") {
		t.Errorf("Run = %v, want a refusal because of the tenant", err)
	}
}

// coordinatorStatus is a status as a coordinator makes it (S4).
func coordinatorStatus(code codes.Code, reason string) error {
	st, err := status.New(code, "no").WithDetails(&errdetails.ErrorInfo{
		Reason: reason, Domain: "lessor", Metadata: map[string]string{"code": "E." + strings.Replace(reason, "_", ".", 1)},
	})
	if err != nil {
		panic(err)
	}
	return st.Err()
}

// What stands between, or a source of credentials, cannot end a worker that a coordinator has accepted before: its tasks go on,
// and are reported once the way is free again.
func TestRefusalOfAProxyEndsNothing(t *testing.T) {
	for _, code := range []codes.Code{codes.Unimplemented, codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument} {
		t.Run(code.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				r := c.run(worker.Config{}, func(ctx context.Context, _ *worker.Task) ([]byte, error) {
					time.Sleep(10 * time.Second)
					return nil, context.Cause(ctx)
				})
				s := c.accept()
				s.dispatch("t1")
				s.started("t1")
				refused := time.Now()
				c.refuse = func(s *stream) error {
					if time.Since(refused) > 20*time.Second {
						c.refuse = nil
					}
					return status.Error(code, "no route")
				}
				s.finish(errBroken)
				s = c.accept()
				f, report := s.outcome()
				if report.GetComplete() == nil {
					t.Errorf("report = %v, want a complete", report)
				}
				s.commit(f)
				r.shutdown()
			})
		})
	}
}

// ofTenant refuses the first frame as a coordinator does where the credentials are of the given tenant and the worker states another.
func (s *stream) ofTenant(tenant string) error {
	f, err := s.grpc.Recv()
	if err == nil {
		s.send(&lessorv1.SessionResponse{Corr: f.GetId(), Tenant: tenant, Payload: &lessorv1.SessionResponse_Error{
			Error: &lessorv1.Error{Code: "E.SESSION.DENIED", Message: "tenant"},
		}})
		err = status.Error(codes.PermissionDenied, "tenant")
	}
	return err
}

// deny answers the frame of the given number with an error frame that no repeat can cure.
func (s *stream) deny(frame int) error {
	for n := 1; ; n++ {
		f, err := s.grpc.Recv()
		switch {
		case err != nil:
			return err
		case n == frame:
			s.send(&lessorv1.SessionResponse{Corr: f.GetId(), Payload: &lessorv1.SessionResponse_Error{
				Error: &lessorv1.Error{Code: "E.SESSION.DENIED", Message: "no"},
			}})
		case n == 1:
			s.send(&lessorv1.SessionResponse{Corr: f.GetId(), Payload: &lessorv1.SessionResponse_Accept{Accept: &lessorv1.Accept{}}})
		}
	}
}

// The same refusal of a session that was established is no reason to give up: the next opening tells.
func TestEstablishedSessionIsOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, echo)
		s := c.accept()
		s.send(&lessorv1.SessionResponse{Ack: &lessorv1.Ack{For: "1"}})
		synctest.Wait()
		s.finish(status.Error(codes.Unauthenticated, "token expired"))
		c.accept()
		r.shutdown()
	})
}

// A refused worker cannot renew or report any more: its handlers end with ErrLeaseLost.
func TestRefusalStopsHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		causes := make(chan error, 1)
		r := c.run(worker.Config{}, untilStopped(causes))
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		c.refuse = func(*stream) error { return coordinatorStatus(codes.Unauthenticated, "AUTH_INVALID_TOKEN") }
		s.finish(errBroken)
		if cause := <-causes; !errors.Is(cause, worker.ErrLeaseLost) {
			t.Errorf("cause = %v, want %v", cause, worker.ErrLeaseLost)
		}
		var refused *worker.RefusedError
		if err := r.done(); !errors.As(err, &refused) {
			t.Errorf("Run = %v, want a refusal", err)
		}
	})
}

// A coordinator that accepts the stream and then says nothing does not hold the worker for ever.
func TestSilentCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		opened := 0
		c.refuse = func(s *stream) error { opened++; <-s.grpc.Context().Done(); return nil }
		r := c.run(worker.Config{}, echo)
		time.Sleep(time.Minute)
		synctest.Wait()
		if opened < 2 {
			t.Errorf("%d streams in a minute", opened)
		}
		r.shutdown()
	})
}

// Run works once, and only with a handler.
func TestRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		w, err := worker.New(c.conn, []string{"q"}, worker.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Run(t.Context()); err == nil {
			t.Error("Run without a handler: no error")
		}
		w.HandleDefault(echo)
		ended := make(chan error, 2)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { ended <- w.Run(ctx) }()
		s := c.accept()
		if types := s.register.GetRegister().GetCapabilities().GetTypes(); len(types) != 0 {
			t.Errorf("types = %v, want none: every type", types)
		}
		if err := w.Run(ctx); !errors.Is(err, worker.ErrAlreadyRun) {
			t.Errorf("second Run = %v", err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

// W7, W8: an error about another frame that comes before the accept is no answer to the handshake: it waited for the stream, and the accept says where to go on.
func TestErrorBeforeAccept(t *testing.T) {
	t.Attr("rules", "W7 W8")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		c.accepts = func(s *stream, _ *lessorv1.Accept) {
			for _, code := range []string{"E.RESULT.SEQ_GAP", "E.CMD.UNKNOWN"} {
				s.resend(&lessorv1.SessionResponse{
					Id: code, Corr: "f7", Payload: &lessorv1.SessionResponse_Error{Error: &lessorv1.Error{Code: code, ExpectedSeq: 7}},
				})
			}
		}
		r := c.run(worker.Config{}, echo)
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		f, _ := s.outcome()
		s.commit(f)
		r.shutdown()
	})
}
