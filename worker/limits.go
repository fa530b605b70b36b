package worker

import (
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lessor-dev/lessor/worker/internal/text"
)

// Limits of the protocol (S7) and of this implementation. What a handler hands over is cut to them, so that one long
// message cannot turn a good report into a REJECTED one.
const (
	// maxText is the longest message or stack in a report, in bytes.
	maxText = 64 << 10
	// maxReason is the longest reason of a release, drain or goodbye, in bytes.
	maxReason = 1 << 10
	// maxProgressText is the longest progress message, in bytes: it is sent often.
	maxProgressText = 1 << 10
	// maxDelay is the longest delay of a release.
	maxDelay = 24 * time.Hour
	// maxParallel is the largest capacity of a session.
	maxParallel = 10_000
	// maxQueues is the largest number of queues of a session.
	maxQueues = 100
	// maxTypes is the largest number of types with a limit of their own.
	maxTypes = 1_000
	// maxCapabilities is the largest number of runtimes, features, labels or resources of a worker.
	maxCapabilities = 256
	// maxMetrics is the largest number of gauges of a worker or an attempt.
	maxMetrics = 64
	// maxID is the longest name, queue or stage, in bytes.
	maxID = text.Max
	// maxItems is the largest number of items in one frame.
	maxItems = 1_000
	// maxChunks is the largest number of chunks in one item of feedback.
	maxChunks = 256
	// maxChunk is the size up to which writes to one output are joined into one chunk, in bytes.
	maxChunk = 8 << 10
	// maxChunkData is the largest chunk, in bytes; maxChunkMetadata is how much metadata a handler may give it, which leaves
	// room for one of ours.
	maxChunkData     = 64 << 10
	maxChunkMetadata = 63
	// itemOverhead is more than a heartbeat or an item of feedback has beside a checkpoint or output: ids, a progress.
	itemOverhead = 2 << 10
	// startSize is more than a Start has: ids, a trace context.
	startSize = 1 << 10
	// frameOverhead is room for what surrounds the items of a frame, in bytes.
	frameOverhead = 4 << 10
	// checkpointOverhead is more than the heartbeat around a checkpoint has, with all metrics of the worker and the attempt.
	checkpointOverhead = frameOverhead + 2*maxMetrics*(maxID+metricOverhead)
	// maxReceived is the largest frame of the coordinator that is read, in bytes. The coordinator bounds them itself, by limits that
	// its operator may raise: a task over a limit of ours would break each stream that it is sent on, and hold up all behind it.
	maxReceived = math.MaxInt32
	// maxControl bounds the acknowledgements that wait for a slow stream: those that fall off are asked for again (W6).
	maxControl = 1_024
	// maxRecent is how many leases are remembered after their end, so that a repeated dispatch starts nothing (W6).
	maxRecent = 1_024
)

const (
	// sendTimeout is how long the stream may refuse to take a frame before it counts as broken.
	sendTimeout = 30 * time.Second
	// answerTimeout is how long a frame that must be answered may go without before the stream counts as broken. A
	// coordinator that was only stalled takes the repeats for what they are (V4).
	answerTimeout = 30 * time.Second
	// openTimeout is how long connecting may take, and then the handshake.
	openTimeout = 10 * time.Second
	// firstConnectTimeout is how long the first connecting may take before the operator is told; each further one has twice as
	// long, up to openTimeout. Connections go on being made meanwhile.
	firstConnectTimeout = time.Second
	// callTimeout is how long the call that opens a stream may take to return once its context has ended.
	callTimeout = time.Second
	// goodbyeTimeout is how long goodbye may take, until the coordinator has closed the stream.
	goodbyeTimeout = 2 * time.Second
	// slotWait is how long a dispatched task may wait for a slot that the coordinator already counts as free: a handler
	// whose lease was lost needs a moment to return. Shorter than the 5 s in which a dispatch must be acknowledged (W5).
	slotWait = 3 * time.Second
	// staleDispatchAge is the age, counted from the grant, from which on a dispatch is not believed without asking again; for short
	// leases it is a quarter of their length. What is left of the 5 s of W5 is for the frame to be under way.
	staleDispatchAge = time.Second
	// stuckAfter is how long a handler may outlive its lease before its slot is taken off the declared capacity.
	stuckAfter = time.Second
	// unknownTypeDelay keeps a task of a type without a handler from coming back at once.
	unknownTypeDelay = 5 * time.Second
	// flushDelay gathers writes to an output into one chunk.
	flushDelay = 100 * time.Millisecond
	// beatsPerInterval is the number of instants in each heartbeat interval on which heartbeats may fall due. Leases of
	// like interval thus share frames, and the coordinator's commits.
	beatsPerInterval = 8
)

// Defaults of T8, for an assignment that leaves them out.
const (
	defaultInterval = 30 * time.Second
	defaultTTL      = 90 * time.Second
	defaultGrace    = 30 * time.Second
)

// clip makes s valid UTF-8 of at most limit bytes.
func clip(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	return s[:runeStart(s, limit)]
}

// clipID is clip for what the coordinator takes for an identifier: at most maxID bytes, and no control characters, for which spaces stand.
func clipID(s string) string {
	return clip(strings.Map(func(r rune) rune {
		if text.IsControl(r) {
			return ' '
		}
		return r
	}, s), maxID)
}

// clipFront is clip, but keeps the end.
func clipFront(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	cut := max(0, len(s)-limit)
	for cut < len(s) && !utf8.RuneStart(s[cut]) {
		cut++
	}
	return s[cut:]
}

// runeStart returns the largest cut of s, at most limit, that splits no rune.
func runeStart[T string | []byte](s T, limit int) int {
	for cut := limit; cut > limit-utf8.UTFMax && cut >= 0; cut-- {
		if utf8.RuneStart(s[cut]) {
			return cut
		}
	}
	return limit
}
