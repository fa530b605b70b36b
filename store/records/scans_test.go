package records_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
	"github.com/lessor-dev/lessor/store/storetest"
)

// scan is a function that reads many records, and the keyspace that it scans. It visits all records
// that belong to the line, host or space of parkedTask.
type scan struct {
	keyspace store.Keyspace
	read     func(r store.Reader) error
}

var (
	parkedTask = &lease.Task{
		ID: id(1), Rest: lease.Ready, Parked: true,
		Spec: &lease.Spec{Queue: "q", ConcurrencyKey: "k", RunID: "run", Trace: &lease.Trace{Host: "h"}},
	}
	allScans = map[string]scan{
		"Spaces": {store.Space, func(r store.Reader) error { return records.Spaces(r, func(records.Space) error { return nil }) }},
		"Queues": {store.Queue, func(r store.Reader) error { return records.Queues(r, func(records.Queue) error { return nil }) }},
		"SigningKeys": {store.SigningKey, func(r store.Reader) error {
			return records.SigningKeys(r, func(records.SigningKey) error { return nil })
		}},
		"Tokens": {store.Token, func(r store.Reader) error { return records.Tokens(r, func(records.Token) error { return nil }) }},
		"Settings": {store.Settings, func(r store.Reader) error {
			return records.Settings(r, func(uint32, string, *lease.Settings) error { return nil })
		}},
		"Audits": {store.Audit, func(r store.Reader) error {
			return records.Audits(r, store.AuditKey{Tenant: "acme"}, func(*records.Audit) bool { return true })
		}},
		"OldAudits": {store.Audit, func(r store.Reader) error { _, err := records.OldAudits(r, 1, 9); return err }},
		"Tasks": {store.Spec, func(r store.Reader) error {
			return records.Tasks(r, space, "", 0, func(*lease.Task) bool { return true })
		}},
		"Tasks of a run": {store.Run, func(r store.Reader) error {
			return records.Tasks(r, space, "run", 0, func(*lease.Task) bool { return true })
		}},
		"TasksBack": {store.Spec, func(r store.Reader) error {
			return records.TasksBack(r, space, "", 0, func(*lease.Task) bool { return true })
		}},
		"TasksBack of a run": {store.Run, func(r store.Reader) error {
			return records.TasksBack(r, space, "run", 0, func(*lease.Task) bool { return true })
		}},
		"OlderTasks":  {store.Run, func(r store.Reader) error { _, err := records.OlderTasks(r, space); return err }},
		"LeasedTasks": {store.Lease, func(r store.Reader) error { return records.LeasedTasks(r, func(*lease.Task) error { return nil }) }},
		"LeasedTasksOf": {store.Lease, func(r store.Reader) error {
			return records.LeasedTasksOf(r, space, 0, func(*lease.Task) bool { return true })
		}},
		"LeasedTasksBackOf": {store.Lease, func(r store.Reader) error {
			return records.LeasedTasksBackOf(r, space, 0, func(*lease.Task) bool { return true })
		}},
		"WaitingLines": {store.Ready, func(r store.Reader) error {
			return records.WaitingLines(r, func(store.ReadyKey, lease.Line) error { return nil })
		}},
		"ParkedLines": {store.Parked, func(r store.Reader) error {
			return records.ParkedLines(r, func(uint32, string, lease.Line) error { return nil })
		}},
		"NextReady": {store.Ready, func(r store.Reader) error {
			var at store.ReadyKey
			for {
				next, found, err := records.NextReady(r, at)
				if err != nil || !found {
					return err
				}
				if _, err := records.ReadyTask(r, next); err != nil {
					return err
				}
				at = next
			}
		}},
		"Ready": {store.Ready, func(r store.Reader) error {
			return records.Ready(r, space, parkedTask.Line(), store.ReadyKey{},
				func(store.ReadyKey) (bool, error) { return true, nil })
		}},
		"Parked": {store.Parked, func(r store.Reader) error {
			return records.Parked(r, space, "k", parkedTask.Line(), store.ReadyKey{}, func(store.ReadyKey) bool { return true })
		}},
		"Mounted": {store.Mounted, func(r store.Reader) error {
			return records.Mounted(r, space, "run", "h", func(*lease.Task) bool { return true })
		}},
		"Timers": {store.Timer, func(r store.Reader) error {
			return records.Timers(r, store.TimerKey{}, func(store.TimerKey) bool { return true })
		}},
		"TimerLog": {store.TimerLog, func(r store.Reader) error { return records.TimerLog(r, func(uint64, []store.TimerKey) {}) }},
	}
)

// wantCorruptKey checks that err is a CorruptError of this key.
func wantCorruptKey(t *testing.T, name string, err error, ks store.Keyspace, key []byte) {
	t.Helper()
	if damage := new(store.CorruptError); !errors.As(err, &damage) || damage.Keyspace != ks || !bytes.Equal(damage.Key, key) {
		t.Errorf("%s: %v, want a CorruptError of %v under %x", name, err, ks, key)
	}
}

// A key without the form of its keyspace is an error. It must not end a list early, so that for
// example the tasks behind it are never run.
func TestScansRefuseMalformedKeys(t *testing.T) {
	sealed := map[store.Keyspace]record{}
	for _, rec := range sealedRecords(t) {
		sealed[rec.keyspace] = rec
	}
	for name, s := range allScans {
		key := append(store.AppendTaskKey(nil, id(2)), 1)
		switch s.keyspace {
		case store.Space, store.SigningKey, store.Token:
			key = []byte("acme")
		case store.Audit:
			key = []byte("acme\x00\xff")
		case store.Queue, store.Settings:
			key = []byte{0, 0, space}
		case store.Ready:
			key = append(store.AppendLinePrefix(nil, space, records.LineID(parkedTask.Line())), 255)
		case store.Parked:
			key = append(store.AppendParkedPrefix(nil, space, parkedKeyID, records.LineID(parkedTask.Line())), 255)
		case store.Run:
			key = append(store.AppendGroupPrefix(nil, space, store.OlderTasks), 255)
		case store.Mounted:
			key = append(store.AppendGroupPrefix(nil, space, records.HostID("run", "h")), 255)
		case store.Timer:
			key = []byte{byte(store.ServingClock), 255}
		}
		st := memstore.New()
		commit(t, st, func(b *store.Batch) {
			if rec, ok := sealed[s.keyspace]; ok {
				b.Put(s.keyspace, key, storetest.Seal(s.keyspace, key, rec.value[0], rec.value[store.SealSize:]))
				return
			}
			b.Put(s.keyspace, key, nil)
		})
		view(t, st, func(r store.Reader) error {
			wantCorruptKey(t, name, s.read(r), s.keyspace, key)
			return nil
		})
	}
}

// parkedKeyID is the number of concurrency key "k" in the keys of Parked. It is on disk, so it must
// never change.
const parkedKeyID = 0x8254c329a92850f6

// If a lease or an entry of an index is of a task that does not exist or cannot be read, that is an
// error.
func TestScansRefuseLostTasks(t *testing.T) {
	ready := *parkedTask
	ready.Parked = false
	held := ready
	held.Lease = &lease.Lease{Attempt: 1}
	for name, task := range map[string]*lease.Task{
		"WaitingLines": &ready, "NextReady": &ready, "ParkedLines": parkedTask, "Tasks of a run": &ready, "TasksBack of a run": &ready, "Mounted": &ready,
		"LeasedTasks": &held, "LeasedTasksOf": &held, "LeasedTasksBackOf": &held,
	} {
		s := allScans[name]
		var whole store.Batch
		records.Put(&whole, &lease.Change{New: task})
		lost, damaged := memstore.New(), memstore.New()
		var key []byte
		for i := range whole.Len() {
			if op := whole.At(i); op.Keyspace == s.keyspace {
				key = bytes.Clone(op.Key)
				commit(t, lost, func(b *store.Batch) { b.Put(s.keyspace, op.Key, op.Value) })
			}
		}
		spec := store.AppendTaskKey(nil, task.ID)
		commit(t, damaged, func(b *store.Batch) {
			b.Append(&whole)
			b.Put(store.Spec, spec, []byte("damaged"))
		})
		view(t, lost, func(r store.Reader) error {
			wantCorruptKey(t, name+" without the task", s.read(r), s.keyspace, key)
			return nil
		})
		view(t, damaged, func(r store.Reader) error {
			wantCorruptKey(t, name+" of a damaged task", s.read(r), store.Spec, spec)
			return nil
		})
	}
}

// failingReader is a store.Reader whose scans fail.
type failingReader struct{ store.Reader }

func (failingReader) Scan(store.Keyspace, []byte, []byte, func(key, value []byte) bool) error {
	return errStop
}

func (failingReader) ScanBack(store.Keyspace, []byte, []byte, func(key, value []byte) bool) error {
	return errStop
}

// An error of the store is returned. Without it, an unread list would look like an empty one.
func TestScansReturnErrorsOfTheStore(t *testing.T) {
	view(t, memstore.New(), func(r store.Reader) error {
		for name, s := range allScans {
			if err := s.read(failingReader{r}); !errors.Is(err, errStop) {
				t.Errorf("%s: %v, want the error of the store", name, err)
			}
		}
		if err := records.ForgetLedger(new(store.Batch), failingReader{r}, id(1), 1); !errors.Is(err, errStop) {
			t.Errorf("ForgetLedger: %v, want the error of the store", err)
		}
		return nil
	})
}
