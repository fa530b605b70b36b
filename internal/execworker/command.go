package execworker

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// placeholder is replaced by the payload, inside of any argument.
const placeholder = "{}"

// Command is a program with its arguments.
type Command []string

// Check returns an error if there is no command, or its program cannot be found. It cannot check a program whose name contains the placeholder.
func (c Command) Check() error {
	if len(c) == 0 || c[0] == "" {
		return errors.New("no command was given")
	}
	if strings.Contains(c[0], placeholder) {
		return nil
	}
	if _, err := exec.LookPath(c[0]); err != nil {
		return fmt.Errorf("cannot run %q: %w", c[0], errors.Unwrap(err))
	}
	return nil
}

// Fill returns the command for one payload: the payload replaces every {}. Without any {} it becomes the last argument, as with xargs.
func (c Command) Fill(payload string) Command {
	filled := make(Command, len(c), len(c)+1)
	found := false
	for i, arg := range c {
		found = found || strings.Contains(arg, placeholder)
		filled[i] = strings.ReplaceAll(arg, placeholder, payload)
	}
	if !found {
		filled = append(filled, payload)
	}
	return filled
}
