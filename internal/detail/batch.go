package detail

import (
	"strconv"
	"strings"

	"google.golang.org/grpc/status"
)

// TooManyTasks reports whether a batch of submits was refused because of its number of tasks, and
// not because of one of them (S7, X5). Smaller batches may be accepted then.
func TooManyTasks(err error) bool {
	path, _ := Field(status.Convert(err))
	return path == "tasks"
}

// NoRoom reports whether a call was refused because the quota of tasks has no room for what it
// would make (X5). There may be room for a part of it.
func NoRoom(err error) bool { return ReasonOf(status.Convert(err)) == "QUOTA_TASKS" }

// BadTask returns the index of the task because of which a batch of n submits was refused, and in
// words the field of its spec and what is wrong with it. ok is false if the reason is not one of
// the tasks.
func BadTask(err error, n int) (index int, problem string, ok bool) {
	path, problem := Field(status.Convert(err))
	number, field, _ := strings.Cut(strings.TrimPrefix(path, "tasks["), "].")
	index, bad := strconv.Atoi(number)
	return index, field + ": " + problem, bad == nil && index >= 0 && index < n
}
