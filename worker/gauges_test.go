package worker_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
)

// W9: each heartbeat of the worker itself says how its machine is; what the hook makes of it is sent, but for what the
// coordinator would refuse.
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
			t.Errorf("measured = %v", m)
		}
		s.dispatch("t1")
		s.started("t1")
		f, _ := s.outcome()
		s.commit(f)
		time.Sleep(interval + time.Second)
		if n := len(measured); n != 1 {
			t.Errorf("measured %d times in an interval", n)
		}
		r.shutdown()
	})
}

// W9: what keeps new work away is told once, however many sessions it lasts, and so is its end.
func TestNoNewWorkIsTold(t *testing.T) {
	t.Attr("rules", "W9")
	synctest.Test(t, func(t *testing.T) {
		const full = "the disk is full"
		c := startCoordinator(t)
		var log bytes.Buffer // read it only when all is quiet
		r := c.run(worker.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, echo)
		for _, session := range [][]string{{"", full, full}, {full}, {""}} {
			s := c.accept()
			for _, why := range session {
				f := s.next("heartbeat", func(f *lessorv1.SessionRequest) bool { return f.GetHeartbeat() != nil })
				s.send(&lessorv1.SessionResponse{Corr: f.GetId(), Payload: &lessorv1.SessionResponse_HeartbeatAck{HeartbeatAck: &lessorv1.HeartbeatAck{NoNewWork: why}}})
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
				t.Errorf("the log says %d times %s, want once:\n%s", n, words, log.String())
			}
		}
		if want := []string{full, ""}; !slices.Equal(r.kept, want) {
			t.Errorf("the hook was told %q, want %q", r.kept, want)
		}
	})
}
