package bench

import (
	"cmp"
	"context"
	"maps"
	"time"

	"github.com/lessor-dev/lessor/worker/producer"
)

// maxLatencyTasks bounds how many tasks are sent one at a time.
const maxLatencyTasks = 500

// idleLatency sends one task after the other through an idle coordinator, with one worker that
// waits.
func idleLatency(ctx context.Context, r *rig) (samples, error) {
	n := min(r.Tasks, maxLatencyTasks)
	alone := *r.Config
	alone.Workers, r.Config = 1, &alone
	started, judged := make(chan time.Time, 1), make(chan time.Time, 1)
	c := workerGroup{
		rig:       r,
		target:    int64(n),
		onStart:   func() { started <- time.Now() },
		onVerdict: func() { judged <- time.Now() },
	}
	c.run(ctx)
	c.ready.Wait()
	client := producer.New(r.conn)
	defer func() { _ = client.Close() }()
	l := latencies{started: started, judged: judged, ended: c.ended}
	end := r.server.begin()
	var err error
	for i := 0; i < n && err == nil; i++ {
		err = l.one(ctx, r, client)
	}
	r.ran = end()
	if err = cmp.Or(err, c.shutdown()); err != nil {
		return nil, err
	}
	found := l.samples()
	maps.Copy(found, r.ran.costs("latency_verdict_p50", n)) // of the whole life of a task
	return found, r.checkCompleted(ctx, n, int(c.committed.Load()))
}

// latencies are measured from the submit of each task, in milliseconds.
type latencies struct {
	started, judged     <-chan time.Time
	ended               <-chan struct{} // closed when no worker is left
	ack, start, verdict []float64
}

// one measures one task from its submit to its verdict.
func (l *latencies) one(ctx context.Context, r *rig, client *producer.Client) error {
	spec := r.spec()
	begin := time.Now()
	result, err := client.Submit(ctx, spec)
	if err == nil {
		err = refusal(result)
	}
	if err != nil {
		return err
	}
	l.ack = append(l.ack, millis(time.Since(begin)))
	if err := l.await(ctx, begin, l.started, &l.start); err != nil {
		return err
	}
	return l.await(ctx, begin, l.judged, &l.verdict)
}

func (l *latencies) await(ctx context.Context, begin time.Time, event <-chan time.Time, into *[]float64) error {
	select {
	case at := <-event:
		*into = append(*into, millis(at.Sub(begin)))
		return nil
	case <-l.ended:
		return errNoWorker
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *latencies) samples() samples {
	return samples{
		"latency_ack_p50":     percentile(l.ack, 50),
		"latency_ack_p99":     percentile(l.ack, 99),
		"latency_start_p50":   percentile(l.start, 50),
		"latency_start_p99":   percentile(l.start, 99),
		"latency_verdict_p50": percentile(l.verdict, 50),
		"latency_verdict_p99": percentile(l.verdict, 99),
	}
}
