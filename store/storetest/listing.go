package storetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/store"
)

// Listing returns the contents of a store, a line for each record. Two stores hold the same records
// if their listings are equal.
func Listing(t testing.TB, s store.Store) string {
	t.Helper()
	var all strings.Builder
	err := s.View(func(r store.Reader) error {
		for ks := range store.Keyspace(store.NumKeyspaces) {
			err := r.Scan(ks, nil, nil, func(key, value []byte) bool {
				fmt.Fprintf(&all, "%v %x %x\n", ks, key, value)
				return true
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
