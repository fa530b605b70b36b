package records

import (
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// recordCheck checks whether a record can be read: its key, its seal and all of its fields.
type recordCheck func(ks store.Keyspace, key, value []byte) error

var recordChecks = [store.NumKeyspaces]recordCheck{
	store.Meta:       checkMeta,
	store.Space:      sealedRecord(tenantKey, spaceFields),
	store.SigningKey: sealedRecord(tenantKey, signingKeyFields),
	store.Token:      sealedRecord(tenantKey, tokenFields),
	store.Audit:      sealedRecord(parsed(store.ParseAuditKey), auditFields),
	store.Queue:      sealedRecord(nameKey, queueFields),
	store.Settings:   sealedRecord(nameKey, settingsFields),
	// used by format 1 only; nobody reads it any more
	store.Line:        func(store.Keyspace, []byte, []byte) error { return nil },
	store.Spec:        checkSpec,
	store.Task:        sealedRecord(taskKey, taskFields),
	store.Lease:       sealedRecord(taskKey, leaseFields),
	store.Output:      sealedRecord(taskKey, resultFields),
	store.Failure:     sealedRecord(taskKey, failureFields),
	store.Feedback:    sealedRecord(taskKey, feedbackFields),
	store.Checkpoint:  checkCheckpoint,
	store.Ledger:      sealedRecord(attemptKey, committedFields),
	store.Discarded:   sealedRecord(attemptKey, resultFields),
	store.Idempotency: sealedRecord(nameKey, olderKeyFields),
	store.KeyLog:      sealedRecord(taskKey, loggedFields),
	store.KeySegment:  sealedRecord(parsed(store.ParseSegmentKey), segmentFields),
	store.Ready:       emptyValue(parsed(store.ParseReadyKey)),
	store.Parked:      emptyValue(parsed(store.ParseParkedKey)),
	store.Run:         emptyValue(groupKey),
	store.Mounted:     emptyValue(groupKey),
	store.Timer:       emptyValue(parsed(store.ParseTimerKey)),
	store.TimerLog:    sealedRecord(parsed(store.ParseTimerLogKey), loggedTimersFields),
}

// CheckRecord checks one record by itself. The error is a *store.CorruptError.
func CheckRecord(ks store.Keyspace, key, value []byte) error { return recordChecks[ks](ks, key, value) }

// keyCheck checks the form of a key.
type keyCheck func(ks store.Keyspace, key []byte) error

// sealedRecord returns the check of a sealed record with such a key and these fields.
func sealedRecord[T any](check keyCheck, fields func(*codec, *T)) recordCheck {
	return func(ks store.Keyspace, key, value []byte) error {
		if err := check(ks, key); err != nil {
			return err
		}
		return decode(ks, key, value, new(T), fields)
	}
}

// emptyValue returns the check of an index entry, whose value is empty.
func emptyValue(check keyCheck) recordCheck {
	return func(ks store.Keyspace, key, value []byte) error {
		if len(value) > 0 {
			return store.Corrupt(ks, key, "an index has a value")
		}
		return check(ks, key)
	}
}

// parsed returns the check of a form of keys that only one keyspace has.
func parsed[K any](parse func(key []byte) (K, error)) keyCheck {
	return func(_ store.Keyspace, key []byte) error {
		_, err := parse(key)
		return err
	}
}

func taskKey(ks store.Keyspace, key []byte) error {
	_, err := store.ParseTaskKey(ks, key)
	return err
}

// twoParts returns the check of a form of keys with two parts.
func twoParts[A, B any](parse func(ks store.Keyspace, key []byte) (A, B, error)) keyCheck {
	return func(ks store.Keyspace, key []byte) error {
		_, _, err := parse(ks, key)
		return err
	}
}

var (
	attemptKey = twoParts(store.ParseAttemptKey)
	groupKey   = twoParts(store.ParseGroupKey)
	nameKey    = twoParts(store.ParseNameKey)
	tenantKey  = twoParts(store.ParseTenantKey)
)

func checkSpec(ks store.Keyspace, key, value []byte) error {
	if err := taskKey(ks, key); err != nil {
		return err
	}
	return decode(ks, key, value, &lease.Task{Spec: new(lease.Spec)}, withoutPayload)
}

func checkCheckpoint(ks store.Keyspace, key, value []byte) error {
	if err := taskKey(ks, key); err != nil {
		return err
	}
	_, _, err := open(ks, key, value)
	return err
}

func checkMeta(ks store.Keyspace, key, value []byte) error {
	switch string(key) {
	case store.MetaIdentity:
		return decode(ks, key, value, new(Identity), identityFields)
	case store.MetaClock:
		return decode(ks, key, value, new(lease.Instant), clockFields)
	case store.MetaBackups:
		return decode(ks, key, value, new(Backups), backupsFields)
	case store.MetaPosition:
		return decode(ks, key, value, new(timedPosition), timedPositionFields)
	case store.MetaLineage:
		return decode(ks, key, value, new([]Position), lineageFields)
	case store.MetaFormat:
		_, _, err := store.Open(ks, key, value)
		return err
	}
	return store.Corrupt(ks, key, "nothing has this name")
}
