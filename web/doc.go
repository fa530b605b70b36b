// Package web serves the page: what a coordinator does at present, for people with a browser. It
// shows and changes nothing; where something can be done, it shows the command for it.
//
//	path              file        shows
//	/ui/              queues.go   the coordinator, and the queues of a workspace
//	/ui/queue?name=   queues.go   a queue with its settings and tasks, and why it waits (waits.go)
//	/ui/tasks         tasks.go    the tasks that match a filter (times.go)
//	/ui/tasks/{id}    task.go     why a task is where it is, what it is, and what happened to it
//	/ui/run?id=       run.go      how far a run is, and which of its tasks failed
//	/ui/task?id=      web.go      no page: leads to the task with an id that somebody has typed
//	/ui/workers       workers.go  the sessions of workers
//	/ui/worker?name=  workers.go  the sessions of a worker with their tasks
//
// web.go finds the page of a path, and answers with it or with an error. query.go reads what is
// behind the question mark; search.go goes on in a long list until it has a row. Templates call
// functions.go; the commands that pages show are made by command.go.
//
// The package is a client of lessor.v1 like any other: each path makes a few calls with the
// credential of its reader (decision 0027), and templates/ turns the answers into HTML. It works
// without JavaScript; page.js keeps what it shows up to date.
package web
