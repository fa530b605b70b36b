package bench

import "fmt"

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
	// limits are the names of the metrics that bound this one; see boundOf. If a step is taken
	// twice, its name is in the list twice. A name may also be that of another result, which this
	// one should reach. Empty: there is no such limit.
	limits []string
}

// limitMetrics returns the metrics of what the machine can do without a coordinator.
func (c *Config) limitMetrics() []metric {
	all := []metric{
		{"disk_flush", unitFlush, "disk: 4 KiB appended, fdatasync", nil},
		{"store_commit_1", unitTime, "store: a commit of one submit", nil},
		{"store_submit_500", unitRate, "store: submits, 500 in a commit", nil},
		{"store_drain_500", unitRate, "store: grants and completions, 500 in a commit", nil},
		{"store_life_500", unitRate, "store: whole lives, 500 in a commit", nil},
		{"wire_round_trip", unitTime, "wire: a frame of one task and its answer", nil},
		{"wire_frames", unitRate, "wire: frames of 500 tasks", nil},
	}
	for _, n := range c.Producers {
		all = append(all,
			metric{forProducers("store_submit", n), unitRate, fmt.Sprintf("store: submits, %d in a commit", n), nil},
			metric{forProducers("store_life", n), unitRate, fmt.Sprintf("store: whole lives, %d in a commit", n), nil},
			metric{forProducers("wire_unary", n), unitRate, "wire: unary calls from " + producers(n), nil},
		)
	}
	return all
}

// resultMetrics returns the metrics of what the coordinator did.
func (c *Config) resultMetrics() []metric {
	all := []metric{{"enqueue_bulk", unitRate, "enqueue, frames of 500", []string{"store_submit_500", "wire_frames"}}}
	for _, n := range c.Producers {
		all = append(all,
			metric{
				forProducers("enqueue_shared", n), unitRate, "enqueue, plain Submit by " + producers(n),
				[]string{forProducers("store_submit", n), "wire_frames"},
			},
			metric{
				forProducers("enqueue_unary", n), unitRate, "enqueue, unary SubmitTask by " + producers(n),
				[]string{forProducers("store_submit", n), forProducers("wire_unary", n)},
			},
		)
	}
	all = append(all, metric{"drain", unitRate, "drain", []string{"store_drain_500", "wire_frames"}})
	for _, n := range c.Producers {
		all = append(all, metric{
			forProducers("end_to_end_shared", n), unitRate, "end to end, plain Submit by " + producers(n),
			[]string{forProducers("store_life", n), "wire_frames"},
		})
	}
	all = append(all,
		metric{"end_to_end_bulk", unitRate, "end to end, frames of 500", []string{"store_life_500", "wire_frames"}},
		metric{"latency_ack_p50", unitTime, "idle: submit acknowledged, p50", oneCommit},
		metric{"latency_ack_p99", unitTime, "idle: submit acknowledged, p99", nil},
		metric{"latency_start_p50", unitTime, "idle: handler starts, p50", oneCommit},
		metric{"latency_start_p99", unitTime, "idle: handler starts, p99", nil},
		metric{"latency_verdict_p50", unitTime, "idle: verdict received, p50", twoCommits},
		metric{"latency_verdict_p99", unitTime, "idle: verdict received, p99", nil},
	)
	for _, n := range c.Backlogs {
		all = append(all, backlogMetrics(n)...)
		for _, k := range scatteredKinds {
			all = append(all, k.metrics(n)...)
		}
	}
	return all
}

func backlogMetrics(n int) []metric {
	about := fmt.Sprintf("backlog of %d: ", n)
	return []metric{
		{forBacklog("backlog_anonymous", n), unitSize, about + "anonymous memory (Pss_Anon)", nil},
		{forBacklog("backlog_mapped", n), unitSize, about + "mapped files beside it (Pss_File)", nil},
		{forBacklog("restart", n), unitTime, about + "restart after SIGKILL, to the first answer", nil},
		{forBacklog("restart_anonymous", n), unitSize, about + "anonymous memory after the restart", nil},
		{forBacklog("restart_mapped", n), unitSize, about + "mapped files after the restart", nil},
		{forBacklog("drain_backlog", n), unitRate, about + "drain of the first --tasks", []string{"drain"}},
	}
}

// The handler starts when the submit, with the grant in it, is on the disk; the verdict needs a
// second commit and a second round trip.
var (
	oneCommit  = []string{"wire_round_trip", "store_commit_1"}
	twoCommits = append(oneCommit, oneCommit...)
)

// forProducers returns the name of a figure with n producers. The p distinguishes it from one with
// n tasks in a commit.
func forProducers(name string, n int) string { return fmt.Sprintf("%s_p%d", name, n) }

// forBacklog returns the name of a figure with n waiting tasks.
func forBacklog(name string, n int) string { return fmt.Sprintf("%s_b%d", name, n) }

func producers(n int) string {
	if n == 1 {
		return "1 producer"
	}
	return fmt.Sprintf("%d producers", n)
}

// The costs of a metric are under these names in the samples: the coordinator's processor time, and
// flushes of the disk.
func cpuOf(name string) string     { return "cpu/" + name }
func flushesOf(name string) string { return "flushes/" + name }
