// Package httpapi serves lessor.v1 as plain JSON over HTTP, for workers without gRPC and people
// with curl. docs/http.md shows the whole conversation, openapi.json describes every field.
//
//	route                                 file                   who may
//	POST   /v1/tasks/{task_id}/started    started.go             the holder of the attempt, by its task token
//	POST   /v1/tasks/{task_id}/heartbeat  heartbeat.go           the same
//	POST   /v1/tasks/{task_id}/completed  completed.go           the same
//	POST   /v1/leases                     leases.go              a worker, by its credential
//	POST   /v1/tasks                      tasks_submit.go        a producer
//	POST   /v1/tasks:batchSubmit          tasks_batch_submit.go  a producer
//	POST   /v1/tasks:batchCancel          tasks_bulk.go          a producer
//	POST   /v1/tasks:batchRetry           tasks_bulk.go          a producer
//	POST   /v1/tasks:batchDelete          tasks_bulk.go          an operator
//	GET    /v1/tasks                      tasks_list.go          a viewer
//	GET    /v1/tasks/{task_id}            tasks_get.go           a viewer; may wait for the end of the task
//	POST   /v1/tasks/{task_id}:cancel     tasks_cancel.go        a producer
//	POST   /v1/tasks/{task_id}:retry      tasks_retry.go         a producer
//	POST   /v1/tasks/{task_id}:adopt      tasks_adopt.go         an operator
//	DELETE /v1/tasks/{task_id}            tasks_delete.go        an operator
//	GET    /v1/tasks/{task_id}/events     events.go              a viewer
//	GET    /openapi.json                  openapi.go             everyone
//
// api.go lists the routes and finds that of a request, call.go gives a request the form of a gRPC
// call, and callback.go is what the first three routes share. answer.go is what handlers answer
// with, and event_stream.go how events are sent. A task is submitted as spec.go reads it, and shown
// again by spec_shown.go; report_parts.go is the parts of reports that tasks show as well. names.go
// translates names, and scalars.go single values.
//
// # The path of a request
//
// Requests that a web page in a browser may have sent are refused first (host.go, and package http
// for other origins), then those without a route (front.go). A handler reads the body (body.go) and
// its JSON strictly (decode.go, package strictjson), or the parameters of the URL in the same way
// (query.go), makes the request of a gRPC call from it, and calls the services like any client. So
// the request passes the same checks and the same engine, and gets the same verdicts. Then the
// response is converted to JSON: a verdict by verdict.go (H2), an error status by problem.go, a
// task by task.go. The handlers hold no state and take no decision.
//
// Names are camelCase. States and reasons have no prefix. Timestamps are RFC 3339. Durations are
// numbers of milliseconds, and their names end in Ms. A field that is bytes in gRPC (payload,
// output, checkpoint) has two forms here: any JSON value, which is stored as its text, or base64 in
// a field whose name ends in Base64 (content.go). A TaskFilter (tasks_filter.go) is in the
// parameters of a list, and in the body of a request that changes many tasks.
package httpapi
