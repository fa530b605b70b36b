package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/alecthomas/kong"

	"github.com/lessor-dev/lessor/coordinator/session"
	"github.com/lessor-dev/lessor/store"
)

// version is set by the release build with -ldflags "-X main.version=v1.2.3".
var version string

// versionCmd is lessor version.
type versionCmd struct{}

func (versionCmd) Run(a *app) error {
	if a.json {
		return json.NewEncoder(a.out).Encode(map[string]any{
			"version":      buildVersion(),
			"go":           runtime.Version(),
			"protocol":     session.Protocol,
			"store_format": store.Current().Format(),
		})
	}
	_, err := fmt.Fprintln(a.out, versionLine())
	return err
}

func versionLine() string {
	return fmt.Sprintf("lessor %s (protocol %d, store format %d, %s)",
		buildVersion(), session.Protocol, store.Current().Format(), runtime.Version())
}

// versionFlag is --version. It prints the same as lessor version, wherever it stands on the command
// line.
type versionFlag bool

// BeforeReset is called as soon as kong sees the flag, even if required arguments are missing.
func (versionFlag) BeforeReset(k *kong.Kong) error {
	if _, err := fmt.Fprintln(k.Stdout, versionLine()); err != nil {
		return err
	}
	k.Exit(exitOK)
	return nil
}

// buildVersion returns the release; if there is none, the module version or the commit that the go
// command recorded; else "devel".
func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	return "devel" + revision(info)
}

// revision returns "+" and the commit of a build in a checkout, or "".
func revision(info *debug.BuildInfo) string {
	const shown = 12
	var commit, mark string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			mark = "-dirty"
		}
	}
	if commit == "" {
		return ""
	}
	return "+" + commit[:min(len(commit), shown)] + mark
}
