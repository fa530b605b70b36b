package standby

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// replicaRig is a Replica to which a test sends what it likes.
type replicaRig struct {
	*testing.T
	*Replica
	place  *place
	source *memstore.Store // what the complete copy must have
	acked  []uint64
	failed []error
}

// withReplica runs a test with a Replica that has a complete copy at position 1. Its commits take a
// second from then on.
func withReplica(t *testing.T, test func(r *replicaRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &replicaRig{T: t, place: &place{slow: time.Second}, source: memstore.New()}
		r.Replica = NewReplica(r.place, func(p records.Position, _ lease.Wall) { r.acked = append(r.acked, p.Number) },
			func(err error) { r.failed = append(r.failed, err) })
		r.begin(true)
		r.commit(1, true)
		time.Sleep(time.Minute)
		synctest.Wait()
		r.acked = nil
		test(r)
		_ = r.Close()
	})
}

func (r *replicaRig) begin(isCopy bool) {
	r.Helper()
	if err := r.Begin(Begin{Copy: isCopy}); err != nil {
		r.Fatalf("Begin = %v", err)
	}
}

// change sends a change, and returns the batch that makes the position as well.
func (r *replicaRig) change(n uint64) *store.Batch {
	r.Helper()
	var b store.Batch
	b.Put(store.Task, []byte{byte(n)}, []byte("value"))
	records.PutPosition(&b, records.Position{Run: 1, Number: n}, 1)
	for i := range b.Len() {
		if err := r.Changes([]store.Op{b.At(i)}); err != nil {
			r.Fatal(err)
		}
	}
	return &b
}

// commit sends a commit with its mark, which has sums if it is to be compared.
func (r *replicaRig) commit(n uint64, compared bool) {
	r.Helper()
	m := Mark{At: records.Position{Run: 1, Number: n}, Complete: true}
	if err := r.source.Commit(r.Context(), r.change(n)); err != nil {
		r.Fatal(err)
	}
	if compared {
		m.Sums = r.sums()
	}
	if err := r.Mark(m); err != nil {
		r.Fatalf("Mark %d = %v", n, err)
	}
	synctest.Wait() // until it is being committed, if nothing else is
}

func (r *replicaRig) sums() (sums []uint64) {
	err := summed{r.source}.View(func(reader store.Reader) error {
		all, err := reader.(store.Summer).Sums()
		sums = all[:]
		return err
	})
	if err != nil {
		r.Fatal(err)
	}
	return sums
}

// otherSums are those of no store.
func otherSums() []uint64 { return make([]uint64, store.NumKeyspaces) }

func (r *replicaRig) wantAcked(want ...uint64) {
	r.Helper()
	synctest.Wait()
	if !slices.Equal(r.acked, want) {
		r.Errorf("%d were acknowledged, want %d", r.acked, want)
	}
}

// wantHas tests which tasks a store has.
func (r *replicaRig) wantHas(st store.Store, want ...byte) {
	r.Helper()
	var got []byte
	err := st.View(func(reader store.Reader) error {
		return reader.Scan(store.Task, nil, nil, func(key, _ []byte) bool { got = append(got, key...); return true })
	})
	if err != nil || !slices.Equal(got, want) {
		r.Errorf("the store has %d (%v), want %d", got, err, want)
	}
}

// A standby that comes back says what it has when all that it received is durable, and what comes
// next goes where it belongs: a copy into a store of its own.
func TestNextStreamWaitsForTheOneBefore(t *testing.T) {
	withReplica(t, func(r *replicaRig) {
		r.commit(2, false)
		r.commit(3, false)
		if p, err := r.Start(); err != nil || p.At.Number != 3 {
			t.Errorf("Start = %v (%v), want that of the last mark, 3", p, err)
		}
		r.wantAcked(2, 3)
		r.commit(4, false)
		r.begin(true)
		r.wantAcked(2, 3, 4)
		r.change(5)
		r.wantHas(r.place.Complete(), 1, 2, 3, 4)
		r.wantHas(r.place.copying)
	})
}

// A commit of which only a part came before its stream ended is not applied, in whatever stream the
// next mark comes.
func TestPartOfACommitIsDropped(t *testing.T) {
	withReplica(t, func(r *replicaRig) {
		r.change(9)
		r.begin(false)
		r.commit(2, true)
		_, _ = r.Start()
		r.wantAcked(2)
		r.wantHas(r.place.Complete(), 1, 2)
	})
}

// Sums are those of the state at their mark, however many marks wait behind it. What comes after a
// difference is neither applied nor acknowledged, and the copy that differs is not gone on with,
// until there is another one.
func TestSumsAreOfTheirMark(t *testing.T) {
	withReplica(t, func(r *replicaRig) {
		r.commit(2, false)
		r.commit(3, true)
		r.commit(4, true)
		r.change(5)
		if err := r.Mark(Mark{At: records.Position{Run: 1, Number: 5}, Complete: true, Sums: otherSums()}); err != nil {
			t.Fatal(err)
		}
		r.commit(6, false)
		time.Sleep(time.Minute)
		r.wantAcked(2, 3, 4)
		r.wantHas(r.place.Complete(), 1, 2, 3, 4, 5)
		if len(r.failed) != 1 || !errors.As(r.failed[0], new(*DivergedError)) {
			t.Errorf("it failed with %v, want one DivergedError", r.failed)
		}
		if err := r.Mark(Mark{}); !errors.As(err, new(*DivergedError)) {
			t.Errorf("the next Mark = %v, want a DivergedError", err)
		}
		for range 2 { // also if the first copy does not finish
			if p, err := r.Start(); p != (Start{}) || err != nil {
				t.Errorf("Start = %v (%v), want none", p, err)
			}
			if err := r.Begin(Begin{}); err == nil {
				t.Error("it goes on with a copy that differs")
			}
			r.begin(true)
		}
		r.source = memstore.New()
		r.commit(7, true)
		if p, err := r.Start(); p.At.Number != 7 || err != nil {
			t.Errorf("with a new copy, Start = %v (%v), want 7", p, err)
		}
		r.begin(false)
	})
}

// A new copy that differs is not used, and the complete one is as good as before.
func TestCopyThatDiffers(t *testing.T) {
	withReplica(t, func(r *replicaRig) {
		old := r.place.Complete()
		r.begin(true)
		r.change(2)
		if err := r.Mark(Mark{At: records.Position{Run: 1, Number: 2}, Complete: true, Sums: otherSums()}); err != nil {
			t.Fatal(err)
		}
		if p, err := r.Start(); p.At.Number != 1 || err != nil {
			t.Errorf("Start = %v (%v), want that of the older copy, 1", p, err)
		}
		r.wantAcked()
		if r.place.Complete() != old {
			t.Error("a copy that differs has replaced the complete one")
		}
		r.begin(false)
	})
}

// Much that waits for the store makes Mark wait, until there is room, or the store fails.
func TestMarkWaitsForTheStore(t *testing.T) {
	withReplica(t, func(r *replicaRig) {
		full := make([]byte, queueBytes)
		send := func() error {
			if err := r.Changes([]store.Op{{Keyspace: store.Task, Key: []byte("large"), Value: full}}); err != nil {
				t.Fatal(err)
			}
			return r.Mark(Mark{At: records.Position{Run: 1, Number: 2}})
		}
		for _, want := range []time.Duration{0, time.Second, time.Second} {
			began := time.Now()
			if err := send(); err != nil || time.Since(began) != want {
				t.Errorf("Mark took %v (%v), want %v", time.Since(began), err, want)
			}
		}
		no := errors.New("no")
		r.place.Complete().(summed).SetHook(func(context.Context, *store.Batch, func()) error {
			time.Sleep(time.Second)
			return no
		})
		var err error
		for range 4 {
			err = send()
		}
		if !errors.Is(err, no) {
			t.Errorf("when the store fails, Mark = %v, want its error", err)
		}
		if err := r.Begin(Begin{Copy: true}); !errors.Is(err, no) {
			t.Errorf("after that, Begin = %v, want the error of the store", err)
		}
	})
}
