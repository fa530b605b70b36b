package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
)

// W1: the worker opens a session that broke again, after waits that grow from MinBackoff to
// MaxBackoff. OnState and OnError are told.
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
		if !slices.Contains(r.states, worker.StateBackoff) || !r.gotError(errBroken) {
			t.Errorf("states = %v, errors = %v, want %v among the states and %v among the errors",
				r.states, r.errors, worker.StateBackoff, errBroken)
		}
	})
}

// W1: after a session that lasted, the first wait is short again.
func TestBackoffBeginsAnewAfterASession(t *testing.T) {
	t.Attr("rules", "W1")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		refusals := 5
		c.refuse = func(*stream) error {
			if refusals--; refusals == 0 {
				c.refuse = nil
			}
			return errBroken
		}
		r := c.run(worker.Config{MinBackoff: time.Second, MaxBackoff: time.Minute}, echo)
		s := c.accept()
		time.Sleep(time.Hour)
		begun := time.Now()
		s.finish(errBroken)
		c.accept()
		if waited := time.Since(begun); waited > time.Second {
			t.Errorf("the worker came back after %v, want at most 1s", waited)
		}
		r.shutdown()
	})
}

// W1: a reset from the coordinator may say how long the worker has to wait before it opens another
// stream. The worker adds its own backoff, which is random: a coordinator that stops tells all its
// workers the same.
func TestResetRetryAfter(t *testing.T) {
	t.Attr("rules", "W1")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{MinBackoff: time.Second}, echo)
		s := c.accept()
		begun := time.Now()
		s.send(&lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Reset_{Reset_: &lessorv1.Reset{
			Code: "E.INTERNAL", RetryAfter: durationpb.New(time.Minute),
		}}})
		c.accept()
		if got := time.Since(begun); got < time.Minute+time.Second/2 || got > time.Minute+time.Second {
			t.Errorf("the worker came back after %v, want the retry_after of 1m and a backoff of 0.5 s to 1 s", got)
		}
		r.shutdown()
	})
}

// A9: a worker with leases comes back while they have three quarters of their time left, even if
// the coordinator asks for a longer wait, but never sooner than after half the least backoff. An
// outcome that has not arrived holds its lease, too.
func TestLeasesShortenTheWait(t *testing.T) {
	t.Attr("rules", "A9 W1")
	const minBackoff = 100 * time.Millisecond
	for _, test := range []struct {
		left, handler time.Duration
		least, most   time.Duration
	}{
		{2 * time.Second, time.Hour, 250 * time.Millisecond, 500 * time.Millisecond},
		{2 * time.Second, 0, 250 * time.Millisecond, 500 * time.Millisecond},
		{40 * time.Millisecond, time.Hour, minBackoff / 2, minBackoff / 2},
		{time.Hour, time.Hour, time.Minute + minBackoff/2, time.Minute + minBackoff},
	} {
		t.Run(fmt.Sprint(test.left, " left, handler takes ", test.handler), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				r := c.run(worker.Config{MinBackoff: minBackoff}, func(ctx context.Context, _ *worker.Task) ([]byte, error) {
					select {
					case <-ctx.Done():
					case <-time.After(test.handler):
					}
					return nil, nil
				})
				s := c.accept()
				d := dispatchOf("long", "short")
				for i, left := range []time.Duration{24 * time.Hour, test.left} {
					a := d.GetDispatch().GetAssignments()[i]
					a.ExpiresIn, a.HeartbeatTimeout = durationpb.New(left), durationpb.New(left)
				}
				s.send(d)
				synctest.Wait()
				begun := time.Now()
				s.send(&lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Reset_{Reset_: &lessorv1.Reset{
					Code: "E.COORDINATOR.STOPPING", RetryAfter: durationpb.New(time.Minute),
				}}})
				c.accept()
				if got := time.Since(begun); got < test.least || got > test.most {
					t.Errorf("the worker came back after %v, want %v to %v", got, test.least, test.most)
				}
				r.worker.Drain(0)
				_ = r.done() // what it could not report
			})
		})
	}
}

// If the coordinator refuses the first session for good, Run ends with a RefusedError that has the
// coordinator's code, or else the name of the status.
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

// If a worker has no configured tenant, it takes the tenant that the coordinator names in its first
// refusal, and connects again at once. It does so only once, and never after a coordinator has
// accepted it: a refusal with another tenant then ends Run, because the credentials have changed.
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

// coordinatorStatus is a status with the details that a coordinator adds (S4); a proxy adds none.
func coordinatorStatus(code codes.Code, reason string) error {
	st, err := status.New(code, "no").WithDetails(&errdetails.ErrorInfo{
		Reason: reason, Domain: "lessor", Metadata: map[string]string{"code": "E." + strings.Replace(reason, "_", ".", 1)},
	})
	if err != nil {
		panic(err)
	}
	return st.Err()
}

// A refusal without the coordinator's details comes from a proxy or a source of credentials. It
// does not end a worker that a coordinator has accepted before: its handlers go on, and their
// outcomes are reported when the worker is let in again.
func TestRefusalByAProxyDoesNotEndRun(t *testing.T) {
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

// ofTenant refuses the first frame, as a coordinator does if the worker states another tenant than
// the one to which its credentials belong.
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

// deny answers the frame with the given number, 1 for handshake and 2 for register, with
// E.SESSION.DENIED, which no repeat can cure.
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
			s.send(&lessorv1.SessionResponse{
				Corr:    f.GetId(),
				Payload: &lessorv1.SessionResponse_Accept{Accept: &lessorv1.Accept{}},
			})
		}
	}
}

// A session that was established and then ends with UNAUTHENTICATED does not end Run: the worker
// opens another one, and the answer to that decides.
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

// A token that is renewed late costs no work whose lease lives: while its credential is refused,
// the handlers of a worker that was accepted before go on as long as their leases live, and their
// outcomes are reported when the worker is let in again. OnError gets the refusal.
func TestCredentialThatIsRenewedLate(t *testing.T) {
	for _, test := range []struct {
		name       string
		ttl, after time.Duration
	}{
		{"within the lease", ttl, time.Minute},
		{"after the work was done", 10 * time.Minute, 9 * time.Minute},
		{"while idle", 0, 4 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				r := c.run(worker.Config{}, func(ctx context.Context, _ *worker.Task) ([]byte, error) {
					time.Sleep(30 * time.Second)
					return nil, context.Cause(ctx)
				})
				s := c.accept()
				if test.ttl > 0 {
					s.dispatch("t1")
					s.answer(s.reports(), func(*lessorv1.Report) *lessorv1.ReportVerdict {
						return &lessorv1.ReportVerdict{
							Verdict:   lessorv1.Verdict_VERDICT_COMMITTED,
							ExpiresIn: durationpb.New(test.ttl),
						}
					})
					synctest.Wait()
				}
				renewed := time.Now().Add(test.after)
				c.refuse = func(*stream) error {
					if time.Now().After(renewed) {
						c.refuse = nil
					}
					return coordinatorStatus(codes.Unauthenticated, "AUTH_INVALID_TOKEN")
				}
				s.finish(errBroken)
				s = c.accept()
				if test.ttl > 0 {
					f, report := s.outcome()
					if report.GetComplete() == nil {
						t.Errorf("report = %v, want a complete", report)
					}
					s.commit(f)
				}
				r.shutdown()
				var refused *worker.RefusedError
				if !slices.ContainsFunc(r.errors, func(err error) bool { return errors.As(err, &refused) && refused.Code == "E.AUTH.INVALID_TOKEN" }) {
					t.Errorf("OnError got %v, want a refusal among them", r.errors)
				}
			})
		})
	}
}

// X1: a worker that waits because its token was refused, or has ended, sees within a second that
// the file has another one, and tries at once. It does not look for one while it waits for another
// reason, or for as long as the coordinator asked it to.
func TestTokenIsReplacedDuringTheWait(t *testing.T) {
	t.Attr("rules", "X1")
	const wait = time.Minute // at least
	ended := &lessorv1.Reset{Code: "E.AUTH.INVALID_TOKEN"}
	broken := &lessorv1.Reset{Code: "E.INTERNAL"}
	for _, test := range []struct {
		name    string
		reset   *lessorv1.Reset // ends the first session
		refusal error           // of the next one; nil: there is none before the file is replaced
		atOnce  bool
	}{
		{"ended", ended, nil, true},
		{"refused", broken, coordinatorStatus(codes.Unauthenticated, "AUTH_INVALID_TOKEN"), true},
		{"refused by a proxy", broken, status.Error(codes.Unauthenticated, "no"), true},
		{"another reason", broken, errBroken, false},
		{"told to wait", &lessorv1.Reset{Code: ended.GetCode(), RetryAfter: durationpb.New(wait)}, nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "token")
				put := func(text string) {
					if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				put("old")
				token := worker.TokenFile(file)
				token.PlainText = true
				c := startCoordinator(t, grpc.WithPerRPCCredentials(token))
				r := c.run(worker.Config{MinBackoff: 2 * wait, MaxBackoff: 2 * wait}, echo)
				s := c.accept()
				refused := make(chan struct{})
				if test.refusal != nil {
					c.refuse = func(*stream) error { c.refuse = nil; close(refused); return test.refusal }
				} else {
					close(refused)
				}
				s.send(&lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Reset_{Reset_: test.reset}})
				<-refused
				time.Sleep(5 * time.Second)
				put("new")
				begun := time.Now()
				c.accept()
				if took := time.Since(begun); test.atOnce != (took <= time.Second) || !test.atOnce && took < wait/2 {
					t.Errorf("the worker came back %v after its token was replaced; within a second: want %v", took, test.atOnce)
				}
				r.shutdown()
			})
		})
	}
}

// X1: that the credential of a session has ended is no alarm if the next session is accepted,
// because the credential was replaced in time.
func TestCredentialIsReplaced(t *testing.T) {
	t.Attr("rules", "X1")
	synctest.Test(t, func(t *testing.T) {
		var log journal
		c := startCoordinator(t)
		r := c.run(worker.Config{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))}, echo)
		c.accept().send(&lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Reset_{Reset_: &lessorv1.Reset{
			Code: "E.AUTH.INVALID_TOKEN", Reason: "the credential has expired",
		}}})
		c.accept()
		r.shutdown()
		if text := log.String(); text != "" || len(r.errors) > 0 {
			t.Errorf("the worker warned %q, and OnError got %v; want neither", text, r.errors)
		}
	})
}

// Another credential cannot help a worker that was never accepted, or that is refused for another
// reason: Run ends at once.
func TestRefusalThatIsNotAboutALateCredential(t *testing.T) {
	for _, test := range []struct {
		name     string
		accepted bool
		refusal  error
	}{
		{"never accepted", false, coordinatorStatus(codes.Unauthenticated, "AUTH_INVALID_TOKEN")},
		{"another reason", true, coordinatorStatus(codes.PermissionDenied, "SESSION_DENIED")},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				refuse := func(*stream) error { return test.refusal }
				if !test.accepted {
					c.refuse = refuse
				}
				r := c.run(worker.Config{}, echo)
				if test.accepted {
					s := c.accept()
					c.refuse = refuse
					s.finish(errBroken)
				}
				begun := time.Now()
				var refused *worker.RefusedError
				if err := r.done(); !errors.As(err, &refused) || time.Since(begun) > time.Second {
					t.Errorf("Run = %v after %v, want a refusal at once", err, time.Since(begun))
				}
			})
		})
	}
}

// The five minutes begin again after each session, but not because the connection is lost between
// two refusals.
func TestFiveMinutesForALateCredential(t *testing.T) {
	refusal := coordinatorStatus(codes.Unauthenticated, "AUTH_INVALID_TOKEN")
	t.Run("a session in between", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := startCoordinator(t)
			r := c.run(worker.Config{}, echo)
			for range 3 {
				s := c.accept()
				time.Sleep(time.Minute)
				renewed := time.Now().Add(3 * time.Minute)
				c.refuse = func(*stream) error {
					if time.Now().After(renewed) {
						c.refuse = nil
					}
					return refusal
				}
				s.finish(errBroken)
			}
			c.accept()
			r.shutdown()
		})
	})
	t.Run("lost connections in between", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := startCoordinator(t)
			r := c.run(worker.Config{}, echo)
			s := c.accept()
			tries := 0
			c.refuse = func(*stream) error {
				if tries++; tries%2 == 0 {
					return errBroken
				}
				return refusal
			}
			begun := time.Now()
			s.finish(errBroken)
			var refused *worker.RefusedError
			if err := r.done(); !errors.As(err, &refused) {
				t.Errorf("Run = %v, want a refusal", err)
			}
			if lasted := time.Since(begun).Truncate(time.Minute); lasted != 5*time.Minute {
				t.Errorf("Run ended %v after the first refusal, want about 5m", lasted)
			}
		})
	})
}

// A worker whose credential stays refused can neither renew nor report: its handlers end with
// ErrLeaseLost when their leases expire, and Run with the refusal, five minutes after the first
// one.
func TestRefusalStopsHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		causes := make(chan error, 1)
		r := c.run(worker.Config{}, untilStopped(causes))
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		c.refuse = func(*stream) error { return coordinatorStatus(codes.Unauthenticated, "AUTH_INVALID_TOKEN") }
		begun := time.Now()
		s.finish(errBroken)
		if cause := <-causes; !errors.Is(cause, worker.ErrLeaseLost) {
			t.Errorf("cause = %v, want %v", cause, worker.ErrLeaseLost)
		}
		var refused *worker.RefusedError
		if err := r.done(); !errors.As(err, &refused) {
			t.Errorf("Run = %v, want a refusal", err)
		}
		if lasted := time.Since(begun).Truncate(time.Minute); lasted != 5*time.Minute {
			t.Errorf("Run ended %v after the first refusal, want about 5m", lasted)
		}
	})
}

// If the caller closes the connection too early, no session can be opened again: handlers end with
// ErrLeaseLost, and Run with ErrConnClosed.
func TestConnectionIsClosedTooEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		causes := make(chan error, 1)
		r := c.run(worker.Config{}, untilStopped(causes))
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		begun := time.Now()
		_ = c.conn.Close()
		if cause := <-causes; !errors.Is(cause, worker.ErrLeaseLost) {
			t.Errorf("cause = %v, want %v", cause, worker.ErrLeaseLost)
		}
		if err := r.done(); !errors.Is(err, worker.ErrConnClosed) || time.Since(begun) > time.Second {
			t.Errorf("Run = %v after %v, want %v at once", err, time.Since(begun), worker.ErrConnClosed)
		}
	})
}

// If the coordinator does not answer the handshake, the worker gives up the stream after some time
// and opens another.
func TestSilentCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		opened := 0
		c.refuse = func(s *stream) error { opened++; <-s.grpc.Context().Done(); return nil }
		r := c.run(worker.Config{}, echo)
		time.Sleep(time.Minute)
		synctest.Wait()
		if opened < 2 {
			t.Errorf("the worker opened %d streams in a minute, want at least 2", opened)
		}
		r.shutdown()
	})
}

// Run returns an error without a handler, and ErrAlreadyRun on the second call. A worker with only
// a default handler registers no types, which means all.
func TestRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		w, err := worker.New(c.conn, []string{"q"}, worker.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Run(t.Context()); err == nil {
			t.Error("Run without a handler = nil, want an error")
		}
		w.HandleDefault(echo)
		ended := make(chan error, 2)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { ended <- w.Run(ctx) }()
		s := c.accept()
		if types := s.register.GetRegister().GetCapabilities().GetTypes(); len(types) != 0 {
			t.Errorf("types = %v, want none, which means every type", types)
		}
		if err := w.Run(ctx); !errors.Is(err, worker.ErrAlreadyRun) {
			t.Errorf("second Run = %v, want %v", err, worker.ErrAlreadyRun)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
}

// W7, W8: an error about an earlier frame may come before the accept of a new stream, because the
// coordinator sends it on the next stream. The worker does not take it for the answer to the
// handshake, and ignores its expected_seq: next_seq of the accept counts.
func TestErrorBeforeAccept(t *testing.T) {
	t.Attr("rules", "W7 W8")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		c.accepts = func(s *stream, _ *lessorv1.Accept) {
			for _, code := range []string{"E.RESULT.SEQ_GAP", "E.CMD.UNKNOWN"} {
				s.resend(&lessorv1.SessionResponse{
					Id: code, Corr: "f7",
					Payload: &lessorv1.SessionResponse_Error{Error: &lessorv1.Error{Code: code, ExpectedSeq: 7}},
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

// If the coordinator refuses a worker for good while a handler runs, the handler's context ends
// with ErrLeaseLost. Run waits until the handler has returned, and then returns the refusal.
func TestRefusalWaitsForHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		var returned time.Time
		r := c.run(worker.Config{}, func(ctx context.Context, _ *worker.Task) ([]byte, error) {
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, worker.ErrLeaseLost) {
				t.Errorf("cause = %v, want %v", cause, worker.ErrLeaseLost)
			}
			time.Sleep(3 * time.Second) // cleans up
			returned = time.Now()
			return nil, ctx.Err()
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		c.refuse = func(s *stream) error { return s.deny(1) }
		s.finish(errBroken)
		err := r.done()
		var refused *worker.RefusedError
		if !errors.As(err, &refused) || errors.Is(err, worker.ErrStuck) || returned.IsZero() {
			t.Errorf("Run = %v, handler returned: %v; want a refusal after the handler has returned", err, !returned.IsZero())
		}
	})
}
