package main

import (
	"strings"

	"github.com/alecthomas/kong"

	"github.com/lessor-dev/lessor/internal/config"
)

// refuseIdle returns an error that names the flags on the command line that idle reports, if there
// are any: as the command is called, they would do nothing. Flags of the environment and of the
// file are not refused, since they are there for other calls, too. Two commands are stricter:
// serve, whose settings are all for one call, so that an idle one is a mistake; and token create,
// which says why.
func refuseIdle(line *kong.Context, why string, idle func(*kong.Flag) bool) error {
	var names []string
	for _, flag := range line.Flags() {
		if idle(flag) && config.PlaceOf(line, flag) == config.CommandLine {
			names = append(names, "--"+flag.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fail(exitUsage, "", "%s: %s", strings.Join(names, ", "), why)
}

// withoutAddr is why commands that start a coordinator of their own refuse the flags of a
// connection.
const withoutAddr = "only with --addr; the command starts a coordinator of its own"

// isConnection reports whether a flag says how to reach a coordinator, and with which credentials.
func isConnection(flag *kong.Flag) bool { return flag.Tag.Has("shared") }
