package records_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
	"github.com/lessor-dev/lessor/store/storetest"
)

// readers has a function for each keyspace with sealed values. It reads all records of the
// keyspace, or those of the task.
var readers = map[store.Keyspace]func(r store.Reader, id lease.TaskID) error{
	store.Meta: func(r store.Reader, _ lease.TaskID) error {
		_, _, err := records.ReadIdentity(r)
		_, err2 := records.ServingClock(r)
		return errors.Join(err, err2)
	},
	store.Space: func(r store.Reader, _ lease.TaskID) error {
		return records.Spaces(r, func(records.Space) error { return nil })
	},
	store.Queue: func(r store.Reader, _ lease.TaskID) error {
		return records.Queues(r, func(records.Queue) error { return nil })
	},
	store.Settings: func(r store.Reader, _ lease.TaskID) error {
		return records.Settings(r, func(uint32, string, *lease.Settings) error { return nil })
	},
	store.SigningKey: func(r store.Reader, _ lease.TaskID) error {
		return records.SigningKeys(r, func(records.SigningKey) error { return nil })
	},
	store.Token: func(r store.Reader, _ lease.TaskID) error {
		return records.Tokens(r, func(records.Token) error { return nil })
	},
	store.Audit: func(r store.Reader, _ lease.TaskID) error {
		return records.Audits(r, store.AuditKey{Tenant: "acme"}, func(*records.Audit) bool { return true })
	},
	store.Discarded: func(r store.Reader, id lease.TaskID) error {
		_, err := records.Discarded(r, id, 1)
		return err
	},
	store.Spec: readTask, store.Task: readTask, store.Lease: readTask,
	store.Idempotency: func(r store.Reader, id lease.TaskID) error {
		_, _, _, err := records.OlderTaskByKey(r, id.Space, "key0")
		return err
	},
	store.KeyLog: func(r store.Reader, _ lease.TaskID) error {
		return records.KeyLog(r, lease.TaskID{}, func(records.KeyEntry) bool { return true })
	},
	store.KeySegment: func(r store.Reader, id lease.TaskID) error {
		_, err := records.InSegment(r, 1, store.HashOfKey(id.Space, "key0"))
		return err
	},
	store.TimerLog: func(r store.Reader, _ lease.TaskID) error {
		return records.TimerLog(r, func(uint64, []store.TimerKey) {})
	},
	store.Ledger: func(r store.Reader, id lease.TaskID) error {
		_, err := records.Committed(r, id, 1)
		return err
	},
	store.Output: func(r store.Reader, id lease.TaskID) error {
		_, err := records.Result(r, id)
		return err
	},
	store.Failure: func(r store.Reader, id lease.TaskID) error {
		_, err := records.Failure(r, id)
		return err
	},
	store.Feedback: func(r store.Reader, id lease.TaskID) error {
		_, err := records.Feedback(r, id)
		return err
	},
	store.Checkpoint: func(r store.Reader, id lease.TaskID) error {
		_, err := records.Checkpoint(r, id)
		return err
	},
}

func readTask(r store.Reader, id lease.TaskID) error {
	t, err := records.Task(r, id)
	if t != nil && err != nil {
		return errors.New("a task and an error")
	}
	_, err2 := records.Payload(r, id)
	err3 := records.Tasks(r, id.Space, "", id.Seq-1, func(*lease.Task) bool { return false })
	err4 := records.LeasedTasks(r, func(*lease.Task) error { return nil })
	err5 := records.TasksBack(r, id.Space, "", id.Seq+1, func(*lease.Task) bool { return false })
	if err != nil && (err3 == nil || err5 == nil) {
		return errors.New("Tasks or TasksBack reads a task that Task refuses")
	}
	if err == nil {
		return errors.Join(err2, err3, err4, err5)
	}
	return err
}

// replaced is a store.Reader that returns another value for one record.
type replaced struct {
	store.Reader
	keyspace   store.Keyspace
	key, value []byte
}

func (o replaced) Get(ks store.Keyspace, key []byte) []byte {
	if ks == o.keyspace && bytes.Equal(key, o.key) {
		return o.value
	}
	return o.Reader.Get(ks, key)
}

func (o replaced) Scan(ks store.Keyspace, from, to []byte, fn func(key, value []byte) bool) error {
	return o.Reader.Scan(ks, from, to, o.each(ks, fn))
}

func (o replaced) ScanBack(ks store.Keyspace, from, to []byte, fn func(key, value []byte) bool) error {
	return o.Reader.ScanBack(ks, from, to, o.each(ks, fn))
}

func (o replaced) each(ks store.Keyspace, fn func(key, value []byte) bool) func(key, value []byte) bool {
	return func(key, value []byte) bool {
		if ks == o.keyspace && bytes.Equal(key, o.key) {
			value = o.value
		}
		return fn(key, value)
	}
}

// record is a record of the world that fullWorld returns.
type record struct {
	keyspace   store.Keyspace
	key, value []byte
	task       lease.TaskID // for its function in readers
	r          store.Reader
}

// read reads the record as if value were stored in its place.
func (rec record) read(value []byte) error {
	return readers[rec.keyspace](replaced{rec.r, rec.keyspace, rec.key, value}, rec.task)
}

// sealedRecords returns the first record of each keyspace that has sealed values, and all records
// of Meta.
func sealedRecords(t testing.TB) (all []record) {
	t.Helper()
	owner := map[store.Keyspace]lease.TaskID{store.Output: id(3), store.Discarded: id(5)}
	view(t, fullWorld(t).store, func(r store.Reader) error {
		for ks := range readers {
			task, ok := owner[ks]
			if !ok {
				task = id(1)
			}
			first := true
			_ = r.Scan(ks, nil, nil, func(key, value []byte) bool {
				if first || ks == store.Meta {
					all = append(all, record{ks, bytes.Clone(key), bytes.Clone(value), task, r})
				}
				first = false
				return true
			})
			if first {
				t.Fatalf("fullWorld has no record in %v", ks)
			}
		}
		return nil
	})
	slices.SortFunc(all, func(a, b record) int {
		return bytes.Compare(append([]byte{byte(a.keyspace)}, a.key...), append([]byte{byte(b.keyspace)}, b.key...))
	})
	for _, rec := range all {
		if err := rec.read(rec.value); err != nil {
			t.Fatalf("the undamaged %v record cannot be read: %v", rec.keyspace, err)
		}
	}
	return all
}

// wantCorrupt checks that the record with the given value is refused with a CorruptError that names
// the record.
func (rec record) wantCorrupt(t *testing.T, what string, value []byte) {
	t.Helper()
	err := rec.read(value)
	if damage := new(store.CorruptError); !errors.As(err, &damage) || damage.Keyspace != rec.keyspace || !bytes.Equal(damage.Key, rec.key) {
		t.Fatalf("%v record with %s: %v, want a CorruptError of this record", rec.keyspace, what, err)
	}
}

// A record with any bit flipped, or cut off anywhere, is refused with a CorruptError that names the
// record.
func TestDamagedRecordIsRefused(t *testing.T) {
	for _, rec := range sealedRecords(t) {
		for bit := range 8 * len(rec.value) {
			flipped := bytes.Clone(rec.value)
			flipped[bit/8] ^= 1 << (bit % 8)
			rec.wantCorrupt(t, "a flipped bit", flipped)
		}
		for n := range len(rec.value) {
			rec.wantCorrupt(t, "its end cut off", rec.value[:n])
		}
	}
}

// A record of a version that this program does not know is refused. 11 is the next version.
func TestUnknownVersionIsRefused(t *testing.T) {
	for _, rec := range sealedRecords(t) {
		for _, version := range []byte{0, 11, 255} {
			value := storetest.Seal(rec.keyspace, rec.key, version, rec.value[store.SealSize:])
			rec.wantCorrupt(t, "another version", value)
		}
	}
}

// A spec of a format before 5 does not hold the state of its task. If such a task has no record in
// Task, the store is damaged. The task must not be read as one that has not changed since its
// submit, and so as READY.
func TestOldSpecWithoutAStateIsRefused(t *testing.T) {
	st := memstore.New()
	task := &lease.Task{ID: id(1), Round: 1, Rest: lease.Completed, Spec: &lease.Spec{Queue: "q"}}
	commit(t, st, func(b *store.Batch) {
		records.Put(b, &lease.Change{New: task})
		records.Put(b, &lease.Change{Old: task, New: task, Row: true})
	})
	view(t, st, func(r store.Reader) error {
		key := store.AppendTaskKey(nil, task.ID)
		spec := r.Get(store.Spec, key)
		// The same spec with version 4. Version 4 has no state in the spec, so the state is then
		// read as a part of the payload.
		old := replaced{r, store.Spec, key, storetest.Seal(store.Spec, key, 4, spec[store.SealSize:])}
		got, err := records.Task(old, task.ID)
		if err != nil || got.Rest != lease.Completed {
			t.Errorf("an old spec and a state are read as %+v, error %v; want a COMPLETED task", got, err)
		}
		wantCorrupt := func(what string, ks store.Keyspace, r store.Reader) {
			damage := new(store.CorruptError)
			if got, err := records.Task(r, task.ID); got != nil || !errors.As(err, &damage) || damage.Keyspace != ks {
				t.Errorf("%s is read as %+v, error %v; want no task, and a CorruptError of %v", what, got, err, ks)
			}
		}
		wantCorrupt("an old spec alone", store.Task, replaced{old, store.Task, key, nil})
		wantCorrupt("a state alone", store.Spec, replaced{r, store.Spec, key, nil})
		return nil
	})
}

// A record that is shorter or longer than its fields is refused. A spec and a checkpoint end with
// the payload, which may have any length.
func TestWrongLengthIsRefused(t *testing.T) {
	for _, rec := range sealedRecords(t) {
		payload := rec.value[store.SealSize:]
		open := map[store.Keyspace]int{store.Spec: len("payload"), store.Checkpoint: len("half")}[rec.keyspace]
		for n := range len(payload) - open {
			rec.wantCorrupt(t, "a field missing", storetest.Seal(rec.keyspace, rec.key, rec.value[0], payload[:n]))
		}
		if open == 0 {
			rec.wantCorrupt(t, "a byte too many",
				storetest.Seal(rec.keyspace, rec.key, rec.value[0], append(payload[:len(payload):len(payload)], 0)))
		}
	}
}

// A number that is too large for its field is refused, not cut off.
func TestNumberOutOfRangeIsRefused(t *testing.T) {
	for _, rec := range sealedRecords(t) {
		if rec.keyspace != store.Ledger && rec.keyspace != store.Lease { // both begin with a uint32
			continue
		}
		payload := binary.AppendUvarint(nil, 1<<32+1)
		payload = append(payload, rec.value[store.SealSize+1:]...)
		rec.wantCorrupt(t, "a number of 33 bits", storetest.Seal(rec.keyspace, rec.key, rec.value[0], payload))
	}
}

// The size of a checkpoint of 2 GiB and more is refused: nothing that computes with it expects as
// much.
func TestCheckpointSizeOutOfRangeIsRefused(t *testing.T) {
	for bits, good := range map[uint8]bool{31: true, 32: false, 255: false} {
		st := memstore.New()
		task := &lease.Task{ID: id(1), Round: 1, Spec: &lease.Spec{Queue: "q"}, CheckpointBits: bits}
		commit(t, st, func(b *store.Batch) {
			records.Put(b, &lease.Change{New: task})
			records.Put(b, &lease.Change{Old: task, New: task, Row: true})
		})
		view(t, st, func(r store.Reader) error {
			got, err := records.Task(r, task.ID)
			if damage := new(store.CorruptError); good != (err == nil) || !good && !errors.As(err, &damage) {
				t.Errorf("a checkpoint of %d bits is read as %+v, error %v", bits, got, err)
			}
			return nil
		})
	}
}

// Values that are read from a record must be copies: the bytes that a store returns are valid only
// during the View.
func TestReadValuesAreCopies(t *testing.T) {
	for _, rec := range sealedRecords(t) {
		value := bytes.Clone(rec.value)
		got, err := rec.readBytes(replaced{rec.r, rec.keyspace, rec.key, value})
		before := bytes.Clone(got)
		clear(value)
		if wantEqual(t, err, rec.keyspace.String(), before, got); rec.keyspace == store.Spec && string(got) != "payload" {
			t.Errorf("the payload is read as %q, want %q", got, "payload")
		}
	}
}

// readBytes reads a field of type []byte of the record; nil if its keyspace has none.
func (rec record) readBytes(r store.Reader) ([]byte, error) {
	switch rec.keyspace {
	case store.Spec:
		return records.Payload(r, rec.task)
	case store.Checkpoint:
		return records.Checkpoint(r, rec.task)
	case store.Output:
		result, err := records.Result(r, rec.task)
		return result.Output, err
	case store.Failure:
		failure, err := records.Failure(r, rec.task)
		return failure.Partial, err
	case store.Feedback:
		said, err := records.Feedback(r, rec.task)
		return said.Chunks[0].Data, err
	case store.Meta:
		identity, _, err := records.ReadIdentity(r)
		return identity.Key, err
	}
	return nil, nil
}

// A damaged length or count, wherever it lies in a record, must not make the reader allocate memory
// for data that is not there.
func TestDamagedLengthAllocatesLittle(t *testing.T) {
	for _, rec := range sealedRecords(t) {
		payload := rec.value[store.SealSize:]
		for n := range payload {
			for _, length := range []uint64{1 << 16, 1 << 40, math.MaxInt64, math.MaxUint64} {
				rec.readArbitrary(t, binary.AppendUvarint(payload[:n:n], length))
			}
		}
	}
}

// FuzzDecode reads records of arbitrary bytes with a valid seal.
func FuzzDecode(f *testing.F) {
	all := sealedRecords(f)
	for i, rec := range all {
		f.Add(uint8(i), rec.value[store.SealSize:])
	}
	f.Fuzz(func(t *testing.T, kind uint8, payload []byte) {
		all[int(kind)%len(all)].readArbitrary(t, payload)
	})
}

// readArbitrary checks that a record with this payload is either read or refused with a
// CorruptError, without a panic, and that memory is allocated only in proportion to the payload.
func (rec record) readArbitrary(t *testing.T, payload []byte) {
	t.Helper()
	value := storetest.Seal(rec.keyspace, rec.key, rec.value[0], payload)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := rec.read(value)
	runtime.ReadMemStats(&after)
	if damage := new(store.CorruptError); err != nil && !errors.As(err, &damage) {
		t.Errorf("%v record: %v, want a CorruptError", rec.keyspace, err)
	}
	if n, limit := after.TotalAlloc-before.TotalAlloc, uint64(256<<10+200*len(payload)); n > limit {
		t.Errorf("%v record of %d bytes: %d bytes allocated, want at most %d", rec.keyspace, len(payload), n, limit)
	}
}

// CheckRecord refuses a sealed record, or an entry of an index, under a key without the form of its
// keyspace, and an entry with a value.
func TestCheckRecordRefusesMalformedKeys(t *testing.T) {
	short := func(ks store.Keyspace, key, value []byte) {
		t.Helper()
		if err := records.CheckRecord(ks, key, value); err != nil {
			t.Errorf("the undamaged %v record is refused: %v", ks, err)
		}
		key = key[:2]
		if len(value) > 0 {
			value = storetest.Seal(ks, key, value[0], value[store.SealSize:])
		}
		wantCorruptKey(t, "a short key", records.CheckRecord(ks, key, value), ks, key)
	}
	for _, rec := range sealedRecords(t) {
		short(rec.keyspace, rec.key, rec.value)
	}
	for ks, key := range map[store.Keyspace][]byte{
		store.Ready:   store.ReadyKey{}.Append(nil),
		store.Parked:  store.ParkedKey{}.Append(nil),
		store.Mounted: store.AppendGroupKey(nil, 1, id(1)),
		store.Timer:   store.TimerKey{}.Append(nil),
	} {
		short(ks, key, nil)
		wantCorruptKey(t, "an entry with a value", records.CheckRecord(ks, key, []byte{0}), ks, key)
	}
}
