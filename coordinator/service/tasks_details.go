package service

import (
	"github.com/lessor-dev/lessor/coordinator/convert"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// addDetails adds the fields of a task that lists leave out.
func addDetails(m *lessorv1.Task, r store.Reader, t *lease.Task) error {
	var err error
	if m.Spec.Payload, err = records.Payload(r, t.ID); err != nil {
		return err
	}
	if m.Checkpoint, err = records.Checkpoint(r, t.ID); err != nil {
		return err
	}
	result, err := records.Result(r, t.ID)
	if err != nil {
		return err
	}
	if result != nil {
		m.Output, m.Artifacts, m.Metrics = result.Output, convert.ArtifactsProto(result.Artifacts), result.Metrics
	}
	for _, d := range m.GetDiscarded() {
		kept, err := records.Discarded(r, t.ID, d.GetAttempt())
		if err != nil {
			return err
		}
		if kept != nil {
			d.Output, d.Artifacts = kept.Output, convert.ArtifactsProto(kept.Artifacts)
		}
	}
	m.History, m.HistoryDropped = convert.HistoryProto(t)
	if m.Middlewares, err = middlewares(r, t); err != nil {
		return err
	}
	if err := addLastFeedback(m, r, t); err != nil {
		return err
	}
	return addFailure(m, r, t)
}

// addLastFeedback adds the progress and output that the store kept when the last attempt ended.
func addLastFeedback(m *lessorv1.Task, r store.Reader, t *lease.Task) error {
	said, err := records.Feedback(r, t.ID)
	if err == nil {
		addFeedback(m, said)
	}
	return err
}

// addError adds the error of the last failed attempt.
func addError(m *lessorv1.Task, r store.Reader, t *lease.Task) error {
	f, err := lastFailure(r, t)
	if f != nil {
		m.Error = convert.ErrorProto(f)
	}
	return err
}

// addFailure adds all fields of the last Fail. If the task is COMPLETED, m keeps the metrics of the
// result instead of those of the Fail.
func addFailure(m *lessorv1.Task, r store.Reader, t *lease.Task) error {
	f, err := lastFailure(r, t)
	if f == nil {
		return err
	}
	m.Error, m.CancelledDuringPhase, m.PartialProgress = convert.ErrorProto(f), f.Phase, f.Partial
	if t.State() != lease.Completed {
		m.Metrics = f.Metrics
	}
	return nil
}

func lastFailure(r store.Reader, t *lease.Task) (*lease.Failure, error) {
	if !t.HasFailure() {
		return nil, nil
	}
	return records.Failure(r, t.ID)
}

// addLiveFeedback replaces the progress and output of an earlier attempt by those of the running
// one, if there is one.
func (s *taskService) addLiveFeedback(m *lessorv1.Task, id lease.TaskID) {
	if m.GetLease() != nil {
		addFeedback(m, s.Engine.LiveFeedback(id))
	}
}

// addFeedback adds progress and output to a task; a nil f adds nothing.
func addFeedback(m *lessorv1.Task, f *lease.Feedback) {
	if f != nil {
		m.Progress, m.Feedback = convert.ProgressProto(f), convert.ChunksProto(f.Chunks)
	}
}
