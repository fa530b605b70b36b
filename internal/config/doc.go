// Package config gives the flags of a kong grammar their values: the command line wins over the
// environment, which wins over the configuration file, which wins over the default.
//
// Every flag has one path, for example "worker run jobs", and takes its two other names from it:
//
//	in the file         worker: {run: {jobs: 4}}
//	in the environment  LESSOR_WORKER_RUN_JOBS
//
// A flag tagged shared:"" belongs to several commands, and its path is only its name. The
// environment variables of a command tagged bare:"" do not contain the name of the command. A flag
// with an env tag of its own keeps that name. A flag tagged typed:"" has its value only from the
// command line: elsewhere it could be left over from another purpose.
package config
