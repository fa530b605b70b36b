package main

import (
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// taskSelection says which tasks a command changes or waits for: those that are named, or those
// that a filter selects.
type taskSelection struct {
	TaskID     []string `arg:"" optional:"" help:"Ids of tasks."`
	taskFilter `embed:""`
	All        bool `typed:"" help:"Every task of the workspace."`
}

// selected returns the filter, or nil if tasks are named.
func (s taskSelection) selected(workspace string) (*lessorv1.TaskFilter, error) {
	switch {
	case len(s.TaskID) > 0 && (s.isSet() || s.All):
		return nil, fail(exitUsage, "name tasks, or select them by their properties",
			"task ids cannot be used with a filter or --all")
	case s.All && s.isSet():
		return nil, fail(exitUsage, "leave out --all, or leave out the conditions",
			"--all: selects every task of the workspace and cannot be used with conditions")
	case len(s.TaskID) > 0:
		return nil, nil
	case !s.All && !s.isSet():
		return nil, fail(exitUsage, "select tasks by --queue, --state, --worker, --since or another condition, or with --all", "no tasks are selected")
	}
	return s.filter(workspace)
}
