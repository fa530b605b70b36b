package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
)

// W9: each heartbeat of the worker has gauges, measured once for each interval. The Metrics hook
// gets them, and what it returns is sent, without what the coordinator would refuse: values that
// are not finite, empty names and more than 64 gauges.
func TestGauges(t *testing.T) {
	t.Attr("rules", "W9")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		measured := make(chan map[string]float64, 8)
		r := c.run(worker.Config{Metrics: func(m map[string]float64) map[string]float64 {
			measured <- m
			sent := map[string]float64{"mem_pct": 42, "nan": math.NaN(), "inf": math.Inf(1), "": 1}
			for i := range 100 {
				sent[fmt.Sprintf("z%d", i)] = 1
			}
			return sent
		}}, echo)
		s := c.accept()
		isBeat := func(f *lessorv1.SessionRequest) bool { return f.GetHeartbeat() != nil }
		got := s.next("heartbeat", isBeat).GetHeartbeat().GetMetrics()
		if len(got) != 64 || got["mem_pct"] != 42 {
			t.Errorf("%d gauges with mem_pct %v, want 64 with 42", len(got), got["mem_pct"])
		}
		for _, name := range []string{"nan", "inf", ""} {
			if _, sent := got[name]; sent {
				t.Errorf("gauge %q was sent", name)
			}
		}
		if m := <-measured; m["inflight"] != 0 {
			t.Errorf("Metrics got %v, want inflight 0", m)
		}
		s.dispatch("t1")
		s.started("t1")
		f, _ := s.outcome()
		s.commit(f)
		time.Sleep(interval + time.Second)
		if n := len(measured); n != 1 {
			t.Errorf("Metrics was called %d times in an interval, want once", n)
		}
		r.shutdown()
	})
}

// A disk or a Metrics hook that does not return holds up nothing else: leases are renewed, outcomes
// are reported, and a drain ends. It is not called again meanwhile, and when it has returned,
// heartbeats have gauges again.
func TestGaugesThatHang(t *testing.T) {
	t.Attr("rules", "W9")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		hang, finish := make(chan struct{}), make(chan struct{})
		var calls atomic.Int32
		r := c.run(worker.Config{Metrics: func(m map[string]float64) map[string]float64 {
			if calls.Add(1) > 1 {
				<-hang
			}
			return m
		}}, func(ctx context.Context, _ *worker.Task) ([]byte, error) {
			<-finish
			return nil, context.Cause(ctx)
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		for begun := time.Now(); time.Since(begun) < 3*ttl; {
			s.renew(s.next("heartbeat", func(f *lessorv1.SessionRequest) bool { return f.GetHeartbeat() != nil }))
		}
		if n := calls.Load(); n != 2 {
			t.Errorf("Metrics was called %d times, want a second time that hangs", n)
		}
		close(finish)
		f, report := s.outcome()
		if report.GetComplete() == nil {
			t.Errorf("report = %v, want a complete", report)
		}
		s.commit(f)
		close(hang)
		s.next("heartbeat with gauges", func(f *lessorv1.SessionRequest) bool { return len(f.GetHeartbeat().GetMetrics()) > 0 })
		r.shutdown()
	})
	t.Run("heartbeats", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := startCoordinator(t)
			hang := make(chan struct{})
			r := c.run(worker.Config{Metrics: func(m map[string]float64) map[string]float64 { <-hang; return m }}, echo)
			for session, beats := range [][]time.Duration{{time.Second, interval, 2 * interval}, {0, interval, 2 * interval}} {
				s := c.accept()
				begun := time.Now()
				for _, want := range beats {
					s.next("heartbeat", func(f *lessorv1.SessionRequest) bool { return f.GetHeartbeat() != nil })
					if at := time.Since(begun); at != want {
						t.Errorf("session %d: a heartbeat after %v, want %v", session, at, want)
					}
				}
				s.finish(errBroken)
			}
			c.accept()
			close(hang)
			r.shutdown()
		})
	})
	t.Run("drain", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := startCoordinator(t)
			hang := make(chan struct{})
			r := c.run(worker.Config{Metrics: func(m map[string]float64) map[string]float64 { <-hang; return m }}, echo)
			c.accept()
			r.shutdown()
			close(hang)
		})
	})
}

// W9: gauges that take long hold up nothing either, not even for a moment: a lease may be short.
// The heartbeat goes without them, and they follow.
func TestGaugesThatComeLate(t *testing.T) {
	t.Attr("rules", "W9")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{Metrics: func(m map[string]float64) map[string]float64 {
			time.Sleep(interval / 2)
			return m
		}}, echo)
		begun := time.Now()
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		f, _ := s.outcome()
		if waited := time.Since(begun); waited > lull {
			t.Errorf("the report came after %v, want at most %v", waited, lull)
		}
		s.commit(f)
		for _, want := range []struct {
			after  time.Duration
			gauges bool
		}{{time.Second, false}, {interval / 2, true}, {interval + time.Second, false}, {interval * 3 / 2, true}} {
			f := s.next("heartbeat", func(f *lessorv1.SessionRequest) bool { return f.GetHeartbeat() != nil })
			if at, gauges := time.Since(begun), len(f.GetHeartbeat().GetMetrics()) > 0; at.Round(lull) != want.after || gauges != want.gauges {
				t.Errorf("a heartbeat after %v, with gauges: %t; want it after %v, with gauges: %t",
					at, gauges, want.after, want.gauges)
			}
		}
		r.shutdown()
	})
}

// W9: if the Metrics hook ends its goroutine, heartbeats go without gauges.
func TestGaugesOfAHookThatEndsItsGoroutine(t *testing.T) {
	t.Attr("rules", "W9")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{Metrics: func(map[string]float64) map[string]float64 { runtime.Goexit(); return nil }}, echo)
		begun := time.Now()
		s := c.accept()
		for _, want := range []time.Duration{0, interval, 2 * interval} {
			f := s.next("heartbeat", func(f *lessorv1.SessionRequest) bool { return f.GetHeartbeat() != nil })
			if at, gauges := time.Since(begun), f.GetHeartbeat().GetMetrics(); at != want || len(gauges) > 0 {
				t.Errorf("a heartbeat after %v with gauges %v, want it after %v without", at, gauges, want)
			}
		}
		r.shutdown()
	})
}

// W9: if the coordinator gives no new work, the log and the hook OnNoNewWork are told the reason
// once, even if it lasts over several sessions, and its end once.
func TestNoNewWorkIsReportedOnce(t *testing.T) {
	t.Attr("rules", "W9")
	synctest.Test(t, func(t *testing.T) {
		const full = "the disk is full"
		c := startCoordinator(t)
		var log bytes.Buffer // has no lock: it is read when nothing writes any more
		r := c.run(worker.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, echo)
		for _, session := range [][]string{{"", full, full}, {full}, {""}} {
			s := c.accept()
			for _, why := range session {
				f := s.next("heartbeat", func(f *lessorv1.SessionRequest) bool { return f.GetHeartbeat() != nil })
				s.send(&lessorv1.SessionResponse{
					Corr:    f.GetId(),
					Payload: &lessorv1.SessionResponse_HeartbeatAck{HeartbeatAck: &lessorv1.HeartbeatAck{NoNewWork: why}},
				})
			}
			synctest.Wait()
			s.finish(errBroken)
		}
		c.accept()
		synctest.Wait()
		r.shutdown()
		synctest.Wait()
		for _, words := range []string{`level=WARN msg="the coordinator gives no new work" worker=w1 why="the disk is full"`, `msg="the coordinator gives new work again"`} {
			if n := strings.Count(log.String(), words); n != 1 {
				t.Errorf("the log has %q %d times, want once:\n%s", words, n, log.String())
			}
		}
		if want := []string{full, ""}; !slices.Equal(r.noNewWork, want) {
			t.Errorf("the hook was told %q, want %q", r.noNewWork, want)
		}
	})
}

// W9: a worker that drains wants no new work, and its heartbeats say so. That the coordinator then
// gives it none is no news: neither the log nor the hook is told.
func TestNoNewWorkOfADrainIsNotReported(t *testing.T) {
	t.Attr("rules", "W9")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		var log bytes.Buffer // has no lock: it is read when nothing writes any more
		finish := make(chan struct{})
		r := c.run(worker.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(context.Context, *worker.Task) ([]byte, error) {
			<-finish
			return nil, nil
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		r.stop()
		f := s.next("heartbeat of the drain", func(f *lessorv1.SessionRequest) bool {
			return f.GetHeartbeat() != nil && !f.GetHeartbeat().GetHealthy()
		})
		s.send(&lessorv1.SessionResponse{
			Corr:    f.GetId(),
			Payload: &lessorv1.SessionResponse_HeartbeatAck{HeartbeatAck: &lessorv1.HeartbeatAck{NoNewWork: "not healthy"}},
		})
		synctest.Wait()
		close(finish)
		done, _ := s.outcome()
		s.commit(done)
		if err := r.done(); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		if len(r.noNewWork) > 0 || strings.Contains(log.String(), "no new work") {
			t.Errorf("the hook was told %q, want nothing; the log:\n%s", r.noNewWork, log.String())
		}
	})
}
