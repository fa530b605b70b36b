package records

import (
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// recordCheck checks whether a record of one keyspace can be read: its key, its seal and all of its fields.
type recordCheck func(key, value []byte) error

var recordChecks = [store.NumKeyspaces]recordCheck{
	store.Meta:        checkMeta,
	store.Space:       sealedRecord(tenantKey(store.Space), spaceFields),
	store.SigningKey:  sealedRecord(tenantKey(store.SigningKey), signingKeyFields),
	store.Token:       sealedRecord(tenantKey(store.Token), tokenFields),
	store.Audit:       sealedRecord(auditKey, auditFields),
	store.Queue:       sealedRecord(nameKey(store.Queue), queueFields),
	store.Settings:    sealedRecord(nameKey(store.Settings), settingsFields),
	store.Line:        func([]byte, []byte) error { return nil }, // used by format 1 only; nobody reads it any more
	store.Spec:        checkSpec,
	store.Task:        sealedRecord(taskKey(store.Task), taskFields),
	store.Lease:       sealedRecord(taskKey(store.Lease), leaseFields),
	store.Output:      sealedRecord(taskKey(store.Output), resultFields),
	store.Failure:     sealedRecord(taskKey(store.Failure), failureFields),
	store.Feedback:    sealedRecord(taskKey(store.Feedback), feedbackFields),
	store.Checkpoint:  checkCheckpoint,
	store.Ledger:      sealedRecord(attemptKey(store.Ledger), committedFields),
	store.Discarded:   sealedRecord(attemptKey(store.Discarded), resultFields),
	store.Idempotency: sealedRecord(nameKey(store.Idempotency), idempotencyFields),
	store.Ready:       emptyValue(store.Ready, func(key []byte) error { _, err := store.ParseReadyKey(key); return err }),
	store.Parked:      emptyValue(store.Parked, func(key []byte) error { _, err := store.ParseParkedKey(key); return err }),
	store.Run:         emptyValue(store.Run, groupKey(store.Run)),
	store.Mounted:     emptyValue(store.Mounted, groupKey(store.Mounted)),
	store.Timer:       emptyValue(store.Timer, func(key []byte) error { _, err := store.ParseTimerKey(key); return err }),
}

// CheckRecord checks one record by itself. The error is a *store.CorruptError.
func CheckRecord(ks store.Keyspace, key, value []byte) error { return recordChecks[ks](key, value) }

// keyCheck checks the form of a key, and returns the keyspace of the key.
type keyCheck func(key []byte) (store.Keyspace, error)

// sealedRecord returns the check of a sealed record with these fields.
func sealedRecord[T any](in keyCheck, fields func(*codec, *T)) recordCheck {
	return func(key, value []byte) error {
		ks, err := in(key)
		if err != nil {
			return err
		}
		return decode(ks, key, value, new(T), fields)
	}
}

// emptyValue returns the check of an index entry, whose value is empty.
func emptyValue(ks store.Keyspace, parse func(key []byte) error) recordCheck {
	return func(key, value []byte) error {
		if len(value) > 0 {
			return corrupt(ks, key, "an index has a value")
		}
		return parse(key)
	}
}

func groupKey(ks store.Keyspace) func(key []byte) error {
	return func(key []byte) error { _, _, err := store.ParseGroupKey(ks, key); return err }
}

func taskKey(ks store.Keyspace) keyCheck {
	return func(key []byte) (store.Keyspace, error) { _, err := store.ParseTaskKey(ks, key); return ks, err }
}

func attemptKey(ks store.Keyspace) keyCheck {
	return func(key []byte) (store.Keyspace, error) { _, _, err := store.ParseAttemptKey(ks, key); return ks, err }
}

func nameKey(ks store.Keyspace) keyCheck {
	return func(key []byte) (store.Keyspace, error) { _, _, err := store.ParseNameKey(ks, key); return ks, err }
}

func tenantKey(ks store.Keyspace) keyCheck {
	return func(key []byte) (store.Keyspace, error) { _, _, err := store.ParseTenantKey(ks, key); return ks, err }
}

func auditKey(key []byte) (store.Keyspace, error) {
	_, err := store.ParseAuditKey(key)
	return store.Audit, err
}

func checkSpec(key, value []byte) error {
	if _, err := store.ParseTaskKey(store.Spec, key); err != nil {
		return err
	}
	return decode(store.Spec, key, value, &lease.Task{Spec: new(lease.Spec)}, withoutPayload)
}

func checkCheckpoint(key, value []byte) error {
	if _, err := store.ParseTaskKey(store.Checkpoint, key); err != nil {
		return err
	}
	_, _, err := open(store.Checkpoint, key, value)
	return err
}

func checkMeta(key, value []byte) error {
	switch string(key) {
	case store.MetaIdentity:
		return decode(store.Meta, key, value, new(Identity), identityFields)
	case store.MetaClock:
		return decode(store.Meta, key, value, new(lease.Instant), clockFields)
	case store.MetaBackups:
		return decode(store.Meta, key, value, new(Backups), backupsFields)
	case store.MetaFormat:
		_, _, err := store.Open(store.Meta, key, value)
		return err
	}
	return corrupt(store.Meta, key, "nothing has this name")
}
