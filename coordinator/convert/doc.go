// Package convert converts wire messages to the types of packages lease and engine, and back. It
// holds no state. It refuses a message that it cannot read with an error that names the path of the
// field.
//
// # From the wire
//
//	fields.go           reads fields one by one, and keeps the error about the first bad one
//	parse_*.go          parse requests and frames; placement.go packages.go: the fields that decide which worker gets a task
//	digest.go           identifies the content of a message
//	utf8.go             finds the string that is not UTF-8; unknown.go: finds fields that this program does not know
//
// # To the wire
//
//	task.go feed.go     tasks, their history, progress and output of running attempts
//	verdict.go          the forms of a verdict; tokens.go: the task tokens that come with it
//	assignment.go       assignments: everything that the holder of a lease needs, read from the store
//	credentials.go      roles, tokens and keys
//	times.go            timestamps and durations that the items of a frame share
package convert
