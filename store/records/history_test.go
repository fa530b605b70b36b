package records_test

import (
	"flag"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

var seed = flag.Uint64("records.seed", 0, "seed of the one random history to run; 0: run five, of random seeds")

// TestRandomHistories changes tasks by random commands. After every commit the store must hold the
// newest version of every task, the index entries of these versions, the ledgers of deleted tasks
// until ForgetAt (A10), and nothing else.
func TestRandomHistories(t *testing.T) {
	t.Attr("rules", "A10")
	if *seed != 0 {
		runHistory(t, *seed)
		return
	}
	for range 5 {
		runHistory(t, rand.Uint64N(1<<32)+1)
	}
}

func runHistory(t *testing.T, seed uint64) {
	t.Helper()
	h := &history{rnd: rand.New(rand.NewPCG(seed, 0))}
	h.world = newWorld(h.rnd)
	for range 120 {
		for range 1 + h.rnd.IntN(8) { // several changes of a task may share a commit
			h.do()
		}
		h.flush(t)
		h.forgetLedgers(t)
		h.flush(t)
		if h.check(t); t.Failed() {
			t.Fatalf("repeat: go test ./store/records -run RandomHistories -records.seed=%d", seed)
		}
	}
}

type history struct {
	*world
	rnd *rand.Rand
}

func pick[T any](h *history, from ...T) T { return from[h.rnd.IntN(len(from))] }

// do runs one random command.
func (h *history) do() {
	id := h.anyTask()
	switch n := h.rnd.IntN(100); {
	case n < 15 && len(h.tasks) < 30:
		h.submitRandom()
	case n < 45:
		h.step(lease.Grant{Task: id, Worker: "w", Session: pick(h, "", "s1", "s2")})
	case n < 75:
		h.report(id)
	case n < 80:
		h.pass(pick(h, time.Millisecond, time.Second, 10*time.Second, time.Minute, time.Hour))
	default:
		h.step(h.rareCommand(id))
	}
}

// rareCommand returns a random command of an operator, the coordinator or time.
func (h *history) rareCommand(id lease.TaskID) lease.Command {
	switch h.rnd.IntN(8) {
	case 0:
		return lease.Cancel{Tenant: "acme", Task: id, Reason: "why", By: "me"}
	case 1:
		return lease.Retry{Tenant: "acme", Task: id, Deadline: pick(h, 0, h.now.Wall.Add(time.Minute))}
	case 2:
		return lease.Delete{Tenant: "acme", Task: id, Force: true}
	case 3:
		return lease.Stall{Task: id, By: time.Second}
	case 4:
		var attempt uint32
		if t := h.tasks[id]; t != nil {
			attempt = t.Attempt()
		}
		return lease.Requeue{Task: id, Attempt: attempt, Cause: lease.Revoked}
	}
	return lease.Expire{Task: id}
}

func (h *history) anyTask() lease.TaskID {
	if len(h.tasks) == 0 {
		return id(1 << 40)
	}
	ids := h.sortedTasks()
	return ids[h.rnd.IntN(len(ids))]
}

func (h *history) sortedTasks() []lease.TaskID {
	var ids []lease.TaskID
	for id := range h.tasks {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b lease.TaskID) int { return int(a.Seq) - int(b.Seq) })
	return ids
}

func (h *history) submitRandom() {
	spec := lease.Spec{
		Queue: pick(h, "a", "ab"), Type: pick(h, "", "b", "c"), Priority: pick[int32](h, -5, 0, 0, 5),
		Payload:        pick(h, nil, []byte("payload")),
		IdempotencyKey: pick(h, "", "key"+strconv.Itoa(h.rnd.IntN(1000))),
		RunAt:          pick(h, 0, 0, h.now.Wall.Add(time.Second)), Deadline: pick(h, 0, 0, h.now.Wall.Add(2*time.Minute)),
		StartTimeout: pick(h, 0, 20*time.Second), AttemptTimeout: pick(h, 0, 20*time.Second), HeartbeatTimeout: 5 * time.Second,
		Retention: pick(h, time.Second, time.Hour), Labels: pick(h, nil, map[string]string{"a": "b"}),
		Requirements: pick(h, nil, &lease.Requirements{Runtimes: []string{"go"}}),
		ResourceRefs: pick(h, nil, []lease.ResourceRef{{ResourceID: "r", Worker: "w", ExpiresAt: pick(h, 0, h.now.Wall.Add(10*time.Second))}}),
		RunID:        pick(h, "", "run"), Trace: pick(h, nil, &lease.Trace{Host: pick(h, "", "h", "i"), Chain: []string{"h"}}),
	}
	if _, taken := h.keys[spec.IdempotencyKey]; !taken {
		h.submit(spec)
	}
}

func (h *history) report(id lease.TaskID) {
	if t := h.tasks[id]; t == nil || t.Lease == nil {
		return
	}
	h.say(id, pick(h,
		lease.Report{Kind: lease.KindStart},
		lease.Report{Kind: lease.KindAck},
		lease.Report{Kind: lease.KindHeartbeat},
		lease.Report{Kind: lease.KindHeartbeat, Session: "s3", Checkpoint: []byte{byte(h.rnd.Uint32())}},
		lease.Report{Kind: lease.KindComplete, Result: &lease.Result{Output: []byte{byte(h.rnd.Uint32())}}},
		lease.Report{
			Kind:    lease.KindFail,
			Failure: &lease.Failure{Category: lease.Infrastructure, Message: strconv.Itoa(h.rnd.Int())},
		},
		lease.Report{Kind: lease.KindRelease, Delay: pick(h, 0, time.Second)},
	))
}

// forgetLedgers deletes the ledgers of deleted tasks that may be forgotten now.
func (h *history) forgetLedgers(t *testing.T) {
	view(t, h.store, func(r store.Reader) error {
		for id, due := range h.forget {
			if due > h.now.Serving {
				continue
			}
			delete(h.forget, id)
			for a := range h.ledger {
				if a.task == id {
					delete(h.ledger, a)
				}
			}
			if err := records.ForgetLedger(&h.batch, r, id, due); err != nil {
				return err
			}
		}
		return nil
	})
}

func (h *history) check(t *testing.T) {
	t.Helper()
	view(t, h.store, func(r store.Reader) error {
		h.checkKeys(t, r)
		for id, want := range h.tasks {
			h.checkTask(t, r, id, want)
		}
		for a, want := range h.ledger {
			got, err := records.Committed(r, a.task, a.number)
			wantEqual(t, err, "ledger", want, got)
		}
		for a, want := range h.discarded {
			got, err := records.Discarded(r, a.task, a.number)
			wantEqual(t, err, "discarded", want, got)
		}
		logged := map[lease.TaskID]records.KeyEntry{}
		err := records.KeyLog(r, lease.TaskID{}, func(k records.KeyEntry) bool { logged[k.Task] = k; return true })
		for name, want := range h.keys {
			wantEqual(t, err, "idempotency key",
				records.KeyEntry{Hash: store.HashOfKey(space, name), Task: want.task, Digest: want.digest}, logged[want.task])
		}
		for id, name := range h.logged {
			has, err := records.HasKey(r, id, store.HashOfKey(space, name))
			wantEqual(t, err, "a task that has its key", h.keys[name].task == id, has)
		}
		var got []lease.TaskID
		err = records.Tasks(r, space, "", 0, func(t *lease.Task) bool { got = append(got, t.ID); return true })
		wantEqual(t, err, "Tasks", h.sortedTasks(), got)
		return h.checkLeases(t, r)
	})
}

func (h *history) checkTask(t *testing.T, r store.Reader, id lease.TaskID, newest *lease.Task) {
	t.Helper()
	want, spec := *newest, *newest.Spec
	want.Spec, spec.Payload = &spec, nil
	if want.Lease != nil {
		stored := *want.Lease
		stored.ID = "" // the store does not hold it
		want.Lease = &stored
	}
	got, err := records.Task(r, id)
	wantEqual(t, err, "task", &want, got)
	result, err := records.Result(r, id)
	wantEqual(t, err, "result", h.results[id], result)
	failure, err := records.Failure(r, id)
	wantEqual(t, err, "failure", h.failures[id], failure)
	checkpoint, err := records.Checkpoint(r, id)
	wantEqual(t, err, "checkpoint", h.checkpoints[id], checkpoint)
	payload, err := records.Payload(r, id)
	wantEqual(t, err, "payload", string(newest.Spec.Payload), string(payload))
}

func (h *history) checkLeases(t *testing.T, r store.Reader) error {
	t.Helper()
	var want []lease.TaskID
	for _, id := range h.sortedTasks() {
		if h.tasks[id].Lease != nil {
			want = append(want, id)
		}
	}
	leased, err := collect(r, records.LeasedTasks)
	var got []lease.TaskID
	for _, t := range leased {
		got = append(got, t.ID)
	}
	wantEqual(t, err, "Leases", want, got)
	return nil
}

// wantEqual fails if err is set or the values differ.
func wantEqual(t *testing.T, err error, what string, want, got any) {
	t.Helper()
	if err != nil || !reflect.DeepEqual(want, got) { // cmp.Diff is slow, so it is called only for the message
		t.Errorf("%s: error %v, -want +got:\n%s", what, err, cmp.Diff(want, got))
	}
}

// checkKeys computes from the world which keys the store must have, and compares them with those in
// the store.
func (h *history) checkKeys(t *testing.T, r store.Reader) {
	t.Helper()
	want := map[store.Keyspace][]string{}
	add := func(ks store.Keyspace, key []byte) { want[ks] = append(want[ks], string(key)) }
	for id, task := range h.tasks {
		key := store.AppendTaskKey(nil, id)
		add(store.Spec, key)
		if h.changed[id] {
			add(store.Task, key)
		}
		if task.Lease != nil {
			add(store.Lease, key)
		}
		if e, ok := records.Index(task); ok {
			add(e.Keyspace, e.Key())
		}
		if run := records.RunKey(task); run != nil {
			add(store.Run, run)
		}
		if trace := task.Spec.Trace; trace != nil && trace.Host != "" {
			add(store.Mounted, store.AppendGroupKey(nil, records.HostID(task.Spec.RunID, trace.Host), id))
		}
		addIf(h.results, id, store.Output, add)
		addIf(h.failures, id, store.Failure, add)
		addIf(h.checkpoints, id, store.Checkpoint, add)
	}
	for id := range h.logged {
		add(store.KeyLog, store.AppendTaskKey(nil, id))
	}
	for a := range h.ledger {
		add(store.Ledger, store.AppendAttemptKey(nil, a.task, a.number))
	}
	for a := range h.discarded {
		add(store.Discarded, store.AppendAttemptKey(nil, a.task, a.number))
	}
	for id, due := range h.forget {
		add(store.Timer, store.ServingTimer(due, id).Append(nil))
	}
	for ks := range store.Keyspace(store.NumKeyspaces) {
		slices.Sort(want[ks])
		var got []string
		err := r.Scan(ks, nil, nil, func(key, _ []byte) bool { got = append(got, string(key)); return true })
		wantEqual(t, err, "keys of "+ks.String(), want[ks], got)
	}
}

// addIf adds the key of the task in ks if m has an entry for the task.
func addIf[V any](m map[lease.TaskID]V, id lease.TaskID, ks store.Keyspace, add func(store.Keyspace, []byte)) {
	if _, ok := m[id]; ok {
		add(ks, store.AppendTaskKey(nil, id))
	}
}
