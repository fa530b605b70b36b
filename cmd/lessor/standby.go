package main

// standbyCmd is lessor standby.
type standbyCmd struct {
	Run     standbyRunCmd     `cmd:"" help:"Keep a copy of a coordinator's store up to date, commit by commit."`
	Promote standbyPromoteCmd `cmd:"" help:"Make the copy of a standby a store that a coordinator can serve."`
}
