package lease_test

import (
	"strconv"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// What the random steps are about: tasks, specs and reports, small enough to meet often.

func pick[T any](s *simulation, from ...T) T { return from[s.rng.IntN(len(from))] }

func (s *simulation) chance(percent int) bool { return s.rng.IntN(100) < percent }

// anyTask is mostly a recent one; the newest are likeliest.
func (s *simulation) anyTask() lease.TaskID {
	if len(s.tasks) == 0 || s.chance(1) {
		return lease.TaskID{Space: 1, Seq: lease.MaxSeq}
	}
	near := min(len(s.tasks), pick(s, 2, 2, 20))
	return s.tasks[len(s.tasks)-1-s.rng.IntN(near)]
}

// tenantOf is mostly the task's own.
func (s *simulation) tenantOf(id lease.TaskID) string {
	if t := s.model.tasks[id.String()]; t != nil && !s.chance(3) {
		return t.tenant
	}
	return pick(s, "acme", "other")
}

// spec is small, so that limits, budgets and timers meet often.
func (s *simulation) spec() *lease.Spec {
	ttl := pick(s, 200*time.Millisecond, time.Second, 5*time.Second, 20*time.Second)
	spec := &lease.Spec{
		Queue: "q", HeartbeatTimeout: ttl,
		AttemptTimeout: pick(s, 0, 0, 3*time.Second, ttl),
		StartTimeout:   pick(s, 0, 0, 0, 2*time.Second),
		CancelGrace:    pick(s, 500*time.Millisecond, ttl, time.Minute),
		Retention:      pick(s, time.Second, time.Minute, 24*time.Hour),
		Retry: lease.RetryPolicy{
			MaxAttempts: pick[uint32](s, 1, 2, 4, 100), MaxLosses: pick[uint32](s, 1, 2, 4, 100),
			InitialBackoff: pick(s, 1, 100*time.Millisecond, time.Second), Multiplier: pick(s, 1.0, 2, 3), MaxBackoff: 2 * time.Second,
		},
	}
	if s.chance(20) {
		spec.Deadline = s.model.now.Wall.Add(pick(s, -time.Second, time.Second, ttl, 10*time.Second))
	}
	if s.chance(20) && spec.Deadline == 0 {
		spec.RunAt = s.model.now.Wall.Add(pick(s, -time.Second, 0, time.Millisecond, time.Second))
	}
	if s.chance(20) {
		spec.IdempotencyKey = "k" + strconv.Itoa(s.rng.IntN(3))
	}
	if s.chance(20) {
		spec.Retry.NonRetryable = []lease.Category{pick(s, lease.UserCode, lease.Timeout, lease.Infrastructure)}
	}
	if err := spec.Fill(lease.DefaultLimits()); err != nil {
		panic(err)
	}
	return spec
}

// somethingToSay is a report under a recent lease, live or not, now and then with something wrong, or an earlier one repeated.
func (s *simulation) somethingToSay() (lease.Say, bool) {
	if len(s.claims) == 0 {
		return lease.Say{}, false
	}
	if len(s.said) > 0 && s.chance(10) {
		return s.said[s.rng.IntN(len(s.said))], true
	}
	near := min(len(s.claims), pick(s, 3, 3, 40))
	k := s.claims[len(s.claims)-1-s.rng.IntN(near)]
	r := s.report()
	r.TaskID, r.LeaseID = k.task, k.lease
	if s.chance(50) {
		r.Attempt = k.attempt
	}
	tenant := k.tenant
	if s.chance(8) {
		tenant = s.spoil(r, tenant)
	}
	return lease.Say{Tenant: tenant, Report: r}, true
}

// spoil makes one thing wrong.
func (s *simulation) spoil(r *lease.Report, tenant string) string {
	switch s.rng.IntN(8) {
	case 0:
		r.TaskID = ""
	case 1:
		r.LeaseID = ""
	case 2:
		r.Invalid = &lease.FieldError{Field: "metrics", Problem: "is over the limit"}
	case 3:
		r.LeaseID = s.claims[s.rng.IntN(len(s.claims))].lease // mostly of another task
	case 4:
		r.LeaseID = "forged"
	case 5:
		r.TaskID = pick(s, "nonsense", s.anyTask().String())
	case 6:
		r.Attempt = uint32(s.rng.IntN(4))
	case 7:
		return pick(s, "acme", "other", "third")
	}
	return tenant
}

func (s *simulation) report() *lease.Report {
	r := &lease.Report{
		Kind: pick(s, lease.KindStart, lease.KindHeartbeat, lease.KindHeartbeat, lease.KindAck, lease.KindComplete, lease.KindFail, lease.KindRelease),
	}
	if s.chance(20) {
		r.Session = pick(s, "s1", "s9")
	}
	switch r.Kind {
	case lease.KindHeartbeat:
		r.Checkpoint = pick(s, nil, nil, []byte("half"))
	case lease.KindComplete:
		r.Result = &lease.Result{Output: []byte(pick(s, "", "a", "b", "1234", "12345"))}
	case lease.KindFail:
		yes, no := true, false
		r.Failure = &lease.Failure{
			Category: lease.Category(s.rng.IntN(int(lease.CategoryCancelled) + 1)), Message: pick(s, "a", "b"),
			Retryable: pick(s, nil, nil, &yes, &no), RetryAfter: pick(s, 0, 0, time.Second),
		}
	case lease.KindRelease:
		r.Delay = pick(s, 0, 0, time.Millisecond, time.Second)
	}
	return r
}
