package worker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Task is one attempt at a task, as its handler sees it. The handler may read the fields. Several
// goroutines may call the methods, which do nothing after the handler has returned. The methods
// work only for a Task that a worker made: test handlers with package workertest.
type Task struct {
	// ID is the id of the task, the same in every attempt.
	ID string
	// Attempt numbers the grants of the task: 1, 2, 3 ...
	Attempt uint32
	// AttemptID names this attempt in logs.
	AttemptID string
	// FencingToken grows with every grant of the task and never shrinks. Pass it to outside
	// systems, so that they can refuse a request with an older token than one they have seen (A2).
	FencingToken uint64
	// Round is 1, and one more after each retry by a person (RetryTask), with which Failures and
	// Losses begin again at 0.
	Round uint32
	// Failures and Losses are how many attempts of the round have failed, and have lost their
	// leases, before this one. Attempts that were given back count as neither (T5).
	Failures, Losses uint32
	// MaxAttempts and MaxLosses are how many failures and losses of a round make the task FAILED
	// (T3, T5), by the policy that holds for it; 0 if the coordinator does not say. See
	// LastAttempt.
	MaxAttempts, MaxLosses uint32

	// Workspace, Queue and Type say where the task came from and what it is.
	Workspace, Queue, Type string
	// Payload is the input.
	Payload []byte
	// Labels are the labels that the producer gave the task.
	Labels map[string]string
	// RunID, Key and AssetID are the producer's names for the run, for the task within it, and for
	// what the task makes; each may be empty.
	RunID, Key, AssetID string
	// RunSeq grows with every task of the run, in the order of their submits; 0 without a run.
	RunSeq uint64
	// IdempotencyKey is the key with which the task was submitted (T1); may be empty.
	IdempotencyKey string
	// SubmittedAt is when the task was submitted, by the wall clock of the coordinator.
	SubmittedAt time.Time
	// Priority of the task in its queue, higher first; 0 by default.
	Priority int32
	// FairnessKey is the key by which tasks of the queue take turns (T12); may be empty.
	FairnessKey string
	// ConcurrencyKey is the key that limits how many tasks run at once (T11); may be empty.
	ConcurrencyKey string
	// Resources are what the task needs of this worker; see the package worker/resource.
	Resources []ResourceRef
	// Deadline is the wall time after which the task fails; zero if there is none.
	Deadline time.Time
	// AttemptTimeout is how long this attempt may take, from its grant; 0 if there is no limit.
	// Then the coordinator takes the lease away, and the handler's context ends. It is longer by
	// the time for which the coordinator was away meanwhile.
	AttemptTimeout time.Duration
	// Checkpoint is the last checkpoint that an earlier attempt saved; empty if none did.
	Checkpoint []byte
	// Traceparent is the W3C trace context of the attempt; empty if the task has no trace. The
	// handler's context carries it, too.
	Traceparent string
	// CallbackURL is where the coordinator serves HTTP; empty if it does not.
	CallbackURL string
	// HeartbeatTimeout is how long the lease lives after a renewal, so Confirm can promise only
	// less.
	HeartbeatTimeout time.Duration
	// CancelGrace is how long the handler may take to return after a cancel of the task.
	// StopError.GraceEnds says what is left of it.
	CancelGrace time.Duration

	a *attempt
}

// ResourceRef is something that a task needs and that lives in this worker: an artifact of an
// earlier task (W12).
type ResourceRef struct {
	// ResourceID is its identity here.
	ResourceID string
	// WorkerID is the stable name of the worker that holds it: this one.
	WorkerID string
	// Type is what it is; may be empty.
	Type string
	// Scope says for what the resource may be used, for example "run"; may be empty.
	Scope string
	// ExpiresAt is the wall time after which it may be gone; zero: not stated.
	ExpiresAt time.Time
	// Metadata is free text.
	Metadata map[string]string
}

// Artifact describes a result that is stored elsewhere, for example an uploaded file.
type Artifact struct {
	// ResourceID identifies the result where it is stored. Required; at most 256 bytes.
	ResourceID string
	// WorkerID is the stable name of the worker that holds it; at most 256 bytes. Empty: this one.
	WorkerID string
	// Type is what it is, for example a MIME type; at most 256 bytes.
	Type string
	// Size in bytes; 0 is unknown or empty.
	Size int64
	// ExpiresAt is the wall time after which it may be gone; zero: not stated.
	ExpiresAt time.Time
	// Inline: the output of the task already contains it.
	Inline bool
	// Metadata is free text; at most 64 entries, keys and values of at most 256 bytes.
	Metadata map[string]string
}

// fill sets the fields of t from an assignment.
func (t *Task) fill(a *attempt, asg *lessorv1.Assignment) {
	task, spec := asg.GetTask(), asg.GetTask().GetSpec()
	*t = Task{
		ID:           task.GetTaskId(),
		Attempt:      asg.GetAttempt(),
		AttemptID:    asg.GetAttemptId(),
		FencingToken: asg.GetFencingToken(),
		Workspace:    spec.GetWorkspaceId(),
		Queue:        spec.GetQueue(),
		Type:         spec.GetType(),
		Payload:      spec.GetPayload(),
		Labels:       spec.GetLabels(),
		RunID:        spec.GetRunId(),
		Key:          spec.GetTaskKey(),
		AssetID:      spec.GetAssetId(),

		Round:          task.GetRound(),
		Failures:       task.GetFailures(),
		Losses:         task.GetLosses(),
		MaxAttempts:    spec.GetRetryPolicy().GetMaxAttempts(),
		MaxLosses:      spec.GetRetryPolicy().GetMaxLosses(),
		RunSeq:         asg.GetRunSeq(),
		IdempotencyKey: spec.GetIdempotencyKey(),
		Priority:       spec.GetPriority(),
		FairnessKey:    spec.GetFairnessKey(),
		AttemptTimeout: spec.GetAttemptTimeout().AsDuration(),

		ConcurrencyKey: spec.GetConcurrencyKey(),
		Resources:      resourceRefs(spec.GetResourceRefs()),
		Checkpoint:     asg.GetCheckpoint(),
		Traceparent:    asg.GetTraceparent(),
		CallbackURL:    asg.GetCallbackBaseUrl(),

		HeartbeatTimeout: spanOr(asg.GetHeartbeatTimeout(), defaultTTL),
		CancelGrace:      spanOr(asg.GetCancelGrace(), defaultGrace),

		a: a,
	}
	if spec.GetDeadline() != nil {
		t.Deadline = spec.GetDeadline().AsTime()
	}
	if task.GetCreatedAt() != nil {
		t.SubmittedAt = task.GetCreatedAt().AsTime()
	}
}

// LastAttempt reports whether the task becomes FAILED if this attempt fails, because it is the last
// that MaxAttempts allows. A handler may then do what is only of use once: tell a person, or clean
// up. An attempt that is not the last may still end the task: with an error that is not retried
// (Permanent), at Deadline, or by the loss of its lease. A person may retry a task that is FAILED.
func (t *Task) LastAttempt() bool { return t.MaxAttempts > 0 && t.Failures+1 >= t.MaxAttempts }

// attempt returns the attempt that the task is for. A task that no worker has made has none.
func (t *Task) attempt() *attempt {
	if t.a == nil {
		panic("worker: this Task comes from no Worker; to test a handler, use package workertest")
	}
	return t.a
}

// Progress reports how much of the work is done: fraction is from 0 to 1, message is for people,
// and stage names the phase, for example "uploading". It is cheap to call often: only the newest
// progress is sent, and it may be lost. message is cut to 1 KiB and stage to 256 bytes; control
// characters in stage become spaces.
func (t *Task) Progress(fraction float64, message, stage string) {
	if !(fraction > 0) { // also NaN
		fraction = 0
	}
	t.attempt().feedback.changeProgress(func(p *lessorv1.Progress) {
		p.Fraction, p.Message, p.Stage = min(fraction, 1), clip(message, maxProgressText), clipID(stage)
	})
}

// Stage changes only the stage of the progress; fraction and message stay as they are.
func (t *Task) Stage(stage string) {
	t.attempt().feedback.changeProgress(func(p *lessorv1.Progress) { p.Stage = clipID(stage) })
}

// Message changes only the message of the progress; fraction and stage stay as they are.
func (t *Task) Message(message string) {
	t.attempt().feedback.changeProgress(func(p *lessorv1.Progress) { p.Message = clip(message, maxProgressText) })
}

// SetMetric sets a gauge of the attempt, for example "loss". Watchers see the newest value soon,
// and the outcome carries the last one. An attempt may have at most 64 names, of at most 256 bytes,
// without control characters. Other names are ignored, and so are values that are not finite.
func (t *Task) SetMetric(name string, value float64) {
	if checkName("metric", name) == nil && isFinite(value) {
		t.attempt().feedback.setMetric(name, value)
	}
}

// Emit sends a chunk of output to watchers, in order with what is written to Output, and as that
// is: it never blocks, and the oldest output may be dropped. The next chunk of the channel then
// says how many bytes were dropped (MetadataDropped). A chunk that is too large is dropped at once.
func (t *Task) Emit(c Chunk) { t.attempt().feedback.addChunk(c.clipped()) }

// Output returns a writer for what the attempt prints on a channel such as "stdout" or "log".
// Watchers see it while the task runs. It is not stored. It is sent every 100 ms; what is more than
// Config.OutputBuffer by then, or while the stream is slow, is dropped, the oldest first (W11).
// Write never blocks and never fails. For a logger: slog.New(slog.NewTextHandler(t.Output("log"),
// nil)).
func (t *Task) Output(channel string) io.Writer {
	return outputWriter{feedback: &t.attempt().feedback, channel: clipID(channel)}
}

// SaveCheckpoint saves data durably with the coordinator; later attempts find it in
// Task.Checkpoint. It waits for the answer: after nil, not even a crash of the worker or the
// coordinator can lose data (A6). An older checkpoint never replaces a newer one: each is sent when
// the one before has its answer, and of those that wait only the newest; if that one is refused,
// the next one. data must not be empty, and may have at most 64 KiB. To save a last checkpoint
// after the handler's context has ended with ErrCancelled or ErrDraining, pass
// context.WithoutCancel of it. Errors: ctx's cause, and then it is unknown whether data was saved;
// a *StopError if the lease is lost; a *RejectedError if data is empty or too large; ErrFinished.
func (t *Task) SaveCheckpoint(ctx context.Context, data []byte) error {
	problem := ""
	if room := t.attempt().w.maxMessage() - checkpointOverhead; len(data) > room {
		problem = fmt.Sprintf("has %d bytes, and %d fit into a message", len(data), room)
	} else if len(data) == 0 {
		problem = "is empty"
	}
	if problem != "" {
		return &RejectedError{Reason: lessorv1.Reason_REASON_INVALID_REQUEST, Detail: "checkpoint: " + problem}
	}
	return t.attempt().w.beatAndWait(ctx, t.attempt(), bytes.Clone(data))
}

// Confirm asks the coordinator whether this attempt still holds its lease, and waits for the
// answer. Call it right before a change to the outside world that must not happen twice. nil means
// that for at least d from now nobody else is granted the task, unless a person revokes the lease.
// Finish the change within d, and pass FencingToken along if the other side can check it.
//
// Errors: ctx's cause; a *StopError if the lease is lost or the task was cancelled; ErrLeaseShort
// if the lease has less than d left, which is always so if d is HeartbeatTimeout or longer: the
// lease is counted from the question, so that the time until the answer is missing, usually some
// milliseconds, and more if the coordinator is slow; a *RejectedError if the question shared a
// heartbeat with a checkpoint that was refused: ask again; ErrFinished.
func (t *Task) Confirm(ctx context.Context, d time.Duration) error {
	if err := t.attempt().w.beatAndWait(ctx, t.attempt(), nil); err != nil {
		return err
	}
	return t.attempt().w.checkConfirmed(t.attempt(), d)
}

// TaskToken returns the newest task token of the attempt, and the wall time until which it is
// valid; it is empty if the coordinator issues none. Whoever has the token can report on this
// attempt over HTTP, at CallbackURL, and do nothing else (H1). A handler may pass it to a process
// that it starts, for heartbeats and checkpoints, and to learn of a cancel. The handler should
// still return the outcome itself: if somebody reports the outcome with the token, that report
// counts. The next heartbeat then ends the handler's context with ErrLeaseLost and
// REASON_ALREADY_REPORTED, and what the handler returns is discarded or refused.
func (t *Task) TaskToken() (token string, expires time.Time) {
	w := t.attempt().w
	w.lock()
	defer w.unlock()
	return t.attempt().token.text, t.attempt().token.expires
}

// CancelReason returns the reason that was given for the cancel of the task; empty if the task is
// not cancelled.
func (t *Task) CancelReason() string {
	w := t.attempt().w
	w.lock()
	defer w.unlock()
	return t.attempt().cancelReason
}

// Lost returns a channel that is closed when the attempt has lost its lease, as ErrLeaseLost says.
// If the context ended with ErrCancelled or ErrDraining, this is the second stage, the end of the
// grace. If the context ends with ErrLeaseLost, both happen together. The channel stays open if the
// handler returns in time.
func (t *Task) Lost() <-chan struct{} {
	w := t.attempt().w
	w.lock()
	defer w.unlock()
	return t.attempt().lostChanLocked()
}

// StopCause returns why the handler's context has ended early: a *StopError, of two the first; nil
// if it has not. It is for Hooks.OnEnd, which may be called before OnStop. A handler has
// context.Cause of its context.
func (t *Task) StopCause() error {
	if stop, ok := errors.AsType[*StopError](context.Cause(t.attempt().ctx)); ok {
		return stop
	}
	return nil
}

// AddArtifact adds a result that is stored elsewhere to the outcome. Artifacts are reported only if
// the handler returns no error. An attempt with more than 64 artifacts, or with one that exceeds a
// limit of Artifact or has text that is not valid UTF-8, fails for good with category USER_CODE.
func (t *Task) AddArtifact(artifact Artifact) {
	w := t.attempt().w
	w.lock()
	defer w.unlock()
	if err := artifact.check(); err != nil {
		t.attempt().badArtifact = cmp.Or(t.attempt().badArtifact, err)
		return
	}
	t.attempt().artifacts = append(t.attempt().artifacts, artifact.proto())
}
