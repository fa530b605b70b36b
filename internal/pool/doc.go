// Package pool supervises the worker processes of one machine, and knows which of them are ready
// (rules P1 to P4). It is what lessor pool run does.
//
// A file describes pools; each pool has workers that run the same command, for example one for each
// GPU. A worker is a process, and after its end the next one. Its states:
//
//	STARTING                      the process runs
//	STARTING       -> READY       it said that it is ready, or its pool has no ready_timeout
//	STARTING READY -> DRAINING    it said so, or the supervisor stops
//	   any of them -> FAILED      it said so, or was not ready in time; it is being stopped
//	   any of them -> WAITING     it has ended; the next process is STARTING after a wait
//	   any of them -> STOPPED     it has ended, and no other follows
//
// The parts, from the file to the wire:
//
//	config.go      what the file says, and what it must not say
//	process.go     one process: how it is started, and the end of it
//	worker.go      the life of a worker: notifications, timeouts, restarts, the drain
//	backoff.go     how long it waits between two processes
//	supervisor.go  all workers, from the start to the last end
//	service.go     PoolService: notifications come in, lists go out
//	listener.go    one port for gRPC and HTTP, behind the bearer token
//	http.go        the notifications as JSON, and the metrics
//	output.go      what the processes print, with the worker before each line
//	metrics.go     what is counted
//	token.go       the bearer token
package pool
