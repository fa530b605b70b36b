package main

import (
	"strings"
	"testing"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// The artifacts of a discarded result are below it, without a name of their own.
func TestArtifactsOfADiscardedResultAreBelowIt(t *testing.T) {
	var out strings.Builder
	d := newDetails(&out)
	d.addDiscarded(&lessorv1.Task{Discarded: []*lessorv1.DiscardedResult{
		{WorkerId: "w", Artifacts: []*lessorv1.Artifact{{ResourceId: "a.1", SizeBytes: 9}, {ResourceId: "a.2", SizeBytes: 8}}},
	}})
	if err := d.flush(); err != nil {
		t.Fatal(err)
	}
	if _, below, _ := strings.Cut(out.String(), "\n"); below != "            a.1, 9 B\n            a.2, 8 B\n" {
		t.Errorf("the task shows\n%s", &out)
	}
}
