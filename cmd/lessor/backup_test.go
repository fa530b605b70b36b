package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
)

// brokenBackup returns the backup of a store with a record that cannot be read.
func brokenBackup(t *testing.T) []byte {
	t.Helper()
	st, err := boltstore.Open(t.TempDir(), boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	b.Put(store.Spec, []byte("key"), []byte("value"))
	if err := st.Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	var backup bytes.Buffer
	if _, err := st.Snapshot(&backup); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	return backup.Bytes()
}

// A received backup that is not a store, or has findings, shows that the coordinator's store may be damaged. If the received file cannot be read back, which can mean that its
// disk is full, that says nothing about the coordinator: the exit code is that of a file that cannot be written.
func TestCheckOfAReceivedBackup(t *testing.T) {
	for _, c := range []struct {
		name    string
		data    []byte
		missing bool
		code    int
	}{
		{"not a store", make([]byte, 1<<16), false, exitFailed},
		{"has findings", brokenBackup(t), false, exitFailed},
		{"cannot be read back", make([]byte, 1<<16), true, exitCannotStart},
	} {
		name := filepath.Join(t.TempDir(), "copy.db")
		file, err := newPendingFile(name, false, secret)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write(c.data); err != nil {
			t.Fatal(err)
		}
		if c.missing {
			if err := os.Remove(file.Name()); err != nil {
				t.Fatal(err)
			}
		}
		var said bytes.Buffer
		if code := report(streams{err: &said}, backupCmd{File: name}.check(file, new(backupInfo))); code != c.code {
			t.Errorf("%s: exit code %d, want %d; it said %s", c.name, code, c.code, &said)
		}
		if err := file.discard(); err != nil {
			t.Error(err)
		}
	}
}
