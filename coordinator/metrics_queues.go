package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/convert"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/httpstatus"
)

// mostMeasured is how many queues one scrape of /metrics/queues shows. A Prometheus that got a
// series for each of a million queues would fall over. A variable so that tests can make it small.
var mostMeasured = 1000

// mostWorkspaces is how many workspaces one scrape may name.
const mostWorkspaces = 20

// queueMetrics serves /metrics/queues: metrics of the queues of some workspaces of the caller's
// tenant. They are apart from /metrics, which is about all tenants and has the same number of
// series however many queues there are. It is a client of AdminService, like the page.
type queueMetrics struct{ admin lessorv1.AdminServiceClient }

// mayBeTooLow is a part of the HELP of ages of the oldest READY task, for which each scrape looks
// at a limited number of tasks.
const mayBeTooLow = " If there are many lines of tasks, not all are looked at, and it may be too low."

var (
	queueLabels    = []string{"workspace", "queue"}
	queueTasksDesc = prometheus.NewDesc("lessor_queue_tasks",
		"Tasks of the queue that have not ended, by state; PARKED are READY but held back by their concurrency key.",
		append([]string{"state"}, queueLabels...), nil)
	queueKeptDesc = prometheus.NewDesc("lessor_queue_kept_tasks",
		"Tasks of the queue that have ended and are there until their retention is over, by state.",
		append([]string{"state"}, queueLabels...), nil)
	queueOldestDesc = prometheus.NewDesc("lessor_queue_oldest_ready_seconds",
		"How long the task of the queue has been READY that has been so the longest; PARKED ones are left out. 0 if none is."+mayBeTooLow, queueLabels, nil)
	queueBlockerDesc = prometheus.NewDesc("lessor_queue_oldest_blocker_seconds",
		"How long the oldest lease has been live that holds a concurrency key for which tasks of the queue are PARKED; 0 if none is.", queueLabels, nil)
	queueTakersDesc = prometheus.NewDesc("lessor_queue_takers",
		"Workers and requests that wait for tasks of the queue or work on them.", queueLabels, nil)
	queuePausedDesc = prometheus.NewDesc("lessor_queue_paused", "1 while the queue is paused.", queueLabels, nil)
	queuesCutDesc   = prometheus.NewDesc("lessor_queues_left_out",
		"1 if there are more queues than one scrape shows.", nil, nil)
)

// ServeHTTP answers a scrape. workspace_id, which may be repeated, names the workspaces.
func (m queueMetrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	workspaces := r.URL.Query()["workspace_id"]
	if len(workspaces) == 0 {
		workspaces = []string{""}
	}
	if len(workspaces) > mostWorkspaces {
		answer(w, http.StatusBadRequest,
			fmt.Sprintf("workspace_id: is named %d times; the limit is %d\n", len(workspaces), mostWorkspaces))
		return
	}
	queues, more, err := m.list(r.Context(), workspaces)
	if err != nil {
		told := status.Convert(err)
		answer(w, httpstatus.Of(told.Code()), told.Message()+"\n")
		return
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(shownQueues{queues, more})
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}).ServeHTTP(w, r)
}

// list returns the first mostMeasured queues of the workspaces, and whether there are more.
func (m queueMetrics) list(ctx context.Context, workspaces []string) (queues []*lessorv1.Queue, more bool, err error) {
	seen := map[string]bool{}
	for _, workspace := range workspaces {
		workspace = cmp.Or(workspace, convert.DefaultWorkspace)
		if seen[workspace] {
			continue
		}
		seen[workspace] = true
		req := &lessorv1.ListQueuesRequest{WorkspaceId: workspace, PageSize: uint32(mostMeasured)}
		for {
			page, err := m.admin.ListQueues(ctx, req)
			if err != nil {
				return nil, false, err
			}
			queues = append(queues, page.GetQueues()...)
			if len(queues) > mostMeasured {
				return queues[:mostMeasured], true, nil
			}
			if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
				break
			}
		}
	}
	return queues, false, nil
}

// shownQueues collects the metrics of the queues of one scrape.
type shownQueues struct {
	queues []*lessorv1.Queue
	more   bool
}

// Describe implements prometheus.Collector.
func (shownQueues) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		queueTasksDesc, queueKeptDesc, queueOldestDesc, queueBlockerDesc, queueTakersDesc, queuePausedDesc,
		queuesCutDesc,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (s shownQueues) Collect(to chan<- prometheus.Metric) {
	tell := func(desc *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	flag := map[bool]float64{true: 1}
	for _, q := range s.queues {
		of := []string{q.GetWorkspaceId(), q.GetName()}
		for state, n := range map[string]uint64{
			"READY":     q.GetReady() - q.GetBlocked(),
			"PARKED":    q.GetBlocked(),
			"SCHEDULED": q.GetScheduled(),
			"LEASED":    q.GetLeased(),
		} {
			tell(queueTasksDesc, float64(n), append([]string{state}, of...)...)
		}
		for state, n := range map[string]uint64{
			"COMPLETED": q.GetCompleted(), "FAILED": q.GetFailed(), "CANCELLED": q.GetCancelled(),
		} {
			tell(queueKeptDesc, float64(n), append([]string{state}, of...)...)
		}
		tell(queueOldestDesc, q.GetOldestReady().AsDuration().Seconds(), of...)
		tell(queueBlockerDesc, q.GetOldestBlocker().AsDuration().Seconds(), of...)
		tell(queueTakersDesc, float64(q.GetTakers()), of...)
		tell(queuePausedDesc, flag[q.GetPaused()], of...)
	}
	tell(queuesCutDesc, flag[s.more])
}
