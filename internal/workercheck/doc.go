// Package workercheck checks that a worker, in any language, does what workers owe (docs/rules.md,
// K1 to K6, and what of A, W and V concerns workers). It starts the worker as a process, for each
// case anew, against a real coordinator in memory, and stands between the two: it listens to what
// the worker says, by gRPC or HTTP, and does to the worker what bad networks and bad days do.
//
//	check.go     Check runs all cases
//	cases.go     the list of cases: what the worker must do; what happens in them is in
//	             cases_reports.go, cases_leases.go, cases_line.go, cases_dispatch.go,
//	             cases_session.go and cases_end.go
//	rig.go       what a case has in its hands: a coordinator, the worker, the line between them
//	wait.go      what cases wait for, and find
//	program.go   the process of the worker
//	word.go      one thing that the worker said about an attempt
//	record.go    all that the worker has said, and what it was told
//	line.go      the listeners for the worker, which can be taken down
//	tap.go       the faults; tap_grpc.go and tap_http.go listen and carry, tap_frames.go reads
//	             what gRPC carries, and puts the faults in
//	dispatches.go
//	             which attempts an acknowledgement of a frame is about
//	busy.go      how the coordinator refuses for a while
//	distort.go   what a worker must put up with in answers: fields that it does not know, other clocks
package workercheck
