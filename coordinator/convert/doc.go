// Package convert turns what is on the wire into the types of the rules and back. It holds no state and asks nobody: what it cannot
// read it refuses by the path of the field.
//
// # From the wire
//
//	fields.go           reads fields one by one, and keeps the first that is bad
//	parse_*.go          what each request or frame says; placement.go: what decides which worker gets a task
//	digest.go           what a message is known by
//	utf8.go             where a string is that could not be read; unknown.go: where a field is that nobody here knows
//
// # To the wire
//
//	task.go feed.go     tasks, their history, what is told of running attempts
//	verdict.go          the forms of a verdict; tokens.go: the task tokens that come with it
//	assignment.go       what the holder of a lease needs, read from the store
//	times.go            timestamps and durations that the items of a frame share
package convert
