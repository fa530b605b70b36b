package lease_test

// The model as a store: what a batch changed can be undone until it is committed, and all of it can be saved.

// touch keeps what a task is, before the batch changes it.
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

// committed makes the batch good.
func (m *model) committed() {
	clear(m.oldTasks)
	clear(m.oldKeys)
	for _, q := range m.queues {
		q.kept = q.credit
		q.keptAt = q.at
	}
}

// undo takes the batch back.
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
		q.credit, q.at = q.kept, q.keptAt
	}
	m.committed()
}

// copied returns a copy that can be changed. Lists only grow, and leases that have ended stay as they are, so these are shared.
func (t *modelTask) copied() *modelTask {
	c := *t
	if t.live != nil {
		l := *t.live
		c.live = &l
	}
	return &c
}

// backup returns a copy that later steps do not touch. What was issued is not rolled back by a restore, and is shared.
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
		for _, l := range t.ended { // their reports are forgotten one day
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

// clipped is a list to which may be appended without a look at its other copies.
func clipped[T any](list []T) []T { return list[:len(list):len(list)] }
