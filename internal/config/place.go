package config

import (
	"os"

	"github.com/alecthomas/kong"
)

// Place says from where a flag has its value. A lower Place takes precedence over a higher one.
type Place int

// The places, as docs/configuration.md lists them.
const (
	CommandLine Place = iota
	Variable
	InFile
	Default
)

// PlaceOf returns the place of a flag. Call it after the arguments were parsed.
func PlaceOf(ctx *kong.Context, flag *kong.Flag) Place {
	resolved := false
	for _, step := range ctx.Path {
		if step.Flag == flag && !step.Resolved {
			return CommandLine
		}
		resolved = resolved || step.Flag == flag
	}
	for _, env := range flag.Tag.Envs {
		if _, set := os.LookupEnv(env); set {
			return Variable
		}
	}
	if resolved {
		return InFile
	}
	return Default
}
