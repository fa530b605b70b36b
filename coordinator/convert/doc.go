// Package convert converts messages of the wire to the types of the rules, and back. It holds no state and calls nothing else. It refuses
// what it cannot read with an error that names the path of the field.
//
// # From the wire
//
//	fields.go           reads fields one by one, and keeps the first that is bad
//	parse_*.go          what each request or frame says; placement.go: what decides which worker gets a task
//	digest.go           identifies the content of a message
//	utf8.go             finds the string that is not UTF-8; unknown.go: finds fields that this program does not know
//
// # To the wire
//
//	task.go feed.go     tasks, their history, progress and output of running attempts
//	verdict.go          the forms of a verdict; tokens.go: the task tokens that come with it
//	assignment.go       what the holder of a lease needs, read from the store
//	times.go            timestamps and durations that the items of a frame share
package convert
