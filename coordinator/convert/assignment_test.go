package convert

import (
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/tasktoken"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// An assignment has the payload of its task, whether the engine has kept the payload or not. A task
// that was deleted since its grant is left out: its worker must not run it without its payload.
func TestAssignmentsHaveTheirPayloads(t *testing.T) {
	st := memstore.New()
	kept := granted(t, st)
	with := func(seq uint64, size int) engine.Granted {
		task, spec := *kept.Task, *kept.Task.Spec
		spec.Payload, spec.Size = nil, size
		task.ID.Seq, task.Spec = seq, &spec
		return engine.Granted{Task: &task}
	}
	const size, deleted = 256, 2
	a := &Assigner{Tokens: Tokens{Signer: tasktoken.New([]byte("key"), tasktoken.DefaultTTL)}}
	err := st.View(func(r store.Reader) error {
		all, err := a.Assignments(r, lease.Now{Serving: 1, Wall: 1}, "",
			[]engine.Granted{with(deleted, size), *kept, with(1, size), with(3, 0)})
		var got []int
		for _, m := range all {
			got = append(got, len(m.GetTask().GetSpec().GetPayload()))
		}
		if want := []int{size, size, 0}; !slices.Equal(got, want) {
			t.Errorf("payloads of %d bytes, want %d", got, want)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// S2: an assignment has everything that its holder needs. In its task, only fields that the holder
// does not need, or that the assignment itself has, are missing.
func TestAssignmentHasAllFields(t *testing.T) {
	t.Attr("rules", "S2")
	sent := fullSpec()
	proto.Merge(sent, placedSpec())
	sent.ConcurrencyKey, sent.ConcurrencyLimit, sent.FairnessKey = "c", 3, "f"
	sent.TraceMeta = &lessorv1.TraceMeta{HostNodeId: "h", MiddlewareChain: []string{"a", "b"}, ChainIndex: proto.Uint32(1)}
	spec, err := ParseSpec(sent, lease.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	spec.Traceparent = "00-trace"
	now := lease.Now{Serving: 1_000, Wall: 5_000}
	const until = lease.Instant(3 * time.Hour) // longer than a token is good for otherwise
	held := &lease.Task{
		ID: lease.TaskID{Space: 1, Seq: 9}, Tenant: "t", Workspace: "w", Spec: spec, Rest: lease.Ready, Round: 2,
		Attempts: 6, Failures: 4, Losses: 2,
		CreatedAt: 3_000, Deadline: lease.Wall(48 * time.Hour), CheckpointBits: 7,
		Lease: &lease.Lease{Epoch: 1, Attempt: 7, Nonce: 8, Worker: "w", ExpiresAt: until},
	}
	// a task without a run and a checkpoint, whose deadline comes before the end of its lease
	alone, aloneSpec := *held, *spec
	alone.ID.Seq, alone.Spec, alone.CheckpointBits, aloneSpec.RunID, alone.Deadline = 10, &aloneSpec, 0, "", 5_700

	st := memstore.New()
	var batch store.Batch
	records.Put(&batch, &lease.Change{New: held, Checkpoint: []byte("half")})
	if err := st.Commit(t.Context(), &batch); err != nil {
		t.Fatal(err)
	}
	a := &Assigner{
		Tokens:      Tokens{Signer: tasktoken.New([]byte("key"), tasktoken.DefaultTTL)},
		CallbackURL: "https://lessor.example",
	}
	var all []*lessorv1.Assignment
	err = st.View(func(r store.Reader) (err error) {
		all, err = a.Assignments(r, now, "", []engine.Granted{{Task: held, LeaseID: "id", Token: 5}, {Task: &alone}})
		return err
	})
	if err != nil || len(all) != 2 {
		t.Fatalf("%d assignments (%v), want 2", len(all), err)
	}

	task := TaskProto(now, held)
	task.Lease, task.Spec.Payload = nil, sent.GetPayload()
	task.Spec.RunAt, task.Spec.StartTimeout, task.Spec.Retention, task.Spec.ConcurrencyLimit = nil, nil, nil, 0
	task.Spec.RetryPolicy = &lessorv1.RetryPolicy{MaxAttempts: spec.Retry.MaxAttempts, MaxLosses: spec.Retry.MaxLosses}
	task.Spec.HeartbeatInterval, task.Spec.HeartbeatTimeout, task.Spec.CancelGrace = nil, nil, nil
	task.Spec.Traceparent = ""
	token, tokenEnds := a.Tokens.Issue(now, held.Holding(), "", until)
	want := &lessorv1.Assignment{
		Task: task, Attempt: 7, AttemptId: held.ID.String() + "-7", LeaseId: "id", FencingToken: 5,
		ExpiresAt: Stamp(now.WallAt(until)), ExpiresIn: Span(3*time.Hour - 1_000), ServerTime: Stamp(5_000),
		HeartbeatInterval: sent.GetHeartbeatInterval(), HeartbeatTimeout: sent.GetHeartbeatTimeout(),
		CancelGrace: sent.GetCancelGrace(),
		Traceparent: "00-trace", Checkpoint: []byte("half"), RunSeq: 9, CallbackBaseUrl: "https://lessor.example",
		TaskToken: token, TokenExpiresAt: Stamp(now.WallAt(tokenEnds)),
	}
	for fields, i := want.ProtoReflect().Descriptor().Fields(), 0; i < fields.Len(); i++ {
		if !want.ProtoReflect().Has(fields.Get(i)) {
			t.Errorf("the test does not set the field %s, so that it does not check it", fields.Get(i).Name())
		}
	}
	if !proto.Equal(all[0], want) {
		t.Errorf("the assignment is\n%v, want\n%v", all[0], want)
	}
	if m := all[1]; m.GetRunSeq() != 0 || m.GetCheckpoint() != nil || m.GetExpiresIn().AsDuration() != 700 {
		t.Errorf("run_seq %d, %d bytes of checkpoint, %v left; want none, and the 700 ns until the deadline",
			m.GetRunSeq(), len(m.GetCheckpoint()), m.GetExpiresIn())
	}
}

// A worker must not get a task without its payload or its checkpoint because they cannot be read.
func TestAssignmentNeedsItsRecords(t *testing.T) {
	for _, broken := range []store.Keyspace{store.Spec, store.Checkpoint} {
		st := memstore.New()
		task := *granted(t, st).Task
		spec := *task.Spec
		task.Spec, task.CheckpointBits = &spec, 7
		if broken == store.Spec {
			spec.Payload = nil
		}
		var batch store.Batch
		batch.Put(broken, store.AppendTaskKey(nil, task.ID), []byte("damaged"))
		if err := st.Commit(t.Context(), &batch); err != nil {
			t.Fatal(err)
		}
		a := &Assigner{Tokens: Tokens{Signer: tasktoken.New([]byte("key"), tasktoken.DefaultTTL)}}
		err := st.View(func(r store.Reader) error {
			_, err := a.Assignments(r, lease.Now{Serving: 1, Wall: 1}, "", []engine.Granted{{Task: &task}})
			return err
		})
		if damage := new(store.CorruptError); !errors.As(err, &damage) || damage.Keyspace != broken {
			t.Errorf("damaged %v: %v, want a CorruptError", broken, err)
		}
	}
}

// BenchmarkAssignment makes the assignment for a grant, with the payload in memory or on disk. One
// operation is one task.
func BenchmarkAssignment(b *testing.B) {
	st, err := boltstore.Open(b.TempDir(), boltstore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = st.Close() })
	a := &Assigner{Tokens: Tokens{Signer: tasktoken.New([]byte("key"), tasktoken.DefaultTTL)}}
	kept, onDisk := granted(b, st), granted(b, st)
	spec := *onDisk.Task.Spec
	spec.Payload = nil
	onDisk.Task.Spec = &spec
	for name, g := range map[string]*engine.Granted{"memory": kept, "disk": onDisk} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			at := new(Times) // one for each frame
			err := st.View(func(r store.Reader) error {
				for b.Loop() {
					if _, err := a.assignment(r, at, a.Tokens, g, new(assigned)); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}

// granted stores a task with a payload of 256 bytes, and returns it as it is right after its grant.
func granted(b testing.TB, st store.Store) *engine.Granted {
	b.Helper()
	spec := &lease.Spec{Queue: "q", Payload: make([]byte, 256)}
	if err := spec.Fill(lease.DefaultLimits()); err != nil {
		b.Fatal(err)
	}
	t := &lease.Task{ID: lease.TaskID{Space: 1, Seq: 1}, Tenant: "t", Workspace: "w", Spec: spec, Lease: &lease.Lease{Attempt: 1}}
	var batch store.Batch
	records.Put(&batch, &lease.Change{New: t})
	if err := st.Commit(b.Context(), &batch); err != nil {
		b.Fatal(err)
	}
	return &engine.Granted{Task: t}
}
