package records_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

var errStop = errors.New("stop")

// The ids of lines are part of keys on disk, so they must never change. They differ even if queue
// and type are the same when joined, like "ab", "c" and "a", "bc".
func TestLineIDsNeverChange(t *testing.T) {
	for line, want := range map[lease.Line]uint64{
		{}:                                   0x6e340b9cffb37a98,
		{Queue: "default"}:                   0xa1764ef922a012c9,
		{Queue: "default", Type: "resize"}:   0xc6db13a060090baa,
		{Queue: "ab", Type: "c"}:             0x909ac45e43991119,
		{Queue: "a", Type: "bc"}:             0x1e18834c426d00e5,
		{Queue: "größe", Type: "\U0001F600"}: 0xa5a06c0f93b8625d,
		{Queue: "default", Type: "resize", Fairness: "acme"}:                   0xe009d28be074f19c,
		{Queue: "default", Type: "resize", Class: pinnedToW}:                   0x75c574a6c8fd1a4a,
		{Queue: "default", Class: pinnedToW}:                                   0x1039efedf91e61fc,
		{Queue: "default", Type: "resize", Fairness: "acme", Class: pinnedToW}: 0xc7b4d9e737914528,
		{Queue: "default", Type: "resize", Class: whole}:                       0x72076b24464ca69d,
	} {
		if got := records.LineID(line); got != want {
			t.Errorf("LineID(%+q) = %#x, want %#x", line, got, want)
		}
	}
}

// The class of a task that is pinned to worker "w", and the class of a task with requirements, pin
// and affinity.
var (
	pinnedToW = (&lease.Spec{ResourceRefs: []lease.ResourceRef{{ResourceID: "r", Worker: "w"}}}).Class()
	whole     = (&lease.Spec{
		Requirements: &lease.Requirements{
			Runtimes: []string{"python3", "node"}, Features: []string{"avx"},
			Labels: map[string]string{"zone": "b", "disk": "ssd"}, Resources: map[string]float64{"vram_gb": 80, "cpu": 0.5},
		},
		ResourceRefs: []lease.ResourceRef{{ResourceID: "r", Worker: "w"}},
		Affinity:     &lease.Affinity{Key: "session-1", Mode: lease.Sticky, TTL: 5},
	}).Class()
)

// Different lines have different ids, also if their fields are equal when joined.
func TestLineIDsDiffer(t *testing.T) {
	ids := map[uint64]lease.Line{}
	names := []string{"", "a", "b", "ab", "ba", "aa", "bb", "aba", "\x01a", strings.Repeat("x", 300), strings.Repeat("x", 301)}
	for _, queue := range names {
		for _, typ := range names {
			for _, fairness := range []string{"", "a", "ab"} {
				for _, class := range []lease.Class{"", "\x01a", "\x01ab", pinnedToW} {
					line := lease.Line{Queue: queue, Type: typ, Fairness: fairness, Class: class}
					if other, taken := ids[records.LineID(line)]; taken {
						t.Errorf("lines %q and %q have the same id, want two", other, line)
					}
					ids[records.LineID(line)] = line
				}
			}
		}
	}
}

// Index returns the entry of one version of a task that Put writes: its place in line if it is
// READY and not leased, and the end of its retention if it is final. WaitingTimers has the next
// timer on each clock if it is neither leased nor final.
func TestIndex(t *testing.T) {
	spec := &lease.Spec{Queue: "q", Type: "t", Priority: -3, StartTimeout: 5, Retention: 7}
	line := records.LineID(lease.Line{Queue: "q", Type: "t"})
	ready := entry{store.Ready, string(store.ReadyKey{Space: space, Line: line, Priority: -3, Place: 4, Seq: 9}.Append(nil))}
	ends := entry{store.Timer, string(store.WallTimer(37, id(9)).Append(nil))}
	serving := func(due lease.Instant) store.TimerKey { return store.ServingTimer(due, id(9)) }
	wall := func(due lease.Wall) store.TimerKey { return store.WallTimer(due, id(9)) }
	for _, tt := range []struct {
		name   string
		task   *lease.Task
		want   entry // zero: none
		timers []store.TimerKey
	}{
		{"no task", nil, entry{}, nil},
		{"READY", &lease.Task{Rest: lease.Ready, Place: 4, ReadyAt: 10}, ready, []store.TimerKey{serving(15)}},
		{"READY with a deadline", &lease.Task{Rest: lease.Ready, Place: 4, ReadyAt: 10, Deadline: 20}, ready, []store.TimerKey{serving(15), wall(20)}},
		{"leased", &lease.Task{Rest: lease.Ready, Place: 4, Deadline: 20, Lease: &lease.Lease{ExpiresAt: 12}}, entry{}, nil},
		{"SCHEDULED after a failure", &lease.Task{Rest: lease.Scheduled, Place: 4, RetryAt: 11}, entry{}, []store.TimerKey{serving(11)}},
		{"SCHEDULED with run_at", &lease.Task{Rest: lease.Scheduled, RunAt: 12, Deadline: 20}, entry{}, []store.TimerKey{wall(12)}},
		{"COMPLETED", &lease.Task{Rest: lease.Completed, FinishedAt: 30}, ends, nil},
	} {
		if tt.task != nil {
			tt.task.ID, tt.task.Spec = id(9), spec
		}
		e, ok := records.Index(tt.task)
		if got := (entry{e.Keyspace, string(e.Key())}); got != tt.want || ok != (tt.want != entry{}) {
			t.Errorf("%s: the entry is %v, %t, want %v", tt.name, got, ok, tt.want)
		}
		if timers := records.WaitingTimers(tt.task); !slices.Equal(timers, tt.timers) {
			t.Errorf("%s: the timers are %v, want %v", tt.name, timers, tt.timers)
		}
	}
}

type entry struct {
	keyspace store.Keyspace
	key      string
}

func (e entry) String() string { return fmt.Sprintf("%v %x", e.keyspace, e.key) }

// putReady adds a READY task to its line.
func putReady(b *store.Batch, at lease.TaskID, l lease.Line, priority int32, place uint64) {
	records.Put(b, &lease.Change{Row: true, New: &lease.Task{
		ID: at, Rest: lease.Ready, Place: place,
		Spec: &lease.Spec{Queue: l.Queue, Type: l.Type, FairnessKey: l.Fairness, Priority: priority},
	}})
}

// T2: Ready returns the tasks of a line by priority, the highest first, then by place, then by
// sequence. It begins directly after the place in its argument, so that a line can be read in
// several parts.
func TestReadyContinuesAfterAPlace(t *testing.T) {
	t.Attr("rules", "T2")
	s, line := memstore.New(), lease.Line{Queue: "q", Type: "t"}
	commit(t, s, func(b *store.Batch) {
		putReady(b, id(1), line, 0, 1)
		putReady(b, id(2), line, -1, 2)
		putReady(b, id(3), line, 5, 3)
		putReady(b, id(4), line, math.MinInt32, 4)
		putReady(b, id(5), line, math.MaxInt32, 5)
		putReady(b, id(6), line, 0, 6)
		putReady(b, id(7), line, 0, 1) // the same place as task 1
		putReady(b, id(8), lease.Line{Queue: "q", Type: "other"}, 0, 1)
		putReady(b, lease.TaskID{Space: space + 1, Seq: 9}, line, 0, 1)
	})
	want := []uint64{5, 3, 1, 7, 6, 2, 4}
	view(t, s, func(r store.Reader) error {
		after := store.ReadyKey{Priority: math.MaxInt32} // before all tasks: places begin with 1
		for i := range want {
			var got []uint64
			err := records.Ready(r, space, line, after, func(k store.ReadyKey) (bool, error) {
				if len(got) == 0 {
					after = k
				}
				got = append(got, k.Seq)
				return true, nil
			})
			if !slices.Equal(got, want[i:]) || err != nil {
				t.Errorf("after %d places: tasks %v, error %v; want %v", i, got, err, want[i:])
			}
		}
		calls := 0
		stop := func(err error) error {
			return records.Ready(r, space, line, store.ReadyKey{Priority: math.MaxInt32},
				func(store.ReadyKey) (bool, error) { calls++; return false, err })
		}
		if err := stop(nil); err != nil || calls != 1 {
			t.Errorf("Ready whose function returned false: error %v after %d calls, want no error after 1 call", err, calls)
		}
		if err := stop(errStop); !errors.Is(err, errStop) {
			t.Errorf("Ready whose function failed: error %v, want %v", err, errStop)
		}
		return nil
	})
}

// T8: Timers returns the timers of one clock in the order in which they are due, negative times
// included. It begins directly after the timer in its argument, so that timers can be read in
// several parts.
func TestTimersContinuesAfterATimer(t *testing.T) {
	t.Attr("rules", "T8")
	s := memstore.New()
	commit(t, s, func(b *store.Batch) {
		for i, due := range []int64{3, -1, 1, math.MaxInt64, 1, math.MinInt64 + 1} {
			b.Put(store.Timer, store.ServingTimer(lease.Instant(due), id(uint64(i))).Append(nil), nil)
			b.Put(store.Timer, store.WallTimer(lease.Wall(due), id(uint64(10+i))).Append(nil), nil)
		}
	})
	for clock, want := range map[store.Clock][]uint64{store.ServingClock: {5, 1, 2, 4, 0, 3}, store.WallClock: {15, 11, 12, 14, 10, 13}} {
		view(t, s, func(r store.Reader) error {
			after := store.TimerKey{Clock: clock, Due: math.MinInt64}
			for i := range want {
				var got []uint64
				err := records.Timers(r, after, func(k store.TimerKey) bool {
					if len(got) == 0 {
						after = k
					}
					got = append(got, k.Task.Seq)
					return len(got) < 3
				})
				if end := min(i+3, len(want)); !slices.Equal(got, want[i:end]) || err != nil {
					t.Errorf("clock %d after %d timers: tasks %v, error %v; want %v", clock, i, got, err, want[i:end])
				}
			}
			return nil
		})
	}
}

// TimerLog returns each record as it was put, in the order of their numbers, negative times
// included. A clock that does not exist is refused.
func TestTimerLogRoundTrip(t *testing.T) {
	s := memstore.New()
	want := map[uint64][]store.TimerKey{
		1: {
			store.WallTimer(math.MaxInt64, id(3)), store.ServingTimer(-1, id(1)),
			store.WallTimer(2, lease.TaskID{Space: math.MaxUint32, Seq: math.MaxUint64}),
		},
		2:   {store.ServingTimer(7, id(2))},
		256: {store.WallTimer(math.MinInt64, id(4))},
	}
	commit(t, s, func(b *store.Batch) {
		for number, timers := range want {
			records.PutInTimerLog(b, number, timers)
		}
	})
	view(t, s, func(r store.Reader) error {
		var last uint64
		got := map[uint64][]store.TimerKey{}
		err := records.TimerLog(r, func(number uint64, timers []store.TimerKey) {
			if number <= last {
				t.Errorf("record %d comes after %d", number, last)
			}
			got[number], last = timers, number
		})
		if err != nil || !maps.EqualFunc(got, want, slices.Equal) {
			t.Errorf("TimerLog returned %v, error %v; want %v", got, err, want)
		}
		return nil
	})
	commit(t, s, func(b *store.Batch) {
		records.PutInTimerLog(b, 3, []store.TimerKey{{Clock: store.WallClock + 1, Due: 1, Task: id(1)}})
	})
	view(t, s, func(r store.Reader) error {
		err := records.TimerLog(r, func(uint64, []store.TimerKey) {})
		wantCorruptKey(t, "a third clock", err, store.TimerLog, store.AppendTimerLogKey(nil, 3))
		return nil
	})
}

// countingReader is a store.Reader that counts the keys that Scan visits.
type countingReader struct {
	store.Reader
	keys map[store.Keyspace]int
}

func (c countingReader) Scan(ks store.Keyspace, from, to []byte, fn func(key, value []byte) bool) error {
	return c.Reader.Scan(ks, from, to, func(key, value []byte) bool {
		c.keys[ks]++
		return fn(key, value)
	})
}

// WaitingLines, which a start calls, finds the first place of each line. It reads only one key of
// each, even if many tasks wait in the line.
func TestWaitingLinesReadsOneKeyOfEach(t *testing.T) {
	s := memstore.New()
	var want []string
	commit(t, s, func(b *store.Batch) {
		seq := uint64(0)
		for i := range 5 {
			line := lease.Line{Queue: fmt.Sprint("q", i/2), Type: "t", Fairness: fmt.Sprint("f", i%2)}
			for n := range 100 {
				seq++
				switch n {
				case 0:
					want = append(want, fmt.Sprint(uint32(math.MaxUint32), 0, seq, line))
				case 50:
					want = append(want, fmt.Sprint(space, 1, seq, line))
				}
				putReady(b, id(seq), line, int32(n/50), seq)
				putReady(b, lease.TaskID{Space: math.MaxUint32, Seq: seq}, line, 0, seq)
			}
		}
	})
	view(t, s, func(r store.Reader) error {
		counting := countingReader{r, map[store.Keyspace]int{}}
		var got []string
		err := records.WaitingLines(counting, func(first store.ReadyKey, l lease.Line) error {
			got = append(got, fmt.Sprint(first.Space, first.Priority, first.Seq, l))
			return nil
		})
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) || counting.keys[store.Ready] != len(want) {
			t.Errorf("WaitingLines found %q and read %d keys; want %q and %d keys",
				got, counting.keys[store.Ready], want, len(want))
		}
		return err
	})
}

// NextReady goes from one place to the next, over all lines, and reads only one key for each;
// ReadyTask reads the task that waits there.
func TestNextReadyReadsOneKey(t *testing.T) {
	s := memstore.New()
	want := map[string][]uint64{}
	commit(t, s, func(b *store.Batch) {
		for seq := range uint64(90) {
			line, priority := lease.Line{Queue: fmt.Sprint("q", seq%2)}, int32(seq/2%3)-1
			putReady(b, id(seq+1), line, priority, 1000-seq)
			name := fmt.Sprint(line.Queue, " ", priority)
			want[name] = slices.Insert(want[name], 0, seq+1) // the last one has the lowest place
		}
	})
	view(t, s, func(r store.Reader) error {
		counting := countingReader{r, map[store.Keyspace]int{}}
		got := map[string][]uint64{}
		var at store.ReadyKey
		for {
			next, found, err := records.NextReady(counting, at)
			if err != nil || !found {
				if keys := counting.keys[store.Ready]; keys != 90 {
					t.Errorf("%d keys were read for 90 tasks", keys)
				}
				if !maps.EqualFunc(got, want, slices.Equal) {
					t.Errorf("the tasks are %v, want %v", got, want)
				}
				return err
			}
			if next.Line == at.Line && next.Priority > at.Priority {
				t.Errorf("%+v comes behind %+v", next, at)
			}
			at = next
			task, err := records.ReadyTask(counting, at)
			if err != nil {
				return err
			}
			name := fmt.Sprint(task.Spec.Queue, " ", task.Spec.Priority)
			got[name] = append(got[name], task.ID.Seq)
		}
	})
}
