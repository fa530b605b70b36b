package bench

import (
	"context"
	"slices"
	"strings"
	"testing"
)

// If the tasks of a phase cannot be deleted, the user is told where they are.
func TestTasksThatAreLeftAreNamed(t *testing.T) {
	c, workspace, said := smallest(), "", []string(nil)
	c.Addr, c.Progress = "127.0.0.1:1", func(what string) { said = append(said, what) } // nobody answers there
	_, err := c.measure(t.Context(), c.remoteCoordinator(), phase{"drain", func(_ context.Context, r *rig) (samples, error) {
		workspace = r.workspace
		return nil, nil
	}})
	if err == nil || !slices.ContainsFunc(said, func(what string) bool { return strings.Contains(what, " workspace "+workspace+" ") }) {
		t.Errorf("error %v, the user was told %q, want an error and the workspace %s", err, said, workspace)
	}
}
