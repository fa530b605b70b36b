package records

import (
	"bytes"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

func resultFields(c *codec, r *lease.Result) {
	c.bytes(&r.Output)
	list(c, &r.Artifacts, artifactFields)
	table(c, &r.Metrics, (*codec).float)
}

func artifactFields(c *codec, a *lease.Artifact) {
	c.str(&a.ResourceID)
	c.str(&a.WorkerID)
	c.str(&a.Type)
	num(c, &a.SizeBytes)
	num(c, &a.ExpiresAt)
	c.bool(&a.Inline)
	table(c, &a.Metadata, (*codec).str)
}

func failureFields(c *codec, f *lease.Failure) {
	num(c, &f.Category)
	c.str(&f.Message)
	c.str(&f.Stack)
	optional(c, &f.Retryable, (*codec).bool)
	num(c, &f.RetryAfter)
	c.str(&f.Phase)
	c.bytes(&f.Partial)
	table(c, &f.Metrics, (*codec).float)
}

func feedbackFields(c *codec, f *lease.Feedback) {
	num(c, &f.Attempt)
	c.float(&f.Fraction)
	c.str(&f.Stage)
	c.str(&f.Message)
	table(c, &f.Metrics, (*codec).float)
	list(c, &f.Chunks, chunkFields)
}

func chunkFields(c *codec, h *lease.Chunk) {
	c.str(&h.Channel)
	num(c, &h.Index)
	c.str(&h.MIMEType)
	c.str(&h.Text)
	c.bytes(&h.Data)
	table(c, &h.Metadata, (*codec).str)
}

// PutFeedback stores the last feedback of an attempt. It replaces the feedback of an earlier
// attempt of the task.
func PutFeedback(b *store.Batch, id lease.TaskID, f *lease.Feedback) {
	put(b, store.Feedback, store.AppendTaskKey(nil, id), f, feedbackFields)
}

// Feedback reads the last feedback of the newest ended attempt that has sent any; nil if none has.
func Feedback(r store.Reader, id lease.TaskID) (*lease.Feedback, error) {
	return read(r, store.Feedback, store.AppendTaskKey(nil, id), feedbackFields)
}

// Result reads the result that the committed Complete of a task contained; nil if there is no such
// Complete, or if the result is empty.
func Result(r store.Reader, id lease.TaskID) (*lease.Result, error) {
	return read(r, store.Output, store.AppendTaskKey(nil, id), resultFields)
}

// Failure reads the error of the last failed attempt of a task; nil if there is none.
func Failure(r store.Reader, id lease.TaskID) (*lease.Failure, error) {
	return read(r, store.Failure, store.AppendTaskKey(nil, id), failureFields)
}

// Checkpoint reads the last checkpoint of a task; nil if there is none.
func Checkpoint(r store.Reader, id lease.TaskID) ([]byte, error) {
	key := store.AppendTaskKey(nil, id)
	value := r.Get(store.Checkpoint, key)
	if value == nil {
		return nil, nil
	}
	_, payload, err := open(store.Checkpoint, key, value)
	return bytes.Clone(payload), err
}

// Discarded reads the discarded result of an attempt (V15); nil if there is none.
func Discarded(r store.Reader, id lease.TaskID, attempt uint32) (*lease.Result, error) {
	return read(r, store.Discarded, store.AppendAttemptKey(nil, id, attempt), resultFields)
}

// Committed reads the committed report of an attempt from the ledger; nil if there is none.
func Committed(r store.Reader, id lease.TaskID, attempt uint32) (*lease.Committed, error) {
	return read(r, store.Ledger, store.AppendAttemptKey(nil, id, attempt), committedFields)
}

// ForgetLedger deletes all committed reports of a deleted task, and the timer for this deletion. It
// deletes the reports that are in r, not those that b adds.
func ForgetLedger(b *store.Batch, r store.Reader, id lease.TaskID, due lease.Instant) error {
	b.Delete(store.Timer, store.ServingTimer(due, id).Append(nil))
	prefix := store.AppendTaskKey(nil, id)
	return r.Scan(store.Ledger, prefix, store.PrefixEnd(prefix), func(key, _ []byte) bool {
		b.Delete(store.Ledger, key)
		return true
	})
}
