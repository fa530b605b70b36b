package main

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
)

// changeEach makes one call for every task, queue or worker. If one is refused, the others are
// changed all the same.
func changeEach(
	a *app, ids []string, call func(ctx context.Context, id string) (answer proto.Message, line string, err error),
) error {
	var refused []*failure
	for _, id := range ids {
		answer, line, err := call(a.ctx, id)
		if err == nil {
			err = printChange(a, answer, line)
		}
		if err != nil {
			refused = append(refused, withID(id, err))
		}
	}
	return joined(refused)
}

// withID explains an error about one task, queue or worker. It puts the id in front of each line of
// the text, unless the text has the id already. That something does not exist is said without its
// id, but "queue", for example, may be one. An empty id changes nothing.
func withID(id string, err error) *failure {
	f := *explain(err)
	if id == "" || f.code != exitNotFound && strings.Contains(f.text, id) {
		return &f
	}
	f.text = fmt.Sprintf("%s: %s", id, strings.ReplaceAll(f.text, "\n", "\n"+id+": "))
	return &f
}

// taskLeftOut is listLeftOut for the answer to a submit or a change, which has a task as in a list.
var taskLeftOut = below("task", listLeftOut)

func below(name string, paths []string) []string {
	var all []string
	for _, path := range paths {
		all = append(all, name+"."+path)
	}
	return all
}

func printChange(a *app, answer proto.Message, line string) error {
	return unheard(a.answer(answer, line), "", "%s: done", strings.ReplaceAll(line, "\t", " "))
}

// answer prints what a submit or a change was answered, as JSON or else as the line.
func (a *app) answer(m proto.Message, line string) error {
	if a.json {
		return printJSON(a.out, m, taskLeftOut...)
	}
	_, err := fmt.Fprintln(a.out, line)
	return err
}

// unheard returns the error for a command that has done something but cannot write its answer, or
// nil for nil. The text says what was done: whoever gets only the exit code would believe that it
// was not.
func unheard(err error, hint, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fail(explain(err).code, hint, "%s, but the answer cannot be written: %v", fmt.Sprintf(format, args...), err)
}

// joined returns all failures as one failure, with the exit code and hint of the first.
func joined(failures []*failure) error {
	if len(failures) == 0 {
		return nil
	}
	var lines []string
	for _, f := range failures {
		lines = append(lines, f.text)
	}
	return fail(failures[0].code, failures[0].hint, "%s", strings.Join(lines, "\n"))
}
