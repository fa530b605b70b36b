// Package config gives the flags of a kong grammar their values: the command line wins over the environment, which wins
// over the configuration file, which wins over the default.
//
// Every flag has one path, for example "worker run jobs", and takes its two other names from it:
//
//	in the file         worker: {run: {jobs: 4}}
//	in the environment  LESSOR_WORKER_RUN_JOBS
//
// A flag tagged shared:"" belongs to several commands and has its name alone as path. The name of a command tagged bare:""
// is left out of its environment variables, and a flag with an env tag of its own keeps that name.
package config
