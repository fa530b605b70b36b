package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/alecthomas/kong"
)

// The place of a flag is the one whose value it has, also if others have one too.
func TestPlaceOf(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lessor.yaml")
	if err := os.WriteFile(name, []byte("serve: {data: /file}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	all := []string{"--config", name, "serve", "--data", "/flag"}
	for what, test := range map[string]struct {
		args  []string
		env   bool
		want  Place
		value string
	}{
		"default":                 {[]string{"serve"}, false, Default, "/default"},
		"file":                    {all[:3], false, InFile, "/file"},
		"environment":             {[]string{"serve"}, true, Variable, "/env"},
		"environment and file":    {all[:3], true, Variable, "/env"},
		"command line":            {all[2:], false, CommandLine, "/flag"},
		"command line and others": {all, true, CommandLine, "/flag"},
	} {
		t.Run(what, func(t *testing.T) {
			if test.env {
				t.Setenv("LESSOR_DATA", "/env")
			}
			parser, err := kong.New(&testFlags{}, Environment("LESSOR"))
			if err != nil {
				t.Fatal(err)
			}
			ctx, err := parser.Parse(test.args)
			if err != nil {
				t.Fatal(err)
			}
			for _, flag := range ctx.Flags() {
				if flag.Name != "data" {
					continue
				}
				if got, value := PlaceOf(ctx, flag), ctx.FlagValue(flag); got != test.want || value != test.value {
					t.Errorf("place %d, value %v, want %d and %s", got, value, test.want, test.value)
				}
			}
		})
	}
}
