package lease_test

import (
	"strconv"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// spec reads the options of a submit. The queue is always "q"; an option that is left out is 0 or
// empty, so that Fill or the rules set the default.
func (n *narrator) spec(w words) *lease.Spec {
	s := &lease.Spec{
		Queue: "q", Type: w.options["type"], IdempotencyKey: w.options["key"],
		ConcurrencyKey: w.options["shares"], ConcurrencyLimit: uint32(n.number(w, "limit", 0)),
		HeartbeatTimeout: n.duration(w, "ttl"), AttemptTimeout: n.duration(w, "attempt_timeout"),
		StartTimeout: n.duration(w, "start_timeout"),
		CancelGrace:  n.duration(w, "grace"), Retention: n.duration(w, "retention"),
		RunAt: n.wall(w, "run_at"), Deadline: n.wall(w, "deadline"),
		Retry: lease.RetryPolicy{
			MaxAttempts: uint32(n.number(w, "max_attempts", 0)), MaxLosses: uint32(n.number(w, "max_losses", 0)),
			InitialBackoff: n.duration(w, "backoff"), MaxBackoff: n.duration(w, "max_backoff"),
		},
	}
	if worker := w.options["pinned"]; worker != "" {
		s.ResourceRefs = []lease.ResourceRef{
			{ResourceID: "model", Worker: worker, ExpiresAt: n.wall(w, "until")},
			{ResourceID: "data", Worker: worker},
		}
	}
	if never := w.options["never"]; never != "" {
		s.Retry.NonRetryable = []lease.Category{n.category(never)}
	}
	if err := s.Fill(n.rules.Limits); err != nil {
		n.t.Fatal(err)
	}
	return s
}

// setQueue replaces all settings of queue "q": "queue paused=true max_inflight=1 rate=2 burst=1
// max_attempts=1".
func (n *narrator) setQueue(w words) {
	s := &lease.Settings{
		Paused: w.options["paused"] == "true", MaxInflight: uint32(n.number(w, "max_inflight", 0)),
		Rate: lease.Rate{PerSecond: float64(n.number(w, "rate", 0)), Burst: uint32(n.number(w, "burst", 0))},
		Retry: lease.RetryPolicy{
			MaxAttempts:    uint32(n.number(w, "max_attempts", 0)),
			InitialBackoff: n.duration(w, "backoff"), MaxBackoff: n.duration(w, "max_backoff"),
		},
	}
	if err := s.Check(n.rules.Limits); err != nil {
		n.printRefusal(err)
		return
	}
	n.store.settings[specKey{1, "q"}] = s
}

func (n *narrator) settings() lease.Settings {
	if s := n.store.settings[specKey{1, "q"}]; s != nil {
		return *s
	}
	return lease.Settings{}
}

var kinds = map[string]lease.Kind{
	"start": lease.KindStart, "heartbeat": lease.KindHeartbeat, "ack": lease.KindAck,
	"complete": lease.KindComplete, "fail": lease.KindFail, "release": lease.KindRelease,
}

// report reads the report of a worker: "complete t1 lease=t1/2 attempt=2 started=yes output=x".
// Without lease= it is under the newest lease of the task. Task "none" and lease=none send an empty
// id, task "unknown" sends an id that no task has, and any other name that is not known is sent as
// the id.
func (n *narrator) report(verb string, w words) *lease.Report {
	r := &lease.Report{
		Kind: kinds[verb], TaskID: n.taskText(w), LeaseID: n.leaseText(w), Attempt: uint32(n.number(w, "attempt", 0)),
		Worker: w.options["by"], Session: w.options["session"], Detail: w.text("why"), Delay: n.duration(w, "delay"),
		Checkpoint: []byte(w.options["checkpoint"]),
		Started:    w.options["started"] == "yes",
	}
	switch r.Kind {
	case lease.KindComplete:
		r.Result = &lease.Result{Output: []byte(w.options["output"])}
		if m := w.options["metric"]; m != "" {
			r.Result.Metrics = map[string]float64{m: 1}
		}
	case lease.KindFail:
		r.Failure = n.failure(w)
	}
	return r
}

func (n *narrator) failure(w words) *lease.Failure {
	f := &lease.Failure{
		Message: w.text("message"), Stack: w.options["stack"],
		RetryAfter: n.duration(w, "retry_after"),
	}
	if c := w.options["category"]; c != "" {
		f.Category = n.category(c)
	}
	if r := w.options["retryable"]; r != "" {
		retryable := r == "true"
		f.Retryable = &retryable
	}
	return f
}

func (n *narrator) category(name string) lease.Category {
	for c := lease.UserCode; c <= lease.CategoryCancelled; c++ {
		if c.String() == name {
			return c
		}
	}
	n.t.Fatalf("no category %q", name)
	return 0
}

func (n *narrator) tenant(w words) string {
	if t := w.options["tenant"]; t != "" {
		return t
	}
	return "acme"
}

func (n *narrator) task(w words) lease.TaskID {
	id, ok := n.tasks[w.names[0]]
	if !ok {
		return lease.TaskID{Space: 1, Seq: lease.MaxSeq} // the id of no task
	}
	return id
}

func (n *narrator) taskText(w words) string {
	switch name := w.names[0]; {
	case name == "none":
		return ""
	case name == "unknown" || n.tasks[name] != lease.TaskID{}:
		return n.task(w).String()
	default:
		return name
	}
}

func (n *narrator) leaseText(w words) string {
	name := w.options["lease"]
	switch {
	case name == "none":
		return ""
	case name != "":
		if id, ok := n.leases[name]; ok {
			return id
		}
		return name
	}
	newest := ""
	for i := 1; ; i++ {
		id, ok := n.leases[w.names[0]+"/"+strconv.Itoa(i)]
		if !ok {
			return newest
		}
		newest = id
	}
}

// wall reads a wall time, which a transcript gives as the span since its start; 0 if the option is
// left out.
func (n *narrator) wall(w words, option string) lease.Wall {
	if w.options[option] == "" {
		return 0
	}
	return lease.WallOf(firstDay.Add(n.duration(w, option)))
}

func (n *narrator) duration(w words, option string) time.Duration {
	if w.options[option] == "" {
		return 0
	}
	return n.parseDuration(w.options[option])
}

func (n *narrator) parseDuration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		n.t.Fatal(err)
	}
	return d
}

func (n *narrator) number(w words, option string, missing int) int {
	if w.options[option] == "" {
		return missing
	}
	return n.atoi(w.options[option])
}

func (n *narrator) atoi(s string) int {
	i, err := strconv.Atoi(s)
	if err != nil {
		n.t.Fatal(err)
	}
	return i
}
