// Package readiness is for programs that "lessor pool run" starts: by it a process says that it is
// ready for work, that it takes no more, or that it has failed (P3). The supervisor of the pool
// kills a process that does not say in time that it is ready.
//
//	pool, err := readiness.FromEnv()
//	...
//	// load the model, begin to serve
//	err = pool.Ready(ctx, readiness.Ready{Endpoint: "http://127.0.0.1:8001", VRAMUsedBytes: 24 << 30, SlotsTotal: 4})
//
// Nothing here concerns a coordinator. A process that also takes tasks of one gives worker.Config
// the PoolID, and a Name that no other process of the machine has, such as the name of the machine
// with the WorkerID.
//
// Programs in other languages do the same with one POST of JSON; this package needs the standard
// library alone.
package readiness
