package bench

// Units of metrics.
const (
	unitRate  = "tasks/s"
	unitFlush = "flushes/s"
	unitTime  = "ms"
	unitSize  = "MiB"
)

// metric is a line of the report.
type metric struct {
	name, unit, text string
	// limits bound it, by their names; see boundOf. A name that is there twice is a step that is taken twice; one may be a result, of which
	// this one should not fall short. None: there is no such limit.
	limits []string
}

// limitMetrics are what the machine can do, without a coordinator.
var limitMetrics = []metric{
	{"disk_flush", unitFlush, "disk: 4 KiB appended, fdatasync", nil},
	{"store_commit_1", unitTime, "store: a commit of one submit", nil},
	{"store_submit_small", unitRate, "store: submits, one for each producer in a commit", nil},
	{"store_submit_500", unitRate, "store: submits, 500 in a commit", nil},
	{"store_drain_500", unitRate, "store: grants and completions, 500 in a commit", nil},
	{"store_life_small", unitRate, "store: whole lives, one for each producer in a commit", nil},
	{"store_life_500", unitRate, "store: whole lives, 500 in a commit", nil},
	{"wire_round_trip", unitTime, "wire: a frame of one task and its answer", nil},
	{"wire_unary", unitRate, "wire: unary calls from all producers", nil},
	{"wire_frames", unitRate, "wire: frames of 500 tasks", nil},
}

// resultMetrics are what the coordinator did.
var resultMetrics = []metric{
	{"enqueue_bulk", unitRate, "enqueue, frames of 500", []string{"store_submit_500", "wire_frames"}},
	{"enqueue_shared", unitRate, "enqueue, plain Submit of all producers", []string{"store_submit_small", "wire_frames"}},
	{"enqueue_unary", unitRate, "enqueue, unary SubmitTask of all producers", []string{"store_submit_small", "wire_unary"}},
	{"drain", unitRate, "drain", []string{"store_drain_500", "wire_frames"}},
	{"end_to_end_shared", unitRate, "end to end, plain Submit", []string{"store_life_small", "wire_frames"}},
	{"end_to_end_bulk", unitRate, "end to end, frames of 500", []string{"store_life_500", "wire_frames"}},
	{"latency_ack_p50", unitTime, "idle: submit acknowledged, p50", oneCommit},
	{"latency_ack_p99", unitTime, "idle: submit acknowledged, p99", nil},
	{"latency_start_p50", unitTime, "idle: handler starts, p50", oneCommit},
	{"latency_start_p99", unitTime, "idle: handler starts, p99", nil},
	{"latency_verdict_p50", unitTime, "idle: verdict received, p50", twoCommits},
	{"latency_verdict_p99", unitTime, "idle: verdict received, p99", nil},
	{"backlog_resident", unitSize, "backlog: resident memory", nil},
	{"backlog_anonymous", unitSize, "backlog: of it without the file", nil},
	{"restart", unitTime, "backlog: restart after SIGKILL, to the first answer", nil},
	{"restart_resident", unitSize, "backlog: resident memory after the restart", nil},
	{"restart_anonymous", unitSize, "backlog: of it without the file, after the restart", nil},
	{"drain_backlog", unitRate, "backlog: drain of the first --tasks", []string{"drain"}},
}

// The handler starts when the submit, with the grant in it, is on the disk; the verdict needs a second commit and a second round trip.
var (
	oneCommit  = []string{"wire_round_trip", "store_commit_1"}
	twoCommits = append(oneCommit, oneCommit...)
)

// cpuOf is the name under which the samples have the processor time that went into a metric.
func cpuOf(name string) string { return "cpu/" + name }
