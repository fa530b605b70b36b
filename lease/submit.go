package lease

// submit makes tasks, all or none (T1).
func (s *step) submit(c Submit) {
	seen := map[string]int{} // index of the spec that first used each idempotency key in this batch
	for i, spec := range c.Specs {
		if spec.IdempotencyKey != "" {
			done, err := s.existing(c, i, seen)
			if err != nil {
				s.refuseSpec(i, err)
				return
			}
			if done != nil {
				s.out.Submitted = append(s.out.Submitted, Submitted{Task: done})
				continue
			}
			seen[spec.IdempotencyKey] = i
		}
		if spec.Deadline != 0 && spec.Deadline <= s.now.Wall {
			s.refuseSpec(i, bad("deadline", "%s has passed", spec.Deadline.Time().Format(clockTime)))
			return
		}
		t := s.create(c, s.withPolicy(c.Space, spec))
		change := Change{New: t, Row: true}
		if spec.IdempotencyKey != "" {
			change.Key = c.Digests[i]
		}
		s.out.Changes = append(s.out.Changes, change)
		s.out.Submitted = append(s.out.Submitted, Submitted{Task: t, Created: true})
	}
}

func (s *step) refuseSpec(spec int, err error) {
	s.out = Step{Err: err, ErrSpec: spec}
}

// existing returns the task that was submitted before with the idempotency key of spec i, in this
// batch or earlier; nil if there is none. The error is an *ExistsError: that task has another spec.
func (s *step) existing(c Submit, i int, seen map[string]int) (*Task, error) {
	key := c.Specs[i].IdempotencyKey
	var task *Task
	var digest Digest
	var earlier TaskID
	if j, ok := seen[key]; ok {
		task, digest = s.out.Submitted[j].Task, c.Digests[j]
	} else if id, d, ok := s.view.Key(c.Space, key); ok {
		task, digest, earlier = s.view.Task(id), d, id
	}
	if task == nil {
		return nil, nil
	}
	if digest != c.Digests[i] {
		return nil, &ExistsError{
			Field: "idempotency_key", Key: Clip(key, 64), Task: earlier, Differs: s.differing(task, c.Specs[i]),
		}
	}
	return task, nil
}

// withPolicy returns a copy of the spec. In it, the policy of the queue and the defaults fill in
// the unset fields of the retry policy (T3).
func (s *step) withPolicy(space uint32, spec *Spec) *Spec {
	var queue RetryPolicy
	if settings := s.view.Queue(space, spec.Queue).Settings; settings != nil {
		queue = settings.Retry
	}
	filled := *spec
	filled.Retry = spec.Retry.withDefaults(queue)
	return &filled
}

func (s *step) create(c Submit, spec *Spec) *Task {
	t := &Task{
		ID:        TaskID{Space: c.Space, Seq: s.view.NextSeq(c.Space)},
		Tenant:    c.Tenant,
		Workspace: c.Workspace,
		Spec:      spec,
		Round:     1,
		CreatedAt: s.now.Wall,
		Deadline:  spec.Deadline,
	}
	if spec.RunAt > s.now.Wall {
		t.Rest, t.RunAt = Scheduled, spec.RunAt
		return t
	}
	t.Rest, t.Place, t.ReadyAt = Ready, t.ID.Seq, s.now.Serving
	return t
}
