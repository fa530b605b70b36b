package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
)

// Confirm asks the coordinator at once, with a heartbeat, and returns nil only if the lease lives,
// is not being cancelled and has enough time left. A whole lease is refused even if the answer
// takes no time, as in tests in fake time.
func TestConfirm(t *testing.T) {
	live := &lessorv1.LeaseAck{Verdict: lessorv1.Verdict_VERDICT_COMMITTED, ExpiresIn: durationpb.New(ttl)}
	cancelling := &lessorv1.LeaseAck{
		Verdict: lessorv1.Verdict_VERDICT_COMMITTED, ExpiresIn: durationpb.New(ttl),
		ShouldCancel: true,
	}
	lost := &lessorv1.LeaseAck{Verdict: lessorv1.Verdict_VERDICT_CANCELLED, Reason: lessorv1.Reason_REASON_SUPERSEDED}
	for _, test := range []struct {
		name   string
		answer *lessorv1.LeaseAck
		ask    time.Duration
		want   error
	}{
		{"live", live, ttl - time.Second, nil},
		{"as long as a lease", live, ttl, worker.ErrLeaseShort},
		{"longer than a lease", live, ttl + 1, worker.ErrLeaseShort},
		{"cancelled", cancelling, time.Second, worker.ErrCancelled},
		{"lost", lost, time.Second, worker.ErrLeaseLost},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				answers := make(chan error, 1)
				r := c.run(worker.Config{}, func(_ context.Context, task *worker.Task) ([]byte, error) {
					time.Sleep(time.Second)
					answers <- task.Confirm(context.Background(), test.ask)
					return nil, nil
				})
				s := c.accept()
				begun := time.Now()
				s.dispatch("t1")
				s.started("t1")
				f := s.renewal()
				if waited := time.Since(begun); waited != time.Second {
					t.Errorf("the heartbeat came after %v, want 1s, when the handler calls Confirm", waited)
				}
				s.acknowledge(f, test.answer)
				if got := <-answers; !errors.Is(got, test.want) || (got == nil) != (test.want == nil) {
					t.Errorf("Confirm = %v, want %v", got, test.want)
				} else if test.ask >= ttl && !strings.Contains(got.Error(), "heartbeat_timeout of the task is "+ttl.String()) {
					t.Errorf("Confirm = %v, which does not say that no lease is ever so long", got)
				}
				if !errors.Is(test.want, worker.ErrLeaseLost) {
					f, _ := s.outcome()
					s.commit(f)
				}
				r.shutdown()
			})
		})
	}
}

// A8: Confirm counts the lease from when it asked, not from when the answer came. Here the answer
// takes 6 s, so that a lease that was good for the full TTL has less left than the handler wants.
func TestConfirmCountsTheLeaseFromTheRequest(t *testing.T) {
	t.Attr("rules", "A8")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		answers := make(chan error, 1)
		r := c.run(worker.Config{}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
			answers <- task.Confirm(ctx, ttl-5*time.Second)
			return nil, nil
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		f := s.renewal()
		time.Sleep(6 * time.Second)
		s.renew(f)
		if got := <-answers; !errors.Is(got, worker.ErrLeaseShort) {
			t.Errorf("Confirm = %v, want %v", got, worker.ErrLeaseShort)
		}
		f, _ = s.outcome()
		s.commit(f)
		r.shutdown()
	})
}

// Confirm returns when its own context ends. A Confirm that has no answer when the stream breaks
// asks again on the next stream.
func TestConfirmWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		answers := make(chan error, 2)
		r := c.run(worker.Config{}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			answers <- task.Confirm(short, time.Second)
			answers <- task.Confirm(ctx, time.Second)
			return nil, nil
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		if got := <-answers; !errors.Is(got, context.DeadlineExceeded) {
			t.Errorf("Confirm = %v, want %v", got, context.DeadlineExceeded)
		}
		s.finish(errBroken)
		s = c.accept()
		s.renew(s.renewal())
		if got := <-answers; got != nil {
			t.Errorf("Confirm = %v, want nil", got)
		}
		f, _ := s.outcome()
		s.commit(f)
		r.shutdown()
	})
}

// SaveCheckpoint returns when the coordinator has confirmed that it stored the checkpoint, not
// before (A6, T10).
func TestSaveCheckpoint(t *testing.T) {
	t.Attr("rules", "T10")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		saved := make(chan error, 1)
		r := c.run(worker.Config{}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
			saved <- task.SaveCheckpoint(ctx, []byte("half way"))
			return nil, nil
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		f := s.renewal()
		if got := f.GetHeartbeat().GetLeases()[0]; string(got.GetCheckpoint()) != "half way" {
			t.Errorf("heartbeat = %v, want the checkpoint", got)
		}
		synctest.Wait()
		select {
		case err := <-saved:
			t.Fatalf("SaveCheckpoint = %v before the answer", err)
		default:
		}
		s.renew(f)
		if err := <-saved; err != nil {
			t.Errorf("SaveCheckpoint = %v, want nil", err)
		}
		f, _ = s.outcome()
		s.commit(f)
		r.shutdown()
	})
}

// K3: a checkpoint is sent in the same message as the metrics of the task. SaveCheckpoint refuses a
// checkpoint that fits into a message alone but not together with the metrics, so that it does not
// break the stream.
func TestCheckpointLeavesRoomForMetrics(t *testing.T) {
	t.Attr("rules", "K3")
	synctest.Test(t, func(t *testing.T) {
		const most = 256 << 10
		c := startCoordinator(t)
		r := c.run(worker.Config{MaxMessageBytes: most}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
			for i := range 64 {
				task.SetMetric(strings.Repeat(string(rune('!'+i)), 256), 1)
			}
			return nil, task.SaveCheckpoint(ctx, make([]byte, most-8<<10))
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		f, report := s.outcome()
		if got := report.GetFail().GetError().GetMessage(); !strings.HasPrefix(got, "rejected: INVALID_REQUEST: checkpoint") {
			t.Errorf("report = %v, want a fail with the rejection of the checkpoint", report)
		}
		s.commit(f)
		r.shutdown()
	})
}

// K3: if the coordinator rejects a checkpoint, SaveCheckpoint returns a RejectedError and the
// handler goes on. The rejected heartbeat renewed nothing, so that the worker renews the lease at
// once, without the checkpoint and the progress that may have been the cause.
func TestCheckpointRejected(t *testing.T) {
	t.Attr("rules", "K3")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		goOn := make(chan struct{})
		r := c.run(worker.Config{}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
			task.Progress(0.5, "half", "running")
			var rejected *worker.RejectedError
			if err := task.SaveCheckpoint(ctx, nil); !errors.As(err, &rejected) {
				t.Errorf("empty checkpoint: %v, want a RejectedError", err)
			}
			if err := task.SaveCheckpoint(ctx, []byte("long")); !errors.As(err, &rejected) || rejected.Detail != "checkpoint: too long" {
				t.Errorf("SaveCheckpoint = %v, want a RejectedError with the detail %q", err, "checkpoint: too long")
			}
			<-goOn
			return nil, context.Cause(ctx)
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		s.acknowledge(s.renewal(), &lessorv1.LeaseAck{
			Verdict: lessorv1.Verdict_VERDICT_REJECTED, Reason: lessorv1.Reason_REASON_INVALID_REQUEST,
			Detail: "checkpoint: too long",
		})
		begun := time.Now()
		f := s.renewal()
		if bare := f.GetHeartbeat().GetLeases()[0]; time.Since(begun) > 0 || len(bare.GetCheckpoint()) > 0 || bare.GetProgress() != nil {
			t.Errorf("after %v: %v, want a bare heartbeat at once", time.Since(begun), bare)
		}
		s.renew(f)
		if full := s.renewal().GetHeartbeat().GetLeases()[0]; full.GetProgress() == nil {
			t.Errorf("the heartbeat after the bare one is %v, want the progress in it", full)
		}
		close(goOn)
		f, report := s.outcome()
		if report.GetComplete() == nil {
			t.Errorf("report = %v, want a complete", report)
		}
		s.commit(f)
		r.shutdown()
	})
}

// K3, T10: a checkpoint that waits behind a rejected one is sent after the bare heartbeat, so that
// rejected checkpoints, one after another, cannot keep the lease from being renewed.
func TestCheckpointBehindARejectedOne(t *testing.T) {
	t.Attr("rules", "K3 T10")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
			first := make(chan error, 1)
			go func() { first <- task.SaveCheckpoint(ctx, []byte("long")) }()
			time.Sleep(time.Second) // until it is sent
			err := task.SaveCheckpoint(ctx, []byte("next"))
			if _, rejected := errors.AsType[*worker.RejectedError](<-first); err != nil || !rejected {
				t.Errorf("SaveCheckpoint: the first one was rejected: %v; error of the second one: %v", rejected, err)
			}
			return nil, context.Cause(ctx)
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		f := s.renewal()
		time.Sleep(2 * time.Second) // until the second one waits
		s.acknowledge(f, &lessorv1.LeaseAck{
			Verdict: lessorv1.Verdict_VERDICT_REJECTED,
			Reason:  lessorv1.Reason_REASON_INVALID_REQUEST,
		})
		// the first is that of the second SaveCheckpoint, which may not carry its checkpoint yet
		for _, want := range []string{"", "", "next"} {
			f := s.renewal()
			if got := f.GetHeartbeat().GetLeases()[0].GetCheckpoint(); string(got) != want {
				t.Errorf("heartbeat with checkpoint %q, want %q", got, want)
			}
			s.renew(f)
		}
		f, _ = s.outcome()
		s.commit(f)
		r.shutdown()
	})
}

// K3, T10: if the newest of the checkpoints that wait is rejected, only its own call is told. The
// one that it replaced is sent then. One that comes back later than that, and is older, is not sent
// any more: the newer one is saved.
func TestRejectedCheckpointHarmsNoOther(t *testing.T) {
	t.Attr("rules", "K3 T10 A6")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
			texts := []string{"first", "older", "newer", "bad"}
			errs := make([]error, len(texts))
			var saves sync.WaitGroup
			for i, text := range texts {
				saves.Go(func() { errs[i] = task.SaveCheckpoint(ctx, []byte(text)) })
				time.Sleep(time.Second) // until it is sent, or waits
			}
			saves.Wait()
			for i, err := range errs {
				_, rejected := errors.AsType[*worker.RejectedError](err)
				if bad := texts[i] == "bad"; rejected != bad || err != nil && !bad {
					t.Errorf("SaveCheckpoint of %q = %v, want that only the bad one is rejected", texts[i], err)
				}
			}
			return nil, nil
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		first := s.renewal()
		time.Sleep(5 * time.Second)
		s.renew(first)
		var sent []string
		f := s.next("renewal or outcome", func(f *lessorv1.SessionRequest) bool { return isRenewal(f) || isOutcome(f) })
		for ; isRenewal(f); f = s.next("renewal or outcome", func(f *lessorv1.SessionRequest) bool { return isRenewal(f) || isOutcome(f) }) {
			text := string(f.GetHeartbeat().GetLeases()[0].GetCheckpoint())
			if text != "" {
				sent = append(sent, text)
			}
			if text == "bad" {
				s.acknowledge(f, &lessorv1.LeaseAck{
					Verdict: lessorv1.Verdict_VERDICT_REJECTED,
					Reason:  lessorv1.Reason_REASON_INVALID_REQUEST,
				})
			} else {
				s.renew(f)
			}
		}
		s.commit(f)
		// the older one is left out if the newer one is tried first
		if all := fmt.Sprint(sent); all != "[bad newer]" && all != "[bad older newer]" {
			t.Errorf("checkpoints %v were sent after the first, want [bad newer], perhaps with the older one between them", sent)
		}
		r.shutdown()
	})
}

// Confirm returns ErrFinished if the handler returns while Confirm still waits to be sent, and from
// then on at once.
func TestConfirmAfterTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		goOn, answers := make(chan struct{}), make(chan error, 2)
		r := c.run(worker.Config{}, func(_ context.Context, task *worker.Task) ([]byte, error) {
			<-goOn
			go func() {
				for range 2 {
					answers <- task.Confirm(context.Background(), time.Second)
				}
			}()
			synctest.Wait()
			return nil, nil
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		s.finish(errBroken)
		synctest.Wait() // until there is no stream
		close(goOn)
		for range 2 {
			if got := <-answers; !errors.Is(got, worker.ErrFinished) {
				t.Errorf("Confirm = %v, want %v", got, worker.ErrFinished)
			}
		}
		s = c.accept()
		f, _ := s.outcome()
		s.commit(f)
		r.shutdown()
	})
}

// Confirm returns ErrFinished as well if the handler has returned before the answer, and the stream
// breaks: then the answer never comes.
func TestConfirmIsLostAfterTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		goOn, answers := make(chan struct{}), make(chan error, 1)
		r := c.run(worker.Config{}, func(_ context.Context, task *worker.Task) ([]byte, error) {
			go func() { answers <- task.Confirm(context.Background(), time.Second) }()
			<-goOn
			return nil, nil
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		s.renewal() // it gets no answer
		close(goOn)
		f, _ := s.outcome()
		s.commit(f)
		s.finish(errBroken)
		if got := <-answers; !errors.Is(got, worker.ErrFinished) {
			t.Errorf("Confirm = %v, want %v", got, worker.ErrFinished)
		}
		c.accept()
		r.shutdown()
	})
}

// A6: calls of SaveCheckpoint and Confirm that wait at the same time share one heartbeat. It
// carries the newest checkpoint, and each call gets the answer. Here they wait until there is a
// stream.
func TestWaitingCallsShareAHeartbeat(t *testing.T) {
	t.Attr("rules", "T10")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		steps, answers := make(chan struct{}), make(chan error, 4)
		r := c.run(worker.Config{}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
			go func() { answers <- task.SaveCheckpoint(ctx, []byte("sent, but lost with the stream")) }()
			<-steps
			go func() { answers <- task.SaveCheckpoint(ctx, []byte("old")) }()
			<-steps
			go func() { answers <- task.SaveCheckpoint(ctx, []byte("newest")) }()
			<-steps
			go func() { answers <- task.Confirm(ctx, time.Second) }()
			<-steps
			return nil, nil
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		s.renewal()
		s.finish(errBroken)
		for range 3 {
			synctest.Wait() // there is no stream, and the calls so far wait
			steps <- struct{}{}
		}
		s = c.accept()
		f := s.renewal()
		if got := string(f.GetHeartbeat().GetLeases()[0].GetCheckpoint()); got != "newest" {
			t.Errorf("checkpoint = %q, want %q", got, "newest")
		}
		s.renew(f)
		for range 4 {
			if err := <-answers; err != nil {
				t.Errorf("SaveCheckpoint or Confirm = %v, want nil", err)
			}
		}
		steps <- struct{}{}
		f, _ = s.outcome()
		s.commit(f)
		r.shutdown()
	})
}

// K5: a heartbeat that got an error instead of an answer is sent again with its checkpoint, no
// earlier than the coordinator asks and not much later.
func TestHeartbeatIsRetried(t *testing.T) {
	t.Attr("rules", "K5 T10")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
			return nil, task.SaveCheckpoint(ctx, []byte("half way"))
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		for try := range 3 {
			begun := time.Now()
			f := s.renewal()
			if waited := time.Since(begun); try > 0 && (waited < 2*time.Second || waited > 3*time.Second) {
				t.Errorf("the heartbeat came again after %v, want 2s to 3s", waited)
			}
			if got := string(f.GetHeartbeat().GetLeases()[0].GetCheckpoint()); got != "half way" {
				t.Errorf("checkpoint = %q, want %q", got, "half way")
			}
			switch try {
			case 0:
				s.acknowledge(f, &lessorv1.LeaseAck{Error: &lessorv1.ItemError{Code: "E.INTERNAL", RetryAfter: durationpb.New(2 * time.Second)}})
			case 1:
				s.send(&lessorv1.SessionResponse{Corr: f.GetId(), Payload: &lessorv1.SessionResponse_Error{
					Error: &lessorv1.Error{Code: "E.QUOTA", RetryAfter: durationpb.New(2 * time.Second)},
				}})
			default:
				s.renew(f)
			}
		}
		f, report := s.outcome()
		if report.GetComplete() == nil {
			t.Errorf("report = %v, want a complete", report)
		}
		s.commit(f)
		r.shutdown()
	})
}

// K5: an answer may lack the renewal of a lease, name another lease in its place, or have no
// verdict in it. Then the heartbeat is sent again.
func TestIncompleteHeartbeatAck(t *testing.T) {
	t.Attr("rules", "K5")
	for name, acks := range map[string][]*lessorv1.LeaseAck{
		"none":          nil,
		"another lease": {{LeaseId: "lease-t2", Verdict: lessorv1.Verdict_VERDICT_COMMITTED}},
		"unspecified":   {{LeaseId: "lease-t1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				r := c.run(worker.Config{}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
					return nil, task.SaveCheckpoint(ctx, []byte("half way"))
				})
				s := c.accept()
				s.dispatch("t1")
				s.started("t1")
				f := s.renewal()
				begun := time.Now()
				s.send(&lessorv1.SessionResponse{Corr: f.GetId(), Payload: &lessorv1.SessionResponse_HeartbeatAck{
					HeartbeatAck: &lessorv1.HeartbeatAck{Leases: acks},
				}})
				f = s.renewal()
				if got := f.GetHeartbeat().GetLeases()[0].GetCheckpoint(); string(got) != "half way" || time.Since(begun) > time.Second {
					t.Errorf("after %v: checkpoint %q, want %q within 1s", time.Since(begun), got, "half way")
				}
				s.renew(f)
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

// A6, T10: a checkpoint never replaces a newer one. The worker sends it only when the one before
// has its answer. If that answer is an error, or the stream breaks instead, the newest checkpoint
// is sent.
func TestCheckpointsKeepTheirOrder(t *testing.T) {
	t.Attr("rules", "A6 T10")
	for name, fail := range map[string]func(*coordinator, *stream, *lessorv1.SessionRequest) *stream{
		"error": func(_ *coordinator, s *stream, f *lessorv1.SessionRequest) *stream {
			s.acknowledge(f, &lessorv1.LeaseAck{Error: &lessorv1.ItemError{Code: "E.INTERNAL"}})
			return s
		},
		"broken stream": func(c *coordinator, s *stream, _ *lessorv1.SessionRequest) *stream {
			s.finish(errBroken)
			return c.accept()
		},
		"late answer": func(_ *coordinator, s *stream, f *lessorv1.SessionRequest) *stream {
			s.renew(f)
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				r := c.run(worker.Config{}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
					short, cancel := context.WithTimeout(ctx, time.Second)
					defer cancel()
					if err := task.SaveCheckpoint(short, []byte("old")); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("SaveCheckpoint = %v, want %v", err, context.DeadlineExceeded)
					}
					if err := task.SaveCheckpoint(ctx, []byte("newest")); err != nil {
						t.Errorf("SaveCheckpoint = %v, want nil", err)
					}
					time.Sleep(ttl)
					return nil, nil
				})
				s := c.accept()
				s.dispatch("t1")
				s.started("t1")
				first := s.renewal()
				f := s.renewal()
				if got := f.GetHeartbeat().GetLeases()[0].GetCheckpoint(); len(got) > 0 {
					t.Errorf("checkpoint = %q before the first one has its answer, want none", got)
				}
				s.renew(f)
				time.Sleep(time.Second)
				s = fail(c, s, first)
				f = s.renewal()
				if got := string(f.GetHeartbeat().GetLeases()[0].GetCheckpoint()); got != "newest" {
					t.Errorf("checkpoint = %q, want %q", got, "newest")
				}
				for s.renew(f); !isOutcome(f); {
					f = s.next("renewal or outcome",
						func(f *lessorv1.SessionRequest) bool { return isRenewal(f) || isOutcome(f) })
					if isRenewal(f) {
						if got := f.GetHeartbeat().GetLeases()[0].GetCheckpoint(); len(got) > 0 {
							t.Errorf("checkpoint = %q after the newest, want none", got)
						}
						s.renew(f)
					}
				}
				s.commit(f)
				r.shutdown()
			})
		})
	}
}
