package worker

import (
	"math"
	"time"

	"github.com/lessor-dev/lessor/worker/internal/text"
)

// Limits of the protocol (S7) and of this implementation. Text from a handler is cut to these
// limits, so that a long message does not turn a correct report into a REJECTED one.
const (
	// maxText is the longest message, stack or partial progress in a report, in bytes.
	maxText = 64 << 10
	// maxReason is the longest reason of a release, drain or goodbye, in bytes.
	maxReason = 1 << 10
	// maxProgressText is the longest progress message, in bytes. It is short because progress is
	// sent often.
	maxProgressText = 1 << 10
	// maxYear is the last year that is wholly within the range of times.
	maxYear = 2261
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
	// maxPackages is the largest number of packages of a worker, and of operations that wait.
	maxPackages = 256
	// maxPackageDetail is the longest detail of a package, in bytes.
	maxPackageDetail = 1 << 10
	// maxID is the longest name, queue or stage, in bytes.
	maxID = text.Max
	// maxItems is the largest number of items in one frame.
	maxItems = 1_000
	// maxEntries is the largest number of items and chunks in one frame together.
	maxEntries = 100_000
	// maxChunks is the largest number of chunks in one item of feedback.
	maxChunks = 256
	// maxChunk is the size up to which writes to one output are joined into one chunk, in bytes.
	maxChunk = 8 << 10
	// maxChunkData is the largest chunk, in bytes. maxChunkMetadata is how many metadata entries a
	// handler may add to a chunk; that leaves room for MetadataDropped.
	maxChunkData     = 64 << 10
	maxChunkMetadata = 63
	// largestChunk is the size of the largest chunk with all that it may carry, as the output
	// buffer counts it, in bytes.
	largestChunk = chunkOverhead + 2*maxID + maxChunkData + maxChunkMetadata*(metadataOverhead+2*maxID)
	// itemOverhead is an upper bound, in bytes, for a heartbeat without its checkpoint, or an item
	// of feedback without its output: ids and a progress.
	itemOverhead = 2 << 10
	// startSize is an upper bound for the size of a Start, in bytes: ids and a trace context.
	startSize = 1 << 10
	// frameOverhead is room for what surrounds the items of a frame, in bytes.
	frameOverhead = 4 << 10
	// checkpointOverhead is an upper bound, in bytes, for a heartbeat around a checkpoint, with all
	// metrics of the worker and the attempt.
	checkpointOverhead = frameOverhead + 2*maxMetrics*(maxID+metricOverhead)
	// leastLimit is the size of the frames that every coordinator reads, in bytes.
	leastLimit = 4 << 20
	// maxReceived is the size of the largest frame or answer that is read, in bytes. The
	// coordinator limits its frames itself, and its operator may raise that limit. If the worker
	// had a smaller limit, a larger task would break each stream on which it is sent, and
	// everything behind it would wait.
	maxReceived = math.MaxInt32
	// maxControl is how many control frames wait at most for a slow stream.
	maxControl = 1_024
	// maxRecent is how many leases are remembered after their end, so that a repeated dispatch
	// starts nothing (W6), and how many operations on packages.
	maxRecent = 1_024
)

const (
	// sendTimeout is how long sending one frame may take before the stream counts as broken.
	sendTimeout = 30 * time.Second
	// answerTimeout is how long the answer to a frame may take before the stream counts as broken.
	// If the coordinator was only slow, it recognizes the repeated reports (V4).
	answerTimeout = 30 * time.Second
	// openTimeout is how long connecting may take at most, and then how long the handshake may
	// take.
	openTimeout = 10 * time.Second
	// mostAway is how long a unary call that a coordinator has refused because it stops waits for
	// the next one.
	mostAway = 30 * time.Second
	// firstConnectTimeout is how long the first try to connect may take before an error is
	// reported. Each further try may take twice as long, up to openTimeout. gRPC continues to
	// connect meanwhile.
	firstConnectTimeout = time.Second
	// callTimeout is how long the call that opens a stream may take to return after its context has
	// ended.
	callTimeout = time.Second
	// credentialGrace is how long at least a worker that was accepted before waits for a valid
	// credential.
	credentialGrace = 5 * time.Minute
	// tokenInterval is how often a worker whose credential was refused looks for another one while
	// it waits.
	tokenInterval = time.Second
	// gaugesTimeout is how long a heartbeat waits for its gauges.
	gaugesTimeout = time.Second
	// goodbyeTimeout is how long the worker waits, after the goodbye, until the coordinator closes
	// the stream.
	goodbyeTimeout = 2 * time.Second
	// slotWait is how long a dispatched task may wait for a slot that the coordinator already
	// counts as free, but not longer than an eighth of its lease: a handler whose lease was lost
	// may need a moment to return. It is shorter than the 5 s within which a dispatch must be
	// acknowledged (W5).
	slotWait = 3 * time.Second
	// staleDispatchAge is the age, counted from the grant, from which on a dispatch alone does not
	// prove that the lease is live; for short leases it is a quarter of their length. The rest of
	// the 5 s of W5 is for the time in transit.
	staleDispatchAge = time.Second
	// stuckAfter is how long after the loss of its lease a handler may still run before its slot is
	// no longer declared as capacity.
	stuckAfter = time.Second
	// unknownTypeDelay is the delay with which a task of a type without a handler is released, so
	// that it does not come back at once.
	unknownTypeDelay = 5 * time.Second
	// flushDelay is how long feedback is collected before it is sent.
	flushDelay = 100 * time.Millisecond
	// beatsPerInterval is the number of instants in each heartbeat interval at which heartbeats may
	// be due. Leases with the same interval thus share frames, and the coordinator's commits.
	beatsPerInterval = 8
)

// Defaults of T8, for an assignment without these fields.
const (
	defaultInterval = 30 * time.Second
	defaultTTL      = 90 * time.Second
	defaultGrace    = 30 * time.Second
)
