package records

import (
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// form checks whether a record of one keyspace can be read: its key, its seal and all of its fields.
type form func(key, value []byte) error

var forms = [store.NumKeyspaces]form{
	store.Meta:        metaForm,
	store.Space:       sealed(tenantKey(store.Space), spaceFields),
	store.SigningKey:  sealed(tenantKey(store.SigningKey), signingKeyFields),
	store.Token:       sealed(tenantKey(store.Token), tokenFields),
	store.Audit:       sealed(auditKey, auditFields),
	store.Queue:       sealed(nameKey(store.Queue), queueFields),
	store.Settings:    sealed(nameKey(store.Settings), settingsFields),
	store.Line:        func([]byte, []byte) error { return nil }, // used by format 1 only; nobody reads it any more
	store.Spec:        specForm,
	store.Task:        sealed(taskKey(store.Task), taskFields),
	store.Lease:       sealed(taskKey(store.Lease), leaseFields),
	store.Output:      sealed(taskKey(store.Output), resultFields),
	store.Failure:     sealed(taskKey(store.Failure), failureFields),
	store.Feedback:    sealed(taskKey(store.Feedback), feedbackFields),
	store.Checkpoint:  checkpointForm,
	store.Ledger:      sealed(attemptKey(store.Ledger), committedFields),
	store.Discarded:   sealed(attemptKey(store.Discarded), resultFields),
	store.Idempotency: sealed(nameKey(store.Idempotency), keyFields),
	store.Ready:       bare(store.Ready, func(key []byte) error { _, err := store.ParseReadyKey(key); return err }),
	store.Parked:      bare(store.Parked, func(key []byte) error { _, err := store.ParseParkedKey(key); return err }),
	store.Mounted:     bare(store.Mounted, func(key []byte) error { _, _, err := store.ParseMountedKey(key); return err }),
	store.Timer:       bare(store.Timer, func(key []byte) error { _, err := store.ParseTimerKey(key); return err }),
}

// Readable checks one record by itself. The error is a *store.CorruptError.
func Readable(ks store.Keyspace, key, value []byte) error { return forms[ks](key, value) }

// keyOf checks the form of a key, and returns the keyspace of the key.
type keyOf func(key []byte) (store.Keyspace, error)

// sealed is the form of a sealed record with these fields.
func sealed[T any](in keyOf, fields func(*codec, *T)) form {
	return func(key, value []byte) error {
		ks, err := in(key)
		if err != nil {
			return err
		}
		return decode(ks, key, value, new(T), fields)
	}
}

// bare is the form of an index, whose values are empty.
func bare(ks store.Keyspace, parse func(key []byte) error) form {
	return func(key, value []byte) error {
		if len(value) > 0 {
			return corrupt(ks, key, "an index has a value")
		}
		return parse(key)
	}
}

func taskKey(ks store.Keyspace) keyOf {
	return func(key []byte) (store.Keyspace, error) { _, err := store.ParseTaskKey(ks, key); return ks, err }
}

func attemptKey(ks store.Keyspace) keyOf {
	return func(key []byte) (store.Keyspace, error) { _, _, err := store.ParseAttemptKey(ks, key); return ks, err }
}

func nameKey(ks store.Keyspace) keyOf {
	return func(key []byte) (store.Keyspace, error) { _, _, err := store.ParseNameKey(ks, key); return ks, err }
}

func tenantKey(ks store.Keyspace) keyOf {
	return func(key []byte) (store.Keyspace, error) { _, _, err := store.ParseTenantKey(ks, key); return ks, err }
}

func auditKey(key []byte) (store.Keyspace, error) {
	_, err := store.ParseAuditKey(key)
	return store.Audit, err
}

func specForm(key, value []byte) error {
	if _, err := store.ParseTaskKey(store.Spec, key); err != nil {
		return err
	}
	return decode(store.Spec, key, value, &lease.Task{Spec: new(lease.Spec)}, withoutPayload)
}

func checkpointForm(key, value []byte) error {
	if _, err := store.ParseTaskKey(store.Checkpoint, key); err != nil {
		return err
	}
	_, _, err := open(store.Checkpoint, key, value)
	return err
}

func metaForm(key, value []byte) error {
	switch string(key) {
	case store.MetaIdentity:
		return decode(store.Meta, key, value, new(Identity), identityFields)
	case store.MetaClock:
		return decode(store.Meta, key, value, new(lease.Instant), clockFields)
	case store.MetaFormat:
		_, _, err := store.Open(store.Meta, key, value)
		return err
	}
	return corrupt(store.Meta, key, "nothing has this name")
}
