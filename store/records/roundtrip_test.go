package records_test

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// filler sets all fields of a value to random values.
type filler struct {
	rnd *rand.Rand
	// zeroPercent is how many percent of the values stay zero. With 0, every field is set, also in
	// nested structs: if a record does not store a field, the comparison after reading fails.
	zeroPercent int
}

func (f filler) fill(v reflect.Value) {
	if v.Kind() != reflect.Struct && f.rnd.IntN(100) < f.zeroPercent {
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		n := int64(1+f.rnd.Uint64N(1<<f.rnd.IntN(63))) << (64 - v.Type().Bits()) >> (64 - v.Type().Bits())
		v.SetInt(max(n, 1) * int64(1-2*f.rnd.IntN(2)))
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(max(1, f.rnd.Uint64()>>f.rnd.IntN(64)<<(64-v.Type().Bits())>>(64-v.Type().Bits())))
	case reflect.Float64:
		v.SetFloat(f.rnd.NormFloat64())
	case reflect.String:
		letters := []rune("abc zß\n\u2028\U0001F600\"\\")
		text := make([]rune, 1+f.rnd.IntN(20))
		for i := range text {
			text[i] = letters[f.rnd.IntN(len(letters))]
		}
		v.SetString(string(text))
	default:
		f.fillInside(v)
	}
}

func (f filler) fillInside(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+f.rnd.IntN(3), 3))
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 1 + f.rnd.IntN(3) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key)
			f.fill(value)
			v.SetMapIndex(key, value)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	default:
		panic("no random " + v.Type().String() + " known")
	}
}

// random returns a random T.
func random[T any](f filler) T {
	var x T
	f.fill(reflect.ValueOf(&x).Elem())
	return x
}

func randomTask(f filler) lease.Task {
	t := random[lease.Task](f)
	t.CheckpointBits %= 32
	return t
}

// forRandomValues runs fn many times, first with a filler that sets every field, then with one that
// leaves half of them zero.
func forRandomValues(t *testing.T, fn func(t *testing.T, f filler)) {
	for _, zero := range []int{0, 50} {
		seed := rand.Uint64()
		f := filler{rand.New(rand.NewPCG(seed, 0)), zero}
		for range 200 {
			if fn(t, f); t.Failed() {
				t.Fatalf("seed %d, %d %% zero", seed, zero)
			}
		}
	}
}

// Every field of a new task, and of the records that are stored beside it, is read back as it was
// put.
func TestChangeRoundTrip(t *testing.T) {
	forRandomValues(t, func(t *testing.T, f filler) {
		want := random[lease.Change](f)
		want.New = new(randomTask(f))
		want.New.Spec = new(random[lease.Spec](f))
		want.New.Spec.Size = len(want.New.Spec.Payload)
		want.Old = nil
		for i := range want.Ledger {
			want.Ledger[i].Attempt = uint32(1 + i)
		}
		for i := range want.Kept {
			want.Kept[i] = lease.Kept{Attempt: uint32(1 + i), Result: new(random[lease.Result](f))}
		}
		want.Dropped = nil
		s := memstore.New()
		commit(t, s, func(b *store.Batch) { records.Put(b, &want) })

		// These fields are for the engine only and are not stored. A new field of Change must
		// either be reset here, or be read by readChange.
		want.Row, want.ForgetAt, want.Lost, want.LostCause, want.CancelAsked = false, 0, nil, 0, false
		if l := want.New.Lease; l != nil {
			l.ID = "" // the store does not hold it
		}
		if want.New.Spec.IdempotencyKey == "" {
			want.Key = lease.Digest{}
		}
		if diff := cmp.Diff(want, readChange(t, s, &want)); diff != "" {
			t.Errorf("-written +read:\n%s", diff)
		}
	})
}

// The record of a changed task replaces all fields of the state in its spec: a field that is zero
// now must not be read with its first value.
func TestChangedTaskRoundTrip(t *testing.T) {
	forRandomValues(t, func(t *testing.T, f filler) {
		first, now := randomTask(f), randomTask(f)
		first.Spec = new(random[lease.Spec](f))
		now.ID, now.Tenant, now.Workspace, now.Spec = first.ID, first.Tenant, first.Workspace, first.Spec
		s := memstore.New()
		commit(t, s, func(b *store.Batch) { records.Put(b, &lease.Change{New: &first}) })
		commit(t, s, func(b *store.Batch) { records.Put(b, &lease.Change{Old: &first, New: &now, Row: true}) })
		if l := now.Lease; l != nil {
			l.ID = "" // the store does not hold it
		}
		view(t, s, func(r store.Reader) error {
			got, err := records.Task(r, first.ID)
			if err == nil {
				got.Spec = now.Spec // TestChangeRoundTrip checks the spec
			}
			if diff := cmp.Diff(&now, got); diff != "" {
				t.Errorf("-written +read:\n%s", diff)
			}
			return err
		})
	})
}

// readChange reads all that is stored of a new task into a Change. It reads the ledger and the kept
// results of the attempts that like has.
func readChange(t *testing.T, s store.Store, like *lease.Change) (c lease.Change) {
	t.Helper()
	id := like.New.ID
	view(t, s, func(r store.Reader) (err error) {
		defer func() {
			if err != nil {
				t.Error(err)
			}
		}()
		if c.New, err = records.Task(r, id); err != nil {
			return err
		}
		if c.New.Spec.Payload != nil {
			t.Error("records.Task read the payload, want none")
		}
		if c.New.Spec.Payload, err = records.Payload(r, id); err != nil {
			return err
		}
		if c.New.Spec.Payload == nil {
			t.Error("records.Payload of an empty payload is nil, which means that there is no task")
		}
		if len(like.New.Spec.Payload) == 0 {
			c.New.Spec.Payload = like.New.Spec.Payload
		}
		for i := range like.Ledger {
			done, err := records.Committed(r, id, like.Ledger[i].Attempt)
			if err != nil {
				return err
			}
			c.Ledger = append(c.Ledger, *done)
		}
		for i := range like.Kept {
			kept, err := records.Discarded(r, id, like.Kept[i].Attempt)
			if err != nil {
				return err
			}
			c.Kept = append(c.Kept, lease.Kept{Attempt: like.Kept[i].Attempt, Result: kept})
		}
		if c.Result, err = records.Result(r, id); err != nil {
			return err
		}
		if c.Failure, err = records.Failure(r, id); err != nil {
			return err
		}
		if c.Checkpoint, err = records.Checkpoint(r, id); err != nil {
			return err
		}
		hash := store.HashOfKey(id.Space, like.New.Spec.IdempotencyKey)
		return records.KeyLog(r, lease.TaskID{}, func(k records.KeyEntry) bool {
			if k.Task != id {
				return true
			}
			if c.Key = k.Digest; k.Hash != hash {
				t.Errorf("task %v has the hash %x in the log of keys, want %x", id, k.Hash, hash)
			}
			return true
		})
	})
	return c
}

// A record that does not exist is read as nil, without an error.
func TestMissingRecordsAreReadAsNil(t *testing.T) {
	view(t, memstore.New(), func(r store.Reader) error {
		for what, read := range map[string]func() (any, error){
			"task":       func() (any, error) { return records.Task(r, id(1)) },
			"payload":    func() (any, error) { return records.Payload(r, id(1)) },
			"result":     func() (any, error) { return records.Result(r, id(1)) },
			"failure":    func() (any, error) { return records.Failure(r, id(1)) },
			"checkpoint": func() (any, error) { return records.Checkpoint(r, id(1)) },
			"feedback":   func() (any, error) { return records.Feedback(r, id(1)) },
			"committed":  func() (any, error) { return records.Committed(r, id(1), 1) },
		} {
			if got, err := read(); !reflect.ValueOf(got).IsNil() || err != nil {
				t.Errorf("%s = %v, error %v; want nil and no error", what, got, err)
			}
		}
		if _, _, found, err := records.OlderTaskByKey(r, space, "key"); found || err != nil {
			t.Errorf("OlderTaskByKey: found is %v, error %v; want false and no error", found, err)
		}
		if k, err := records.InSegment(r, 1, store.HashOfKey(space, "key")); k != nil || err != nil {
			t.Errorf("InSegment = %v, error %v; want nil and no error", k, err)
		}
		if has, err := records.HasKey(r, id(1), store.HashOfKey(space, "")); has || err != nil {
			t.Errorf("HasKey = %v, error %v; want false and no error", has, err)
		}
		if _, found, err := records.ReadIdentity(r); found || err != nil {
			t.Errorf("ReadIdentity: found is %v, error %v; want false and no error", found, err)
		}
		if now, err := records.ServingClock(r); now != 0 || err != nil {
			t.Errorf("ServingClock = %v, error %v; want 0 and no error", now, err)
		}
		return nil
	})
}

// Feedback is read back with all fields.
func TestFeedbackRoundTrip(t *testing.T) {
	forRandomValues(t, func(t *testing.T, f filler) {
		said := random[lease.Feedback](f)
		s := memstore.New()
		commit(t, s, func(b *store.Batch) { records.PutFeedback(b, id(1), &said) })
		view(t, s, func(r store.Reader) error {
			got, err := records.Feedback(r, id(1))
			if err != nil {
				return err
			}
			wantEqual(t, nil, "feedback", said, *got)
			return nil
		})
	})
}

// The identity of the coordinator, the serving clock, the times of backups, the position and the
// lineage are read back as they were put.
func TestMetaRoundTrip(t *testing.T) {
	forRandomValues(t, func(t *testing.T, f filler) {
		identity, now, backups := random[records.Identity](f), random[lease.Instant](f), random[records.Backups](f)
		identity.KnownFrom = min(max(identity.KnownFrom, 1), identity.Epoch)
		position, at, lineage := random[records.Position](f), random[lease.Wall](f), random[[]records.Position](f)
		s := memstore.New()
		commit(t, s, func(b *store.Batch) {
			records.PutIdentity(b, identity)
			records.PutClock(b, now)
			records.PutBackups(b, backups)
			records.PutPosition(b, position, at)
			records.PutLineage(b, lineage)
		})
		view(t, s, func(r store.Reader) error {
			got, found, err := records.ReadIdentity(r)
			if diff := cmp.Diff(identity, got); diff != "" || !found || err != nil {
				t.Errorf("identity: found is %v, error %v, -written +read:\n%s", found, err, diff)
			}
			if got, err := records.ServingClock(r); got != now || err != nil {
				t.Errorf("clock = %v, error %v; want %v", got, err, now)
			}
			if got, err := records.LastBackups(r); got != backups || err != nil {
				t.Errorf("times of backups = %v, error %v; want %v", got, err, backups)
			}
			if got, when, err := records.PositionOf(r); got != position || when != at || err != nil {
				t.Errorf("position = %v at %v, error %v; want %v at %v", got, when, err, position, at)
			}
			if got, err := records.Lineage(r); !slices.Equal(got, lineage) || err != nil {
				t.Errorf("lineage = %v, error %v; want %v", got, err, lineage)
			}
			if err := r.Scan(store.Meta, nil, nil, func(key, value []byte) bool {
				if err := records.CheckRecord(store.Meta, key, value); err != nil {
					t.Error(err)
				}
				return true
			}); err != nil {
				t.Error(err)
			}
			return nil
		})
	})
}

// Spaces and queues are read back with all fields, in the order of their keys.
func TestSpacesAndQueuesRoundTrip(t *testing.T) {
	forRandomValues(t, func(t *testing.T, f filler) {
		spaces, queues := random[[3]records.Space](f), random[[3]records.Queue](f)
		for i := range 3 { // keys that differ, and sort in the order of the list
			spaces[i].Tenant = string(rune('a'+i)) + spaces[i].Tenant
			queues[i].Space = uint32(i)
		}
		s := memstore.New()
		commit(t, s, func(b *store.Batch) {
			for i := range 3 {
				records.PutSpace(b, spaces[i])
				records.PutQueue(b, queues[i])
			}
		})
		view(t, s, func(r store.Reader) error {
			got, err := collect(r, records.Spaces)
			if diff := cmp.Diff(spaces[:], got); diff != "" || err != nil {
				t.Errorf("spaces: error %v, -written +read:\n%s", err, diff)
			}
			gotQueues, err := collect(r, records.Queues)
			if diff := cmp.Diff(queues[:], gotQueues); diff != "" || err != nil {
				t.Errorf("queues: error %v, -written +read:\n%s", err, diff)
			}
			return nil
		})
	})
}

// The settings of queues are read back with all fields. A queue that is not paused has no time of a
// pause.
func TestSettingsRoundTrip(t *testing.T) {
	forRandomValues(t, func(t *testing.T, f filler) {
		want := random[lease.Settings](f)
		if !want.Paused || want.PausedAt == 1 { // 1 ns after 1970 is as good as no time
			want.PausedAt = 0
		}
		s := memstore.New()
		commit(t, s, func(b *store.Batch) { records.PutSettings(b, space, "mail", &want) })
		view(t, s, func(r store.Reader) error {
			queues := 0
			err := records.Settings(r, func(in uint32, queue string, got *lease.Settings) error {
				queues++
				if diff := cmp.Diff(&want, got); diff != "" || in != space || queue != "mail" {
					t.Errorf("the settings of queue %s in space %d, want mail in %d; -written +read:\n%s", queue, in, space, diff)
				}
				return nil
			})
			if queues != 1 {
				t.Errorf("Settings visited %d queues, want 1", queues)
			}
			return err
		})
	})
}

// V15: if it is not known how many epochs a store has all grants of, it is the present one only.
// Its record is that of all stores before this was kept.
func TestIdentityThatKnowsNoEarlierEpochHasTheOlderRecord(t *testing.T) {
	t.Attr("rules", "V15")
	size := func(knownFrom, want uint32) (n int) {
		s := memstore.New()
		commit(t, s, func(b *store.Batch) {
			records.PutIdentity(b, records.Identity{Epoch: 5, Key: []byte("secret"), KnownFrom: knownFrom})
		})
		view(t, s, func(r store.Reader) error {
			n = len(r.Get(store.Meta, []byte(store.MetaIdentity)))
			got, _, err := records.ReadIdentity(r)
			if got.KnownFrom != want {
				t.Errorf("KnownFrom is %d, want %d for %d", got.KnownFrom, want, knownFrom)
			}
			return err
		})
		return n
	}
	older := store.SealSize + 1 + 1 + len("secret") // the epoch, and the key with its length
	if n := size(5, 5); n != older || size(0, 5) != older {
		t.Errorf("the record has %d bytes, want %d", n, older)
	}
	if n := size(4, 4); n != older+1 {
		t.Errorf("the record of a store that knows an earlier epoch has %d bytes, want %d", n, older+1)
	}
}

// X1: a token of which nobody knows under which credential it was issued has the record that all
// tokens had before this was kept, which ends before it.
func TestTokenWithoutIssuerHasTheOlderRecord(t *testing.T) {
	t.Attr("rules", "X1")
	older := records.Token{
		Tenant: "acme", ID: "k", Role: "worker", Subject: "w", Key: "y", IssuedAt: 1, IssuedBy: "b",
		ExpiresAt: 2, RevokedAt: 3, RevokedBy: "r",
	}
	newer := older
	newer.ID, newer.IssuerID = "l", "i"
	s := memstore.New()
	commit(t, s, func(b *store.Batch) {
		records.PutToken(b, older)
		records.PutToken(b, newer)
	})
	view(t, s, func(r store.Reader) error {
		size := func(of records.Token) int {
			return len(r.Get(store.Token, store.AppendTenantKey(nil, of.Tenant, of.ID)))
		}
		if size(newer) != size(older)+2 {
			t.Errorf("the records have %d and %d bytes, want 2 more for the issuer, and none without", size(older), size(newer))
		}
		got, err := collect(r, records.Tokens)
		if diff := cmp.Diff([]records.Token{older, newer}, got); diff != "" || err != nil {
			t.Errorf("tokens: error %v, -written +read:\n%s", err, diff)
		}
		return nil
	})
}

// X1: signing keys and tokens are read back with all fields, in the order of their tenants; those
// that were dropped are not.
func TestCredentialsRoundTrip(t *testing.T) {
	t.Attr("rules", "X1")
	forRandomValues(t, func(t *testing.T, f filler) {
		keys, tokens := random[[3]records.SigningKey](f), random[[3]records.Token](f)
		for i := range 3 {
			keys[i].Tenant = string(rune('a'+i)) + keys[i].Tenant
			tokens[i].Tenant = keys[i].Tenant
		}
		s := memstore.New()
		commit(t, s, func(b *store.Batch) {
			for i := range 3 {
				records.PutSigningKey(b, keys[i])
				records.PutToken(b, tokens[i])
			}
			records.DropSigningKey(b, keys[1])
			records.DropToken(b, tokens[2])
		})
		view(t, s, func(r store.Reader) error {
			got, err := collect(r, records.SigningKeys)
			if diff := cmp.Diff([]records.SigningKey{keys[0], keys[2]}, got); diff != "" || err != nil {
				t.Errorf("keys: error %v, -written +read:\n%s", err, diff)
			}
			gotTokens, err := collect(r, records.Tokens)
			if diff := cmp.Diff(tokens[:2], gotTokens); diff != "" || err != nil {
				t.Errorf("tokens: error %v, -written +read:\n%s", err, diff)
			}
			return nil
		})
	})
}

// collect returns all that a scan visits.
func collect[T any](r store.Reader, scan func(store.Reader, func(T) error) error) (all []T, err error) {
	err = scan(r, func(x T) error {
		all = append(all, x)
		return nil
	})
	return all, err
}

// A scan stops when its function returns an error, and returns that error unchanged. There are at
// least two records of each kind, so that a scan that does not stop calls the function again.
func TestScansStopAtAnError(t *testing.T) {
	w := fullWorld(t)
	w.step(lease.Grant{Task: id(2), Worker: "w"})
	w.submit(lease.Spec{Queue: "mail", Type: "send"})
	w.submit(lease.Spec{Queue: "other"})
	for range 3 { // under each of two concurrency keys one task is leased and two are parked
		w.submit(lease.Spec{Queue: "other", ConcurrencyKey: "a"})
		w.submit(lease.Spec{Queue: "other", ConcurrencyKey: "b"})
	}
	for seq := w.lastSeq - 5; seq <= w.lastSeq; seq++ {
		w.step(lease.Grant{Task: id(seq), Worker: "w"})
	}
	records.PutSettings(&w.batch, space, "other", &lease.Settings{})
	records.PutQueue(&w.batch, records.Queue{Space: space, Name: "other"})
	records.PutSigningKey(&w.batch, records.SigningKey{Tenant: "other"})
	records.PutToken(&w.batch, records.Token{Tenant: "other"})
	records.PutSpace(&w.batch, records.Space{Tenant: "other"})
	w.flush(t)
	calls := 0
	fail := func() error { calls++; return errStop }
	for what, scan := range map[string]func(store.Reader) error{
		"Spaces": func(r store.Reader) error { return records.Spaces(r, func(records.Space) error { return fail() }) },
		"Queues": func(r store.Reader) error { return records.Queues(r, func(records.Queue) error { return fail() }) },
		"SigningKeys": func(r store.Reader) error {
			return records.SigningKeys(r, func(records.SigningKey) error { return fail() })
		},
		"Tokens": func(r store.Reader) error { return records.Tokens(r, func(records.Token) error { return fail() }) },
		"Leases": func(r store.Reader) error { return records.LeasedTasks(r, func(*lease.Task) error { return fail() }) },
		"WaitingLines": func(r store.Reader) error {
			return records.WaitingLines(r, func(store.ReadyKey, lease.Line) error { return fail() })
		},
		"ParkedLines": func(r store.Reader) error {
			return records.ParkedLines(r, func(uint32, string, lease.Line) error { return fail() })
		},
		"Settings": func(r store.Reader) error {
			return records.Settings(r, func(uint32, string, *lease.Settings) error { return fail() })
		},
	} {
		calls = 0
		if err := w.store.View(scan); err != errStop || calls != 1 { //nolint:errorlint // returned unchanged
			t.Errorf("%s = %v after %d calls, want the error of its function after 1 call", what, err, calls)
		}
	}
}

// Tasks and LeasedTasksOf return the tasks of one space whose sequence is greater than that in
// their argument, in order; those that go back return them in reverse order.
func TestTasksContinuesAfterASequence(t *testing.T) {
	s := memstore.New()
	commit(t, s, func(b *store.Batch) {
		for _, at := range []lease.TaskID{{Space: 6, Seq: 9}, id(1), id(256), id(3), id(lease.MaxSeq), {Space: 8, Seq: 1}} {
			records.Put(b, &lease.Change{
				New: &lease.Task{ID: at, Spec: &lease.Spec{}, Lease: &lease.Lease{Attempt: 1}},
				Row: true,
			})
		}
	})
	for _, tt := range []struct {
		after uint64
		want  []uint64
	}{
		{0, []uint64{1, 3, 256, lease.MaxSeq}},
		{1, []uint64{3, 256, lease.MaxSeq}},
		{2, []uint64{3, 256, lease.MaxSeq}},
		{lease.MaxSeq, nil},
	} {
		view(t, s, func(r store.Reader) error {
			var got, held []uint64
			err := records.Tasks(r, space, "", tt.after, func(t *lease.Task) bool { got = append(got, t.ID.Seq); return true })
			err2 := records.LeasedTasksOf(r, space, tt.after,
				func(t *lease.Task) bool { held = append(held, t.ID.Seq); return true })
			if !slices.Equal(got, tt.want) || !slices.Equal(held, tt.want) {
				t.Errorf("Tasks after sequence %d = %v, LeasedTasksOf %v, want %v", tt.after, got, held, tt.want)
			}
			return errors.Join(err, err2)
		})
	}
	view(t, s, func(r store.Reader) error {
		seqs := []uint64{2, 3, 4, 256, 257, lease.MaxSeq, lease.MaxSeq + 1}
		wantReverse(t, "the space", seqs, func(after uint64, fn func(*lease.Task) bool) error {
			return records.Tasks(r, space, "", after, fn)
		}, func(before uint64, fn func(*lease.Task) bool) error {
			return records.TasksBack(r, space, "", before, fn)
		})
		wantReverse(t, "the leased tasks", seqs, func(after uint64, fn func(*lease.Task) bool) error {
			return records.LeasedTasksOf(r, space, after, fn)
		}, func(before uint64, fn func(*lease.Task) bool) error {
			return records.LeasedTasksBackOf(r, space, before, fn)
		})
		return nil
	})
}
