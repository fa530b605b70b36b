package execworker

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// Command is a program with its arguments.
type Command []string

// Check returns an error if there is no command, or its program cannot be found. It cannot check a
// program whose name contains the placeholder.
func (c Command) Check(placeholder string) error {
	if len(c) == 0 || c[0] == "" {
		return errors.New("no command was given")
	}
	if placeholder != "" && strings.Contains(c[0], placeholder) {
		return nil
	}
	if _, err := exec.LookPath(c[0]); err != nil {
		return fmt.Errorf("cannot run %q: %w", c[0], errors.Unwrap(err))
	}
	return nil
}

// Fill returns the command for one payload: the payload replaces every placeholder, inside of any
// argument. Without any it becomes the last argument, as with xargs; that is so, too, if the
// placeholder is empty.
func (c Command) Fill(placeholder, payload string) Command {
	filled := make(Command, len(c), len(c)+1)
	found := false
	for i, arg := range c {
		if placeholder == "" || !strings.Contains(arg, placeholder) {
			filled[i] = arg
			continue
		}
		found = true
		filled[i] = strings.ReplaceAll(arg, placeholder, payload)
	}
	if !found {
		filled = append(filled, payload)
	}
	return filled
}
