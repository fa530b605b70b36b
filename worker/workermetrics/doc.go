// Package workermetrics counts what a worker does, for Prometheus. A worker that does not import it
// does not depend on Prometheus.
//
//	m := workermetrics.New()
//	prometheus.MustRegister(m)
//	w, err := worker.New(conn, queues, worker.Config{Hooks: m.Hooks(worker.Hooks{})})
//
// The metrics have the same names for all workers, and are described in docs/metrics.md. No label
// is a type, a queue or anything else that producers choose, so their number is bounded.
package workermetrics
