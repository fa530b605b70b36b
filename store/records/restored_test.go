package records_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// A11, T13, V15: a copy of a store gets another epoch with the same key, knows no grants of earlier
// ones for certain, skips the sequences that the original may have used since, and has no rate
// limit with anything left.
func TestMakeIndependent(t *testing.T) {
	t.Attr("rules", "A11 T13 V15")
	const serving = lease.Instant(1000)
	now := lease.Wall(1_800_000_000_000_000_000)
	limited := records.Queue{Space: 1, Name: "limited", CreatedAt: 2, Ready: 3, Bucket: &lease.Bucket{Used: 0.5, At: 7}}
	plain := records.Queue{Space: 1, Name: "plain", CreatedAt: 2}
	spaces := []records.Space{
		{Tenant: "a", Workspace: "x", Number: 1, NextSeq: 10},
		{Tenant: "b", Workspace: "y", Number: 2, NextSeq: 1, LostFrom: 3, LostTo: 4},
	}
	st := memstore.New()
	commit(t, st, func(b *store.Batch) {
		records.PutIdentity(b, records.Identity{Epoch: 3, Key: []byte("secret"), KnownFrom: 2})
		records.PutClock(b, serving)
		records.PutQueue(b, limited)
		records.PutQueue(b, plain)
		for _, s := range spaces {
			records.PutSpace(b, s)
		}
	})
	var epoch uint32
	var changes store.Batch
	view(t, st, func(r store.Reader) (err error) {
		epoch, err = records.MakeIndependent(&changes, r, now)
		return err
	})
	if want := lease.RestoredEpoch(3, now); epoch != want || epoch == 3 {
		t.Errorf("the new epoch is %d, want %d", epoch, want)
	}
	if err := st.Commit(t.Context(), &changes); err != nil {
		t.Fatal(err)
	}
	for i := range spaces {
		next := lease.FirstSeq(epoch, spaces[i].NextSeq)
		spaces[i].LostFrom, spaces[i].NextSeq, spaces[i].LostTo = spaces[i].NextSeq, next, next
	}
	used := lease.UsedUp(serving)
	limited.Bucket = &used
	view(t, st, func(r store.Reader) error {
		identity, _, err := records.ReadIdentity(r)
		if diff := cmp.Diff(records.Identity{Epoch: epoch, Key: []byte("secret"), KnownFrom: epoch}, identity); diff != "" || err != nil {
			t.Errorf("the identity: error %v, -want +got:\n%s", err, diff)
		}
		gotSpaces, err := collect(r, records.Spaces)
		if diff := cmp.Diff(spaces, gotSpaces); diff != "" || err != nil {
			t.Errorf("the spaces: error %v, -want +got:\n%s", err, diff)
		}
		queues, err := collect(r, records.Queues)
		if diff := cmp.Diff([]records.Queue{limited, plain}, queues); diff != "" {
			t.Errorf("the queues: -want +got:\n%s", diff)
		}
		return err
	})
}

// S5, A11: if a copy is made independent again before it has given out a sequence, as when lessor
// serve --recovery=restored follows lessor restore, the sequences that the first time left out are
// still known as lost.
func TestMakeIndependentAgain(t *testing.T) {
	t.Attr("rules", "A11 S5")
	const first, second = lease.Wall(1_800_000_000_000_000_000), lease.Wall(1_800_000_060_000_000_000)
	st := memstore.New()
	commit(t, st, func(b *store.Batch) {
		records.PutIdentity(b, records.Identity{Epoch: 1, Key: []byte("secret")})
		records.PutSpace(b, records.Space{Tenant: "a", Workspace: "idle", Number: 1, NextSeq: 10})
		records.PutSpace(b, records.Space{Tenant: "a", Workspace: "busy", Number: 2, NextSeq: 10})
	})
	again := func(now lease.Wall) (spaces []records.Space) {
		var b store.Batch
		view(t, st, func(r store.Reader) error {
			_, err := records.MakeIndependent(&b, r, now)
			return err
		})
		if err := st.Commit(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		view(t, st, func(r store.Reader) (err error) {
			spaces, err = collect(r, records.Spaces)
			return err
		})
		return spaces
	}
	busy := again(first)[0]
	busy.NextSeq += 5
	commit(t, st, func(b *store.Batch) { records.PutSpace(b, busy) })
	for _, s := range again(second) {
		want := uint64(10)
		if s.Workspace == busy.Workspace {
			want = busy.NextSeq
		}
		if s.LostFrom != want || s.LostTo != s.NextSeq || s.NextSeq <= busy.NextSeq {
			t.Errorf("%s: the sequences from %d to before %d are lost and the next one is %d; want those from %d to before the next one",
				s.Workspace, s.LostFrom, s.LostTo, s.NextSeq, want)
		}
	}
}

// A store that was never served stays as it is: its first start gives it an identity of its own.
func TestUnservedStoreStaysAsItIs(t *testing.T) {
	var changes store.Batch
	view(t, memstore.New(), func(r store.Reader) error {
		epoch, err := records.MakeIndependent(&changes, r, 1)
		if epoch != 0 || changes.Len() != 0 {
			t.Errorf("epoch %d and %d changes, want none", epoch, changes.Len())
		}
		return err
	})
}

// A copy that was made independent has no position, so that no standby goes on from it, and
// remembers the one that it had behind those of earlier runs. A store that never had a standby has
// nothing to remember.
func TestPositionBecomesLineage(t *testing.T) {
	earlier, last := records.Position{Run: 7, Number: 70}, records.Position{Run: 8, Number: 80}
	for name, tt := range map[string]struct {
		put  func(b *store.Batch)
		want []records.Position
	}{
		"with a position": {func(b *store.Batch) {
			records.PutLineage(b, []records.Position{earlier})
			records.PutPosition(b, last, 1)
		}, []records.Position{earlier, last}},
		"without a position": {func(b *store.Batch) { records.PutLineage(b, []records.Position{earlier}) }, []records.Position{earlier}},
		"never numbered":     {func(*store.Batch) {}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			st := memstore.New()
			commit(t, st, func(b *store.Batch) {
				records.PutIdentity(b, records.Identity{Epoch: 1, Key: []byte("secret")})
				tt.put(b)
			})
			var b store.Batch
			view(t, st, func(r store.Reader) error {
				_, err := records.MakeIndependent(&b, r, 1)
				return err
			})
			if err := st.Commit(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
			view(t, st, func(r store.Reader) error {
				at, _, err := records.PositionOf(r)
				if at != (records.Position{}) || err != nil {
					t.Errorf("the position is %v (%v), want none", at, err)
				}
				lineage, err := records.Lineage(r)
				if !slices.Equal(lineage, tt.want) {
					t.Errorf("the lineage is %v, want %v", lineage, tt.want)
				}
				return err
			})
		})
	}
}
