package main

import (
	"strings"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// taskFilter has the conditions that select tasks. An empty value of a condition is refused,
// because it would not restrict anything: an unset variable of a script must not select all tasks.
type taskFilter struct {
	Queue          string            `typed:"" type:"nonempty" placeholder:"NAME" help:"Only tasks of this queue."`
	State          []string          `typed:"" type:"nonempty" placeholder:"STATE,..." help:"Only tasks in these states, for example READY,RUNNING. Repeatable."`
	RunID          string            `typed:"" type:"nonempty" name:"run-id" placeholder:"ID" help:"Only tasks of this run."`
	Type           string            `typed:"" type:"nonempty" placeholder:"NAME" help:"Only tasks of this type."`
	HostNode       string            `typed:"" type:"nonempty" placeholder:"ID" help:"Only tasks that are mounted on this node."`
	ConcurrencyKey string            `typed:"" type:"nonempty" placeholder:"KEY" help:"Only tasks with this concurrency key: those that hold it, wait for it, or have ended."`
	IdempotencyKey string            `typed:"" type:"nonempty" placeholder:"KEY" help:"Only the task with this idempotency key."`
	Worker         string            `typed:"" type:"nonempty" placeholder:"NAME" help:"Only tasks that this worker holds or, if no worker does, held last."`
	Since          when              `typed:"" placeholder:"TIME" help:"Only tasks submitted from this time on: RFC 3339, or a span from now such as -1h."`
	Until          when              `typed:"" placeholder:"TIME" help:"Only tasks submitted before this time: RFC 3339, or a span from now."`
	EndedSince     when              `typed:"" placeholder:"TIME" help:"Only tasks that ended from this time on: RFC 3339, or a span from now such as -1h."`
	EndedUntil     when              `typed:"" placeholder:"TIME" help:"Only tasks that ended before this time: RFC 3339, or a span from now."`
	EndReason      []string          `typed:"" type:"nonempty" placeholder:"REASON,..." help:"Only tasks that ended for one of these reasons, without an outcome, for example START_TIMEOUT. Repeatable."`
	ErrorCategory  []string          `typed:"" type:"nonempty" placeholder:"CATEGORY,..." help:"Only tasks whose last failed attempt had an error of one of these categories, for example TIMEOUT; add --state FAILED for those that failed for good. Repeatable."`
	Label          map[string]string `typed:"" placeholder:"KEY=VALUE" mapsep:"none" help:"Only tasks with this label; a comma belongs to the value. Repeatable."`
}

// isSet reports whether there is any condition.
func (f taskFilter) isSet() bool {
	return f.Queue != "" || len(f.State) > 0 || f.RunID != "" || f.Type != "" || f.HostNode != "" ||
		f.ConcurrencyKey != "" || len(f.Label) > 0 ||
		f.IdempotencyKey != "" || f.Worker != "" || !f.Since.IsZero() || !f.Until.IsZero() ||
		!f.EndedSince.IsZero() || !f.EndedUntil.IsZero() || len(f.EndReason) > 0 || len(f.ErrorCategory) > 0
}

func (f taskFilter) filter(workspace string) (*lessorv1.TaskFilter, error) {
	states, err := parseStates(f.State)
	if err != nil {
		return nil, err
	}
	reasons, err := parseReasons(f.EndReason)
	if err != nil {
		return nil, err
	}
	categories, err := parseCategories(f.ErrorCategory)
	if err != nil {
		return nil, err
	}
	if err := checkSpan("", f.Since, f.Until, ""); err != nil {
		return nil, err
	}
	if err := checkSpan("ended-", f.EndedSince, f.EndedUntil, ""); err != nil {
		return nil, err
	}
	return &lessorv1.TaskFilter{
		WorkspaceId:     workspace,
		Queue:           f.Queue,
		States:          states,
		RunId:           f.RunID,
		Type:            f.Type,
		HostNodeId:      f.HostNode,
		ConcurrencyKey:  f.ConcurrencyKey,
		Labels:          f.Label,
		IdempotencyKey:  f.IdempotencyKey,
		WorkerId:        f.Worker,
		CreatedAfter:    f.Since.timestamp(),
		CreatedBefore:   f.Until.timestamp(),
		FinishedAfter:   f.EndedSince.timestamp(),
		FinishedBefore:  f.EndedUntil.timestamp(),
		Reasons:         reasons,
		ErrorCategories: categories,
	}, nil
}

// parseStates reads the names of states.
func parseStates(names []string) ([]lessorv1.TaskState, error) {
	return parseNames(names, words.StateNamed, func(name string) error {
		return fail(exitUsage, "states are "+strings.Join(words.StateNames(), ", "), "--state: %q is not a state", name)
	})
}

// parseReasons reads the names of reasons for which tasks end.
func parseReasons(names []string) ([]lessorv1.Reason, error) {
	return parseNames(names, words.EndReasonNamed, func(name string) error {
		return fail(exitUsage, "reasons are "+strings.Join(words.EndReasonNames(), ", "),
			"--end-reason: %q is not a reason for which a task ends", name)
	})
}

// parseCategories reads the names of categories of errors.
func parseCategories(names []string) ([]lessorv1.ErrorCategory, error) {
	return parseNames(names, words.CategoryNamed, func(name string) error {
		return fail(exitUsage, "categories are "+strings.Join(words.CategoryNames(), ", "),
			"--error-category: %q is not a category of errors", name)
	})
}

// parseNames reads names of values of an enum, with or without its prefix, in any case.
func parseNames[E any](
	names []string, named func(string) (E, bool), refused func(name string) error,
) (values []E, err error) {
	for _, name := range names {
		value, known := named(name)
		if !known {
			return nil, refused(name)
		}
		values = append(values, value)
	}
	return values, nil
}
