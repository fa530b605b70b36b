package main

// taskCmd is lessor task.
type taskCmd struct {
	Get     taskGetCmd     `cmd:"" help:"Show one task with its history."`
	Explain taskExplainCmd `cmd:"" help:"Explain why a task is in its state, and what happened to its last lease."`
	List    taskListCmd    `cmd:"" help:"List tasks, oldest or newest first."`
	Count   taskCountCmd   `cmd:"" help:"Count tasks by state."`
	Cancel  taskCancelCmd  `cmd:"" help:"Cancel tasks."`
	Retry   taskRetryCmd   `cmd:"" help:"Open a new round for tasks that failed or were cancelled."`
	Delete  taskDeleteCmd  `cmd:"" help:"Delete tasks."`
	Adopt   taskAdoptCmd   `cmd:"" help:"Make a result that came too late the outcome of its task."`
	Watch   taskWatchCmd   `cmd:"" help:"Follow the events of a task or a run."`
	Wait    taskWaitCmd    `cmd:"" help:"Wait until tasks have ended."`
}
