package records_test

import (
	"math"
	"slices"
	"testing"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// The ids of hosts are part of keys on disk, so they must never change. They differ even if run and
// name are the same when joined, like "run", "resize" and "runr", "esize".
func TestHostIDsNeverChange(t *testing.T) {
	for host, want := range map[[2]string]uint64{
		{"", ""}: 0x6e340b9cffb37a98, {"", "h"}: 0xe593490a360ac810, {"h", ""}: 0x662fb906c0fb6710,
		{"run", "resize"}: 0xf404586f44bdf27d, {"runr", "esize"}: 0xc5f9697eaf52f1a4,
	} {
		if got := records.HostID(host[0], host[1]); got != want {
			t.Errorf("HostID(%q) = %#x, want %#x", host, got, want)
		}
	}
}

// Mounted returns the tasks of a run that are mounted on a host, in the order of their submit. It
// does not return deleted tasks, tasks of another host or run, or tasks of a host that has the same
// id by chance.
func TestMountedReturnsTheTasksOfAHost(t *testing.T) {
	s := memstore.New()
	mount := func(b *store.Batch, seq uint64, run, host string) *lease.Task {
		task := &lease.Task{ID: id(seq), Spec: &lease.Spec{RunID: run, Trace: &lease.Trace{Host: host}}}
		records.Put(b, &lease.Change{Row: true, New: task})
		return task
	}
	commit(t, s, func(b *store.Batch) {
		mount(b, 4, "r", "h")
		gone := mount(b, 3, "r", "h")
		records.Put(b, &lease.Change{Row: true, Old: gone})
		mount(b, 2, "r", "h")
		mount(b, math.MaxInt64, "r", "h")
		mount(b, 5, "r", "i")
		mount(b, 6, "s", "h")
		mount(b, 7, "r", "")
		records.Put(b, &lease.Change{Row: true, New: &lease.Task{ID: id(8), Spec: &lease.Spec{RunID: "r", TaskKey: "h"}}})
		// as if host h of run s had the same id
		b.Put(store.Mounted, store.AppendGroupKey(nil, records.HostID("r", "h"), id(6)), nil)
	})
	view(t, s, func(r store.Reader) error {
		var got []uint64
		err := records.Mounted(r, space, "r", "h", func(t *lease.Task) bool {
			got = append(got, t.ID.Seq)
			return true
		})
		if want := []uint64{2, 4, math.MaxInt64}; !slices.Equal(got, want) {
			t.Errorf("Mounted = tasks %v, want %v", got, want)
		}
		calls := 0
		if err := records.Mounted(r, space, "r", "h", func(*lease.Task) bool { calls++; return false }); err != nil || calls != 1 {
			t.Errorf("Mounted whose function returned false: error %v after %d calls, want no error after 1 call", err, calls)
		}
		return err
	})
}

// Tasks returns the tasks of a run, in the order of their submit, and no deleted ones. Of the time
// when there was no index of runs it returns all tasks (2 to 5 here), so that its caller can limit
// how many are read; behind that, of other runs only those whose run has the same number by chance
// (7).
func TestTasksOfARun(t *testing.T) {
	s := memstore.New()
	submit := func(b *store.Batch, seq uint64, run string) *lease.Task {
		task := &lease.Task{ID: id(seq), Spec: &lease.Spec{RunID: run}}
		records.Put(b, &lease.Change{Row: true, New: task})
		return task
	}
	commit(t, s, func(b *store.Batch) {
		submit(b, 2, "r")
		submit(b, 3, "s")
		submit(b, 4, "r")
		submit(b, 5, "")
		for old, run := range map[uint64]string{2: "r", 3: "s"} { // 4 is in the index, too, and is returned once
			b.Delete(store.Run, records.RunKey(&lease.Task{ID: id(old), Spec: &lease.Spec{RunID: run}}))
		}
		b.Put(store.Run, store.AppendGroupKey(nil, store.OlderTasks, id(5)), nil)
		submit(b, 8, "r")
		submit(b, 7, "s")
		// as if both runs had the same number
		b.Put(store.Run, records.RunKey(&lease.Task{ID: id(7), Spec: &lease.Spec{RunID: "r"}}), nil)
		gone := submit(b, 6, "r")
		records.Put(b, &lease.Change{Row: true, Old: gone})
		submit(b, math.MaxInt64, "r")
	})
	view(t, s, func(r store.Reader) error {
		for _, tt := range []struct {
			run   string
			after uint64
			want  []uint64
		}{
			{"r", 0, []uint64{2, 3, 4, 5, 7, 8, math.MaxInt64}},
			{"r", 2, []uint64{3, 4, 5, 7, 8, math.MaxInt64}},
			{"r", 4, []uint64{5, 7, 8, math.MaxInt64}},
			{"r", 5, []uint64{7, 8, math.MaxInt64}},
			{"r", 8, []uint64{math.MaxInt64}},
			{"r", math.MaxInt64, nil},
			{"s", 0, []uint64{2, 3, 4, 5, 7}},
			{"s", 5, []uint64{7}},
			{"none", 0, []uint64{2, 3, 4, 5}},
			{"none", 5, nil},
		} {
			for most := 1; most <= len(tt.want)+1; most++ {
				var got []uint64
				err := records.Tasks(r, space, tt.run, tt.after, func(t *lease.Task) bool {
					got = append(got, t.ID.Seq)
					return len(got) < most
				})
				if want := tt.want[:min(most, len(tt.want))]; err != nil || !slices.Equal(got, want) {
					t.Errorf("the first %d tasks of run %q after %d = %v, %v; want %v", most, tt.run, tt.after, got, err, want)
				}
			}
		}
		for _, run := range []string{"r", "s", "none"} {
			wantReverse(t, "run "+run, []uint64{2, 3, 4, 5, 6, 7, 8, 9, math.MaxInt64, math.MaxUint64}, func(after uint64, fn func(*lease.Task) bool) error {
				return records.Tasks(r, space, run, after, fn)
			}, func(before uint64, fn func(*lease.Task) bool) error {
				return records.TasksBack(r, space, run, before, fn)
			})
		}
		return nil
	})
}

// wantReverse checks that a list in reverse order, before each of these sequences and before none,
// has the tasks before it of the list in order, wherever its function ends it.
func wantReverse(t *testing.T, what string, seqs []uint64, forth, back func(from uint64, fn func(*lease.Task) bool) error) {
	t.Helper()
	read := func(list func(uint64, func(*lease.Task) bool) error, from uint64, most int) (got []uint64) {
		err := list(from, func(task *lease.Task) bool {
			got = append(got, task.ID.Seq)
			return len(got) < most
		})
		if err != nil {
			t.Errorf("%s from %d: %v", what, from, err)
		}
		return got
	}
	all := read(forth, 0, math.MaxInt)
	for _, before := range append(seqs, 0, 1) {
		want := slices.Clone(all)
		if before > 0 {
			want = slices.DeleteFunc(want, func(seq uint64) bool { return seq >= before })
		}
		slices.Reverse(want)
		for most := 1; most <= len(want)+1; most++ {
			if got, want := read(back, before, most), want[:min(most, len(want))]; !slices.Equal(got, want) {
				t.Errorf("the newest %d tasks of %s before %d = %v, want %v", most, what, before, got, want)
			}
		}
	}
}
