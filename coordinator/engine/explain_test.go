package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

func taskID(seq uint64) string { return lease.TaskID{Space: 1, Seq: seq}.String() }

// S6: ExplainTask names the reason why a task waits: the first finding has its code, and the
// message names the queue, type, worker or key in question.
func TestExplainFindsWhyATaskWaits(t *testing.T) {
	t.Attr("rules", "S6")
	for _, c := range []struct {
		name   string
		spec   lease.Spec
		setup  func(r *rig)
		code   lease.FindingCode
		words  string
		remedy string
	}{
		{name: "no worker", code: lease.FoundNoWorker, words: `no worker asks for work from queue "q"`, remedy: "a worker connects for this queue"},
		{
			name: "a worker without a session is busy", code: lease.FoundNoWorker,
			words:  `queue "q" at present (live leases of the queue: 1)`,
			remedy: "a worker that holds one of them is done and asks again, or another worker connects",
			setup:  func(r *rig) { r.submit(work()); r.lease(1, 0) },
		},
		{name: "no worker for its type", spec: lease.Spec{Type: "rare"}, code: lease.FoundNoWorkerForType, words: `"rare"`, setup: func(r *rig) {
			r.joinFor(Wants{Space: home, Worker: "w", Queues: []string{"q"}, Types: []string{"common"}}, 1)
		}},
		{name: "no worker for tasks without a type", code: lease.FoundNoWorkerForType, words: "handles tasks without a type", setup: func(r *rig) {
			r.joinFor(Wants{Space: home, Worker: "w", Queues: []string{"q"}, Types: []string{"common"}}, 1)
		}},
		{name: "workers are busy", code: lease.FoundWorkersBusy, words: "suitable workers: 1", setup: func(r *rig) {
			r.submit(work())
			r.join("i", 1)
		}},
		{name: "workers without slots", code: lease.FoundWorkersBusy, words: "; of the only one: it offers no slots", setup: func(r *rig) {
			r.join("i", 0)
		}},
		{name: "several workers without slots", code: lease.FoundWorkersBusy, words: "; of one of 2: it offers no slots", setup: func(r *rig) {
			r.join("i", 0)
			r.join("j", 0)
		}},
		{
			name: "its affinity key is with a worker without slots",
			spec: lease.Spec{Affinity: &lease.Affinity{Key: "k", Mode: lease.Sticky, TTL: time.Minute}},
			code: lease.FoundAffinity, words: `bound to worker "first", which takes no new work: it offers no slots`,
			setup: func(r *rig) {
				c := r.worker("first", 1, nil)
				r.submitWith(withAffinity("k", lease.Sticky))
				r.Resize(c.Member, 0)
			},
		},
		{
			name: "requirements that no worker meets",
			spec: lease.Spec{Requirements: &lease.Requirements{Features: []string{"gpu"}}},
			code: lease.FoundRequirements, words: `lacks feature`,
			setup: func(r *rig) { r.join("i", 1) },
		},
		{
			name: "its worker is gone", spec: lease.Spec{ResourceRefs: []lease.ResourceRef{{ResourceID: "m", Worker: "far"}}}, code: lease.FoundPinnedWorker,
			words: `"far"`, setup: func(r *rig) { r.join("i", 1) },
		},
		{
			name: "its affinity key is with a busy worker",
			spec: lease.Spec{Affinity: &lease.Affinity{Key: "k", Mode: lease.Sticky, TTL: time.Minute}},
			code: lease.FoundAffinity, words: `"k"`,
			setup: func(r *rig) {
				r.worker("first", 1, nil)
				r.submitWith(withAffinity("k", lease.Sticky))
				r.worker("second", 1, nil)
			},
		},
		{name: "single flight", spec: lease.Spec{ConcurrencyKey: "disk", ConcurrencyLimit: 5}, code: lease.FoundSingleFlight, words: `"disk"`, setup: func(r *rig) {
			r.worker("w", 5, func(w *Wants) { w.SingleFlight = true })
			r.submit(specWithKey("disk", 5))
		}},
		{name: "the worker has not acknowledged a task", code: lease.FoundWorkersBusy, words: "was silent", setup: func(r *rig) {
			r.join("i", 5)
			r.submit(work())
			time.Sleep(lease.DefaultAckWithin + time.Second)
		}},
		{name: "the worker refused a task of the key", spec: lease.Spec{ConcurrencyKey: "disk"}, code: lease.FoundSingleFlight, words: "has refused one", setup: func(r *rig) {
			c, session := r.join("i", 5)
			r.submit(specWithKey("disk", 1))
			g := c.grants()[0]
			_ = r.Refuse(home.Tenant, session, g.Task.ID.String(), g.LeaseID)
		}},
		{name: "a worker that does not read", code: lease.FoundWorkersBusy, words: "does not read", setup: func(r *rig) {
			c := &testSession{}
			m := c.newMember("i", Wants{Space: home, Worker: "w", Queues: []string{"q"}}, 5)
			m.Backlog = &Backlog{}
			m.Backlog.Add(maxBacklog)
			r.Join(m)
		}},
		{name: "the worker looks at the first tasks only", code: lease.FoundInLine, words: "among the first 64 of a line only", setup: func(r *rig) {
			r.worker("w", 5, func(w *Wants) { w.SingleFlight = true })
			for range mostPassed + 1 {
				r.submit(specWithKey("disk", 100))
			}
		}},
		{name: "the type has the limit 0", spec: lease.Spec{Type: "big"}, code: lease.FoundWorkersBusy, words: "its limit for tasks of type \"big\" is 0 now", setup: func(r *rig) {
			r.worker("w", 5, func(w *Wants) { w.TypeLimits = map[string]uint32{"big": 0} })
		}},
		{name: "the worker has too much data", spec: lease.Spec{Size: 20, Payload: make([]byte, 20)}, code: lease.FoundWorkersBusy, words: "have 90 bytes of payloads and checkpoints, and with the 20 of this one", setup: func(r *rig) {
			r.worker("w", 5, func(w *Wants) { w.MaxBytes = 100 })
			r.submitWith(func(s *lease.Spec) { s.Payload = make([]byte, 90) })
		}},
		{name: "the worker has as many tasks of the type as type_limits allows", spec: lease.Spec{Type: "big"}, code: lease.FoundWorkersBusy, words: "as many as it takes at once", setup: func(r *rig) {
			r.worker("w", 5, func(w *Wants) { w.TypeLimits = map[string]uint32{"big": 1} })
			r.submitWith(func(s *lease.Spec) { s.Type = "big" })
		}},
		{
			name: "its affinity key is with a worker of another queue",
			spec: lease.Spec{Affinity: &lease.Affinity{Key: "k", Mode: lease.Sticky, TTL: time.Minute}},
			code: lease.FoundAffinity, words: "does not ask for such work",
			setup: func(r *rig) {
				r.worker("first", 5, func(w *Wants) { w.Queues = []string{"elsewhere"} })
				r.submitWith(func(s *lease.Spec) { withAffinity("k", lease.Sticky)(s); s.Queue = "elsewhere" })
				r.worker("second", 5, nil)
			},
		},
		{
			name: "a package that no worker has", spec: lease.Spec{Requirements: &lease.Requirements{Package: "m@2"}},
			code:  lease.FoundRequirements,
			words: `the closest one lacks package "m@2"`, setup: func(r *rig) { r.join("i", 1) },
			remedy: "or one that lacks only the package installs it",
		},
		{
			name:  "requirements of which two workers lack some",
			spec:  lease.Spec{Requirements: &lease.Requirements{Features: []string{"gpu", "ssd"}}},
			code:  lease.FoundRequirements,
			words: `the closest one lacks feature "ssd"`, setup: func(r *rig) {
				r.join("poor", 1)
				r.worker("rich", 1, func(w *Wants) { w.Capabilities.Features = []string{"gpu"} })
				r.worker("poorest", 1, nil)
			},
		},
		{
			name: "its worker is gone, and another one has its affinity key",
			spec: lease.Spec{
				ResourceRefs: []lease.ResourceRef{{ResourceID: "m", Worker: "far"}},
				Affinity:     &lease.Affinity{Key: "k", Mode: lease.Sticky, TTL: time.Minute},
			},
			code: lease.FoundPinnedWorker, words: `"far"`, setup: func(r *rig) {
				r.worker("first", 5, nil)
				r.submitWith(withAffinity("k", lease.Sticky))
			},
		},
		{name: "the queue is paused", code: lease.FoundQueuePaused, words: "paused", setup: func(r *rig) {
			r.setQueue(func(s *lease.Settings) { s.Paused = true })
		}},
		{name: "max_inflight", code: lease.FoundMaxInflight, words: "max_inflight is 1", setup: func(r *rig) {
			r.setQueue(func(s *lease.Settings) { s.MaxInflight = 1 })
			r.submit(work())
			r.join("i", 5)
		}},
		{name: "the rate limit", code: lease.FoundRateLimit, words: "one grant each", setup: func(r *rig) {
			r.setQueue(func(s *lease.Settings) { s.Rate.PerSecond = 0.01 })
			r.submit(work())
			r.join("i", 5)
		}},
		{name: "its concurrency key", spec: lease.Spec{ConcurrencyKey: "disk"}, code: lease.FoundConcurrencyKey, words: `"disk"`, setup: func(r *rig) {
			r.submit(specWithKey("disk", 1))
			r.join("i", 5)
		}},
		{
			name: "the tasks that hold its concurrency key",
			spec: lease.Spec{ConcurrencyKey: "disk", ConcurrencyLimit: 2}, code: lease.FoundConcurrencyKey,
			words: "2 live leases of at most 2; held by " + taskID(1) + ", " + taskID(2), setup: func(r *rig) {
				r.submit(specWithKey("disk", 2), specWithKey("disk", 2))
				r.join("i", 5)
			},
		},
		{
			name: "many tasks that hold its concurrency key",
			spec: lease.Spec{ConcurrencyKey: "disk", ConcurrencyLimit: 7}, code: lease.FoundConcurrencyKey,
			words: "held by " + taskID(1) + ", " + taskID(2) + ", " + taskID(3) + ", " + taskID(4) + ", " + taskID(5) + ", and 2 more", setup: func(r *rig) {
				for range 7 {
					r.submit(specWithKey("disk", 7))
				}
				r.join("i", 10)
			},
		},
		{name: "its run_at", spec: lease.Spec{RunAt: lease.WallOf(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC))}, code: lease.FoundRunAt, words: "run_at"},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, func(r *rig) {
				if c.setup != nil {
					c.setup(r)
				}
				spec := c.spec
				spec.Queue = "q"
				x := r.explain(r.submit(&spec)[0].ID)
				if f := x.Findings[0]; f.Code != c.code || !strings.Contains(f.Message, c.words) || !strings.Contains(f.Remedy, c.remedy) {
					r.Errorf("the first finding is %+v, want code %d, a message with %q and a remedy with %q",
						f, c.code, c.words, c.remedy)
				}
			})
		})
	}
}

// S6: ExplainTask names everything that stands in the way of a task: who removes one thing after
// the other would have to ask again and again. What keeps all tasks from being granted comes first,
// then what somebody has to change, then what passes as other tasks end.
func TestExplainNamesAllObstacles(t *testing.T) {
	t.Attr("rules", "S6")
	pause := func(s *lease.Settings) { s.Paused = true }
	rare := &lease.Spec{Queue: "q", Type: "rare"}
	later := &lease.Spec{Queue: "q", RunAt: lease.WallOf(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC))}
	common := func(w *Wants) { w.Types = []string{"common"} }
	pinned := &lease.Spec{Queue: "q", ResourceRefs: []lease.ResourceRef{{ResourceID: "m", Worker: "w"}}}
	sticky := &lease.Spec{Queue: "q", Affinity: &lease.Affinity{Key: "k", Mode: lease.Sticky, TTL: time.Minute}}
	for _, c := range []struct {
		name  string
		spec  *lease.Spec
		setup func(r *rig)
		want  []lease.FindingCode
	}{
		{name: "a pause, and no worker", spec: work(), want: []lease.FindingCode{lease.FoundQueuePaused, lease.FoundNoWorker}, setup: func(r *rig) {
			r.setQueue(pause)
		}},
		{name: "a pause, and no worker for the type", spec: rare, want: []lease.FindingCode{lease.FoundQueuePaused, lease.FoundNoWorkerForType}, setup: func(r *rig) {
			r.setQueue(pause)
			r.worker("w", 1, common)
		}},
		{name: "its run_at, and a pause", spec: later, want: []lease.FindingCode{lease.FoundRunAt, lease.FoundQueuePaused}, setup: func(r *rig) {
			r.setQueue(pause)
		}},
		{name: "its run_at, and limits that may be over by then", spec: later, want: []lease.FindingCode{lease.FoundRunAt}, setup: func(r *rig) {
			r.setQueue(func(s *lease.Settings) { s.MaxInflight, s.Rate.PerSecond = 1, 0.01 })
			r.submit(work())
			r.lease(1, 0)
		}},
		{name: "a pause, with a worker that would take it", spec: work(), want: []lease.FindingCode{lease.FoundQueuePaused}, setup: func(r *rig) {
			r.setQueue(pause)
			r.worker("w", 1, nil)
		}},
		{
			name: "everything that the rules know, and a busy worker", spec: specWithKey("disk", 1),
			want: []lease.FindingCode{
				lease.FoundQueuePaused, lease.FoundMaxInflight, lease.FoundRateLimit, lease.FoundConcurrencyKey,
				lease.FoundWorkersBusy, lease.FoundTimeLimit,
			},
			setup: func(r *rig) {
				r.setQueue(func(s *lease.Settings) { s.MaxInflight, s.Rate.PerSecond = 1, 0.01 })
				r.worker("w", 1, nil)
				r.submit(specWithKey("disk", 1))
				r.setQueue(pause)
			},
		},
		{name: "no worker for the type before a limit that passes", spec: rare, want: []lease.FindingCode{lease.FoundNoWorkerForType, lease.FoundMaxInflight}, setup: func(r *rig) {
			r.setQueue(func(s *lease.Settings) { s.MaxInflight = 1 })
			r.worker("w", 1, common)
			r.submitWith(func(s *lease.Spec) { s.Type = "common" })
		}},
		{name: "a key without room, and no worker", spec: specWithKey("disk", 1), want: []lease.FindingCode{lease.FoundNoWorker, lease.FoundConcurrencyKey}, setup: func(r *rig) {
			r.submit(&lease.Spec{Queue: "other", ConcurrencyKey: "disk"})
			r.leaseFrom("other")
		}},
		{name: "a worker without a session that works", spec: specWithKey("disk", 1), want: []lease.FindingCode{lease.FoundConcurrencyKey, lease.FoundNoWorker}, setup: func(r *rig) {
			r.submit(specWithKey("disk", 1))
			r.lease(1, 0)
		}},
		{
			name: "a worker without a session that works, and holds its resources", spec: pinned,
			want: []lease.FindingCode{lease.FoundMaxInflight, lease.FoundPinnedWorker}, setup: func(r *rig) {
				r.setQueue(func(s *lease.Settings) { s.MaxInflight = 1 })
				r.submit(work())
				r.lease(1, 0)
			},
		},
		{
			name: "a worker that asks for other work, and holds its resources", spec: pinned,
			want: []lease.FindingCode{lease.FoundPinnedWorker, lease.FoundMaxInflight}, setup: func(r *rig) {
				r.setQueue(func(s *lease.Settings) { s.MaxInflight = 1 })
				r.submit(work())
				r.worker("v", 1, nil)
				r.worker("w", 1, func(w *Wants) { w.Queues = []string{"elsewhere"} })
			},
		},
		{
			name: "its affinity key is with a worker of another queue", spec: sticky,
			want: []lease.FindingCode{lease.FoundAffinity, lease.FoundMaxInflight}, setup: func(r *rig) {
				r.setQueue(func(s *lease.Settings) { s.MaxInflight = 1 })
				r.worker("first", 1, func(w *Wants) { w.Queues = []string{"elsewhere"} })
				r.submitWith(func(s *lease.Spec) { withAffinity("k", lease.Sticky)(s); s.Queue = "elsewhere" })
				r.worker("second", 5, nil)
				r.submit(work())
			},
		},
		{
			name: "its affinity key is with a busy worker", spec: sticky,
			want: []lease.FindingCode{lease.FoundMaxInflight, lease.FoundAffinity}, setup: func(r *rig) {
				r.setQueue(func(s *lease.Settings) { s.MaxInflight = 1 })
				r.worker("first", 1, nil)
				r.submitWith(withAffinity("k", lease.Sticky))
			},
		},
		{name: "nothing but a busy worker", spec: work(), want: []lease.FindingCode{lease.FoundWorkersBusy}, setup: func(r *rig) {
			r.worker("w", 1, nil)
			r.submit(work(), work())
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, func(r *rig) {
				c.setup(r)
				spec := *c.spec
				if slices.Contains(c.want, lease.FoundTimeLimit) {
					spec.StartTimeout = time.Hour
				}
				r.wantFindings(r.submit(&spec)[0].ID, c.want...)
			})
		})
	}
}

// S6: a task that waits for its next attempt says so, and that its queue is paused: it would wait
// on when that time has come.
func TestExplainNamesThePauseBeyondABackoff(t *testing.T) {
	t.Attr("rules", "S6")
	run(t, func(r *rig) {
		id := r.submit(work())[0].ID
		r.setQueue(func(s *lease.Settings) { s.MaxInflight = 1 })
		r.say(lease.KindFail, r.lease(1, 0)[0])
		r.submit(work())
		r.lease(1, 0)
		r.wantFindings(id, lease.FoundBackoff)
		r.setQueue(func(s *lease.Settings) { s.Paused = true })
		r.wantFindings(id, lease.FoundBackoff, lease.FoundQueuePaused)
	})
}

// wantFindings checks the codes of the findings about a task, in order.
func (r *rig) wantFindings(id lease.TaskID, want ...lease.FindingCode) {
	r.Helper()
	var got []lease.FindingCode
	x := r.explain(id)
	for _, f := range x.Findings {
		got = append(got, f.Code)
	}
	if !slices.Equal(got, want) {
		r.Errorf("the findings are %+v, want the codes %v", x.Findings, want)
	}
}

// S6: the time of a finding is when the reason began, or absent where nobody knows that; it is not
// the time at which the task became READY, which for the clock of the leases moves with each
// restart. Only that no worker asks cannot keep a task waiting before it is READY.
func TestExplainSaysSinceWhen(t *testing.T) {
	t.Attr("rules", "S6")
	run(t, func(r *rig) {
		c := r.worker("w", 1, func(w *Wants) { w.Types = []string{"common"} })
		id := r.submit(&lease.Spec{Queue: "q", Type: "rare"})[0].ID
		wantSince := func(code lease.FindingCode, since lease.Wall) {
			r.Helper()
			if f := r.explain(id).Findings[0]; f.Code != code || f.Since != since {
				r.Errorf("the first finding is %+v, want code %d since %v", f, code, since.Time())
			}
		}
		time.Sleep(time.Minute)
		wantSince(lease.FoundNoWorkerForType, 0) // nobody records which types had workers when
		r.Leave(c.Member, false)
		synctest.Wait()
		left := r.Now().Wall
		time.Sleep(time.Hour)
		wantSince(lease.FoundNoWorker, left)
		r.worker("w", 1, func(w *Wants) { w.Types = []string{"common"} })
		r.shutDown()
		time.Sleep(time.Hour)
		r.start(Config{})
		wantSince(lease.FoundNoWorker, 0)
		r.setQueue(func(s *lease.Settings) { s.Paused = true })
		paused := r.Now().Wall
		wantSince(lease.FoundQueuePaused, paused)
		time.Sleep(time.Hour)
		r.setQueue(func(s *lease.Settings) { s.MaxInflight = 5 })
		r.shutDown()
		time.Sleep(time.Hour)
		r.start(Config{})
		wantSince(lease.FoundQueuePaused, paused)
		r.setQueue(func(s *lease.Settings) { s.Paused = false })
		time.Sleep(time.Hour)
		r.setQueue(func(s *lease.Settings) { s.Paused = true })
		wantSince(lease.FoundQueuePaused, r.Now().Wall)
	})
}

// S6: no worker asks for a task that waited for its next attempt since the task is READY again, not
// since the worker was granted the attempt before.
func TestExplainSaysSinceWhenNoWorkerAsksForARetry(t *testing.T) {
	t.Attr("rules", "S6")
	run(t, func(r *rig) {
		r.failOnce(7 * time.Second)
		ready := r.Now().Wall.Add(7 * time.Second)
		time.Sleep(time.Minute)
		if f := r.explain(lease.TaskID{Space: 1, Seq: 1}).Findings[0]; f.Code != lease.FoundNoWorker || f.Since != ready {
			r.Errorf("the first finding is %+v, want code %d since %v", f, lease.FoundNoWorker, ready.Time())
		}
	})
}

// S6, W8: soon after a restart, a worker that is missing may only not have come back yet:
// ExplainTask says so. It does not at the first start of a store, nor when the workers have had the
// time.
func TestExplainAfterARestart(t *testing.T) {
	t.Attr("rules", "S6")
	run(t, func(r *rig) {
		ids := []lease.TaskID{r.submit(work())[0].ID, r.submitWith(pinnedTo("far"))}
		wantHint := func(words string) {
			r.Helper()
			for _, id := range ids {
				if f := r.explain(id).Findings[0]; strings.Contains(f.Message, "reconnecting") != (words != "") || !strings.Contains(f.Message, words) {
					r.Errorf("the first finding is %+v, want a hint with %q", f, words)
				}
			}
		}
		wantHint("")
		time.Sleep(time.Second)
		r.restart(Config{})
		time.Sleep(3 * time.Second)
		wantHint("; the coordinator has been up for 3s, and workers may still be reconnecting")
		time.Sleep(reconnectTime)
		wantHint("")
	})
}

func (r *rig) explain(id lease.TaskID) lease.Explanation {
	r.Helper()
	x, err := r.Explain(r.Context(), home.Tenant, id)
	if err != nil {
		r.Fatal(err)
	}
	return x
}

// S6, T10: ExplainTask says why a lease was lost, why a report under it was refused, and by how
// much that report was late.
func TestExplainDescribesALostLease(t *testing.T) {
	t.Attr("rules", "S6 T10")
	run(t, func(r *rig) {
		id := r.submit(work())[0].ID
		g := r.lease(1, 0)[0]
		r.say(lease.KindStart, g)
		time.Sleep(10 * time.Second)
		r.say(lease.KindHeartbeat, g)
		time.Sleep(lease.DefaultHeartbeatTimeout + 3*time.Second)
		r.want(r.say(lease.KindComplete, g), lease.VerdictCancelled, lease.LeaseExpired)
		x := r.explain(id)
		for _, words := range []string{`worker "w"`, "started at 2000-01-01T00:00:00.000Z", "heartbeat at 2000-01-01T00:00:10.000Z", "ended at 2000-01-01T00:01:40.000Z, LEASE_EXPIRED", "not renewed for 1m30s"} {
			if !strings.Contains(x.Story, words) {
				r.Errorf("Story is %q, want it to contain %q", x.Story, words)
			}
		}
		if last := x.Findings[len(x.Findings)-1]; x.Findings[0].Code != lease.FoundNoWorker || last.Code != lease.FoundLateResult {
			r.Errorf("the findings are %+v, want FoundNoWorker first and FoundLateResult last", x.Findings)
		}
		if len(x.Refusals) != 1 || x.Refusals[0].LateBy != 3*time.Second || x.Refusals[0].Kind != lease.KindComplete {
			r.Errorf("the refusals are %+v, want one of a Complete that was 3 s late", x.Refusals)
		}
	})
}

// S6: ExplainTask says so if the session that has the lease is gone, as long as no session of the
// same process takes the lease over. A worker that calls Lease has no session.
func TestExplainKnowsThatASessionIsGone(t *testing.T) {
	t.Attr("rules", "S6")
	run(t, func(r *rig) {
		wantGone := func(id lease.TaskID, code lease.FindingCode, gone bool) {
			r.Helper()
			f := r.explain(id).Findings[0]
			if f.Code != code || strings.Contains(f.Message, "no session any more") != gone {
				r.Errorf("the first finding is %+v, want code %d, and that the session is gone: %v", f, code, gone)
			}
		}
		unary := r.submit(work())[0].ID
		r.lease(1, 0)
		wantGone(unary, lease.FoundLeased, false)
		id := r.submit(work())[0].ID
		c, _ := r.join("i", 1)
		wantGone(id, lease.FoundUnacknowledged, false)
		r.say(lease.KindStart, c.grants()[0])
		wantGone(id, lease.FoundLeased, false)
		r.Leave(c.Member, false)
		wantGone(id, lease.FoundLeased, true)
		r.join("j", 1)
		wantGone(id, lease.FoundLeased, true)
		r.restart(Config{})
		wantGone(id, lease.FoundLeased, true)
		wantGone(unary, lease.FoundLeased, false)
		r.join("i", 1)
		wantGone(id, lease.FoundLeased, false)
	})
}

// S4, S6: ExplainTask of another tenant's task is refused with ErrNotFound, as for a task that does
// not exist.
func TestExplainHidesTasksOfOtherTenants(t *testing.T) {
	t.Attr("rules", "S6")
	run(t, func(r *rig) {
		id := r.submit(work())[0].ID
		for _, c := range []struct {
			tenant string
			id     lease.TaskID
		}{{"other", id}, {home.Tenant, lease.TaskID{Space: id.Space, Seq: 99}}, {home.Tenant, lease.TaskID{Space: 77, Seq: 1}}} {
			if _, err := r.Explain(r.Context(), c.tenant, c.id); !errors.Is(err, lease.ErrNotFound) {
				r.Errorf("Explain of %v by tenant %s: %v, want ErrNotFound", c.id, c.tenant, err)
			}
		}
	})
}

// X5, S6: what ExplainTask costs for a worker that does not meet the requirements of the task is
// small, whatever that worker lacks: the loop looks at all of them, and everybody waits for it.
func TestExplainWritesDownOneWorker(t *testing.T) {
	t.Attr("rules", "X5 S6")
	const few, many = 10, 1000
	allocations := func(takers int) float64 {
		h := newManualEngine(t, takers, 1)
		specs, digests := h.specs(1)
		specs[0].Requirements = &lease.Requirements{Runtimes: []string{"a", "b"}, Features: []string{"c", "d"}}
		h.submitSpecs(specs, digests)
		h.endBatch()
		return testing.AllocsPerRun(10, func() {
			x, err := h.explain(home.Tenant, lease.TaskID{Space: 1, Seq: 1})
			if err != nil || x.Findings[0].Code != lease.FoundRequirements {
				t.Fatalf("the findings are %+v (error %v), want that no worker meets the requirements", x.Findings, err)
			}
		})
	}
	if a, b := allocations(few), allocations(many); b-a > many-few {
		t.Errorf("ExplainTask allocates %v times beside %d workers, and %v times beside %d, want about the same", a, few, b, many)
	}
}

// BenchmarkExplain explains a task whose requirements no worker meets, beside 1,000 workers with as
// many capabilities as they may have.
func BenchmarkExplain(b *testing.B) {
	h := newManualEngine(b, 0, 1)
	var has lease.Capabilities
	for i := range lease.MaxCapabilities {
		has.Runtimes = append(has.Runtimes, fmt.Sprintf("runtime %03d", i))
		has.Features = append(has.Features, fmt.Sprintf("feature %03d", i))
	}
	for i := range 1000 {
		w := newTaker(Wants{Space: home, Worker: fmt.Sprint("w", i), Queues: []string{"q"}, Capabilities: has}, 1)
		h.attend(w)
	}
	specs, digests := h.specs(1)
	r := &lease.Requirements{
		Runtimes: has.Runtimes[:lease.MaxRequired-1], Features: has.Features[:lease.MaxRequired-1],
		Resources: map[string]float64{"cores": 1},
	}
	specs[0].Requirements = r
	h.submitSpecs(specs, digests)
	h.endBatch()
	for b.Loop() {
		_, _ = h.explain(home.Tenant, lease.TaskID{Space: 1, Seq: 1})
	}
}
