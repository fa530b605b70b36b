package main

// workerCmd is lessor worker.
type workerCmd struct {
	List      workerListCmd      `cmd:"" help:"List the workers that are connected."`
	Get       workerGetCmd       `cmd:"" help:"Show a worker, its health, and what it holds."`
	Drain     workerDrainCmd     `cmd:"" help:"Drain workers: no new tasks, running ones finish."`
	Kick      workerKickCmd      `cmd:"" help:"Disconnect workers."`
	Install   workerInstallCmd   `cmd:"" help:"Have workers install a package."`
	Uninstall workerUninstallCmd `cmd:"" help:"Have workers remove a package."`
	Run       workerRunCmd       `cmd:"" help:"Run a worker that runs a command for every task."`
	Check     workerCheckCmd     `cmd:"" help:"Check that a worker, in any language, keeps the rules."`
}
