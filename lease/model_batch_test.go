package lease_test

// The model as a store: what a batch changed can be undone until the batch is committed, and a
// backup can be taken of the whole.

// touch must be called before the current batch changes a task. It keeps the task as it is, for
// undo, and continues with a copy.
func (m *model) touch(id string) {
	if _, done := m.oldTasks[id]; done {
		return
	}
	t := m.tasks[id]
	m.oldTasks[id] = t
	if t != nil {
		m.tasks[id] = t.copied()
	}
}

func (m *model) setKey(k specKey, v modelKey) {
	if _, done := m.oldKeys[k]; !done {
		m.oldKeys[k] = m.keys[k]
	}
	m.keys[k] = v
}

// committed is called when the batch is durable. It drops the old versions, so that undo no longer
// takes the batch back.
func (m *model) committed() {
	clear(m.oldTasks)
	clear(m.oldKeys)
	for _, q := range m.queues {
		q.committedCredit = q.credit
		q.committedAt = q.creditAt
	}
}

// undo takes back what the batch changed, as a crash before its commit does.
func (m *model) undo() {
	for id, t := range m.oldTasks {
		if t == nil {
			delete(m.tasks, id)
		} else {
			m.tasks[id] = t
		}
	}
	for k, v := range m.oldKeys {
		m.keys[k] = v
	}
	for _, q := range m.queues {
		q.credit, q.creditAt = q.committedCredit, q.committedAt
	}
	m.committed()
}

// copied returns a copy that can be changed without changing t. The two share their lists, which
// only grow, and the leases that have ended, which a batch does not change.
func (t *modelTask) copied() *modelTask {
	c := *t
	if t.live != nil {
		l := *t.live
		c.live = &l
	}
	return &c
}

// backup returns a copy that later steps do not change. Only the set of issued lease ids is shared:
// a restore does not take back what was issued.
func (m *model) backup() *model {
	saved := newModel(m.now, m.epoch)
	saved.issued = m.issued
	for k, v := range m.keys {
		saved.keys[k] = v
	}
	for k, v := range m.queues {
		c := *v
		saved.queues[k] = &c
	}
	for id, t := range m.tasks {
		c := t.copied()
		c.history, c.kept = clipped(t.history), clipped(t.kept)
		c.ended = nil
		for _, l := range t.ended { // copied, because forget removes their reports
			e := *l
			c.ended = append(c.ended, &e)
		}
		if c.live != nil {
			c.live.events = clipped(c.live.events)
		}
		saved.tasks[id] = c
	}
	return saved
}

// clipped returns the list without spare capacity: an append to the result does not write into
// memory that other copies share.
func clipped[T any](list []T) []T { return list[:len(list):len(list)] }
