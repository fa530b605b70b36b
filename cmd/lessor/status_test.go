package main

import (
	"testing"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// The status of a full disk says how much room there is and how much new tasks need, and whether
// deleting tasks can make it. Callers who are not told how large the store is see nothing of that.
func TestRoomText(t *testing.T) {
	of := func(needed uint64) *lessorv1.GetStatusResponse {
		return &lessorv1.GetStatusResponse{
			StoreBytes: 300 << 20, StoreFreeBytes: 200 << 20, DiskFreeBytes: new(uint64(16 << 20)),
			DiskNeededBytes: new(uint64(144 << 20)), StoreNeededBytes: &needed,
		}
	}
	const has = ": 16.0 MiB are free on the disk and 200.0 MiB inside the store; new tasks need 144.0 MiB on the disk, "
	for _, c := range []struct {
		status *lessorv1.GetStatusResponse
		want   string
	}{
		{of(225 << 20), has + "or 225.0 MiB inside the store, where deleting tasks makes room"},
		{of(301 << 20), has + "which deleting tasks cannot give: remove other files, or compact or move the store"},
		{of(0), ": lessor.reserve is made first; if it cannot be, the log of the coordinator says why"},
		{&lessorv1.GetStatusResponse{StoreBytes: 300 << 20}, ""},
	} {
		if got := roomText(c.status); got != c.want {
			t.Errorf("roomText(%v) = %q, want %q", c.status, got, c.want)
		}
	}
}
