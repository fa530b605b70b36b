package lease_test

import "github.com/lessor-dev/lessor/lease"

// existing returns the task that the idempotency key made, unless that is deleted; nil if there is
// none or the key is empty.
func (m *model) existing(key specKey) *modelTask {
	k, known := m.keys[key]
	if t := m.tasks[k.task]; known && key.key != "" && t != nil && !t.gone {
		return t
	}
	return nil
}

// refusalOf returns why a batch is refused, and the index of the first spec that is (T1, T6); "" if
// the batch is accepted.
func (m *model) refusalOf(c lease.Submit) (refusal string, spec int) {
	batch := map[string]lease.Digest{}
	for i, spec := range c.Specs {
		key := specKey{c.Space, spec.IdempotencyKey}
		digest, inBatch := batch[key.key]
		existing := m.existing(key)
		switch {
		case inBatch && digest != c.Digests[i]:
			return refusedExists, i
		case inBatch:
			continue
		case existing != nil && m.keys[key].digest != c.Digests[i]:
			return refusedExists, i
		case existing != nil:
			continue
		case spec.Deadline != 0 && spec.Deadline <= m.now.Wall:
			return refusedField, i
		}
		if key.key != "" {
			batch[key.key] = c.Digests[i]
		}
	}
	return "", 0
}
