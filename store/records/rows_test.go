package records

import (
	"testing"

	"github.com/lessor-dev/lessor/lease"
)

// Builds that kept no category of an error wrote 1 for any: it must not be taken for one of the
// categories by which tasks are deleted.
func TestErrorOfAnOlderBuildHasNoKnownCategory(t *testing.T) {
	for stored, want := range map[byte]lease.Category{0: lease.NoCategory, 1: lease.UnknownCategory, 2: lease.UserCode, 7: lease.CategoryCancelled} {
		c := &codec{reading: true, in: []byte{stored}}
		got := lease.Timeout
		if errorCategory(c, &got); got != want || c.broken {
			t.Errorf("%d is read as %v, want %v", stored, got, want)
		}
		c = &codec{}
		if errorCategory(c, &want); len(c.out) != 1 || c.out[0] != stored {
			t.Errorf("%v is written as %v, want %d", want, c.out, stored)
		}
	}
}
