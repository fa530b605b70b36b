package lease

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Kind is the kind of a message of a worker about its lease.
type Kind uint8

// The kinds. Complete, Fail and Release are reports, which close the attempt.
const (
	KindStart Kind = iota + 1
	KindComplete
	KindFail
	KindRelease
	KindHeartbeat
	KindAck
	KindAdopt // only in Committed: an operator adopted a discarded result. No worker can send this kind
)

// Closes reports whether the kind ends the attempt when it is committed.
func (k Kind) Closes() bool { return k == KindComplete || k == KindFail || k == KindRelease }

func (k Kind) String() string {
	return [...]string{"unspecified", "start", "complete", "fail", "release", "heartbeat", "ack", "adoption"}[k]
}

// Report is one message of a worker about one lease: a report, Start, Heartbeat or acknowledgement.
// Its ids are those that the worker sent; nobody has checked them yet.
type Report struct {
	Kind    Kind
	Attempt uint32 // 0: not sent
	TaskID  string
	LeaseID string
	Worker  string // only for the history; no rule depends on it
	Session string // the session through which it came; empty: a unary call
	ID      string // report_id, for answers and the log; no rule depends on it
	At      Wall   // the worker's clock at the start, the heartbeat or the end, for the log; 0: not sent

	// Started says that the worker had begun the attempt, without an answer to a Start. A report
	// which closes the attempt also tells what a Start would have told (V19). A Start does not ask
	// whether to begin, so that a cancel that came before it does not turn it away (T7).
	Started bool

	Result     *Result       // of a Complete
	Failure    *Failure      // of a Fail
	Delay      time.Duration // of a Release
	Detail     string        // of a Release: why
	Checkpoint []byte        // of a Heartbeat; empty: the last checkpoint stays

	// Invalid is a bad field that the parser found. The rules refuse the report for it (V1) when
	// its turn comes.
	Invalid *FieldError
}

// result returns the result of a Complete: an empty one if the Complete carries none.
func (r *Report) result() *Result {
	if r.Result == nil {
		return &Result{}
	}
	return r.Result
}

// Acceptable reports whether a report is not refused for itself, whatever its lease is: its form is
// good (V1) and its output is not over the inline limit (V11).
func (r *Report) Acceptable(l Limits) bool { return r.check(l) == nil && !r.tooLarge(l) }

func (r *Report) tooLarge(l Limits) bool { return r.Result != nil && len(r.Result.Output) > l.Output }

// check checks the form of a report (V1).
func (r *Report) check(l Limits) *FieldError {
	switch {
	case r.Invalid != nil:
		return r.Invalid
	case r.Kind < KindStart || r.Kind > KindAck:
		return bad("report", "has an unknown kind")
	case r.TaskID == "":
		return bad("task_id", "must not be empty")
	case r.LeaseID == "":
		return bad("lease_id", "must not be empty")
	case r.Kind == KindFail && r.Failure == nil:
		return bad("error", "is missing")
	case r.Failure != nil:
		return r.Failure.check(l)
	case r.Result != nil:
		return r.Result.check(l)
	case len(r.Checkpoint) > l.Checkpoint:
		return bad("checkpoint", "has %d bytes; the limit is %d", len(r.Checkpoint), l.Checkpoint)
	case r.Delay < 0 || r.Delay > MaxDelay:
		return bad("delay", "is %v; the range is 0 to %v", r.Delay, MaxDelay)
	}
	return nil
}

// Result is what a Complete carries.
type Result struct {
	Output    []byte
	Artifacts []Artifact
	Metrics   map[string]float64
}

// Empty reports whether the result holds nothing.
func (r *Result) Empty() bool {
	return len(r.Output) == 0 && len(r.Artifacts) == 0 && len(r.Metrics) == 0
}

func (r *Result) check(l Limits) *FieldError {
	if len(r.Artifacts) > MaxArtifacts {
		return bad("artifacts", "has %d entries; the limit is %d", len(r.Artifacts), MaxArtifacts)
	}
	for i := range r.Artifacts {
		a := &r.Artifacts[i]
		field := fmt.Sprintf("artifacts[%d].", i)
		if a.ResourceID == "" {
			return bad(field+"resource_id", "must not be empty")
		}
		if err := CheckID(field+"resource_id", a.ResourceID, l); err != nil {
			return err
		}
		if a.SizeBytes < 0 {
			return bad(field+"size_bytes", "is %d; it cannot be negative", a.SizeBytes)
		}
		if err := checkLabels(field+"metadata", a.Metadata, l.Labels, l); err != nil {
			return err
		}
	}
	return nil
}

// withWorker returns the result with the given worker in all artifacts that name no worker: such an
// artifact is on the worker that made it. It returns a copy and does not write to r, because the
// digest covers what the worker sent (V13).
func (r *Result) withWorker(worker string) *Result {
	nameless := func(a Artifact) bool { return a.WorkerID == "" }
	if worker == "" || !slices.ContainsFunc(r.Artifacts, nameless) {
		return r
	}
	filled := *r
	filled.Artifacts = slices.Clone(r.Artifacts)
	for i := range filled.Artifacts {
		setDefault(&filled.Artifacts[i].WorkerID, worker)
	}
	return &filled
}

// MaxArtifacts is how many artifacts a report may have.
const MaxArtifacts = 64

// Artifact describes a result that is stored outside Lessor, or in the output itself (Inline).
type Artifact struct {
	ResourceID string
	WorkerID   string // the worker that has it; empty in a report: the holder of the lease
	Type       string
	SizeBytes  int64
	ExpiresAt  Wall
	Inline     bool
	Metadata   map[string]string
}

// Failure is what a Fail carries.
type Failure struct {
	Category   Category
	Message    string
	Stack      string
	Retryable  *bool // nil: the category decides (T4)
	RetryAfter time.Duration
	// Phase and Partial say how far the work was when a cancel stopped it.
	Phase   string
	Partial []byte
	Metrics map[string]float64
}

func (f *Failure) check(l Limits) *FieldError {
	switch {
	case f.Category > CategoryCancelled:
		return bad("error.category", "is %d, which is not a known category", f.Category)
	case len(f.Message) > l.Stack:
		return bad("error.message", "has %d bytes; the limit is %d", len(f.Message), l.Stack)
	case len(f.Stack) > l.Stack:
		return bad("error.stack_trace", "has %d bytes; the limit is %d", len(f.Stack), l.Stack)
	case f.RetryAfter < 0:
		return bad("error.retry_after", "is %v; it cannot be negative", f.RetryAfter)
	case len(f.Partial) > l.Checkpoint:
		return bad("partial_progress", "has %d bytes; the limit is %d", len(f.Partial), l.Checkpoint)
	}
	return nil
}

// Digest identifies the content of a report: half of a SHA-256.
type Digest [16]byte

// emptyDigests holds the digests of a Complete without output and artifacts: without a Result, and
// with an empty one.
var emptyDigests = [...]Digest{
	(&Report{Kind: KindComplete}).Digest(),
	(&Report{Kind: KindComplete, Result: &Result{}}).Digest(),
}

// EmptyComplete reports whether the report was a Complete without output and artifacts.
func (c *Committed) EmptyComplete() bool {
	return c.Kind == KindComplete && slices.Contains(emptyDigests[:], c.Digest)
}

// Digest covers the kind, the output, the artifacts in their order, and the error's category,
// message, stack and retryable. It covers nothing else: no times, metrics or report ids (V13).
func (r *Report) Digest() Digest {
	h := make(digester, 0, 256) // stays on the stack, because every method returns the slice and none stores it
	h = h.num(uint64(r.Kind))
	if r.Result != nil {
		h = h.bytes(r.Result.Output)
		h = h.num(uint64(len(r.Result.Artifacts)))
		for i := range r.Result.Artifacts {
			h = h.artifact(&r.Result.Artifacts[i])
		}
	}
	if f := r.Failure; f != nil {
		h = h.num(uint64(cmp.Or(f.Category, UserCode)))
		h = h.text(f.Message)
		h = h.text(f.Stack)
		switch {
		case f.Retryable == nil:
			h = h.num(0)
		case *f.Retryable:
			h = h.num(1)
		default:
			h = h.num(2)
		}
	}
	sum := sha256.Sum256(h)
	return Digest(sum[:16])
}

// digester is the input of a digest. It writes the length before each value, so that different
// contents never give the same bytes. A long value is replaced by its hash.
type digester []byte

func (d digester) num(n uint64) digester { return binary.AppendUvarint(d, n) }

func (d digester) bytes(b []byte) digester {
	d = d.num(uint64(len(b)))
	if len(b) > sha256.Size {
		sum := sha256.Sum256(b)
		b = sum[:]
	}
	return append(d, b...)
}

func (d digester) text(s string) digester { return d.bytes([]byte(s)) }

func (d digester) artifact(a *Artifact) digester {
	d = d.text(a.ResourceID)
	d = d.text(a.WorkerID)
	d = d.text(a.Type)
	d = d.num(uint64(a.SizeBytes))
	d = d.num(uint64(a.ExpiresAt))
	inline := uint64(0)
	if a.Inline {
		inline = 1
	}
	d = d.num(inline)
	d = d.num(uint64(len(a.Metadata)))
	for _, k := range slices.Sorted(maps.Keys(a.Metadata)) {
		d = d.text(k)
		d = d.text(a.Metadata[k])
	}
	return d
}
