package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A received backup that is not a store shows that the coordinator's store may be damaged. If the received file cannot be read back, which can mean that its
// disk is full, that says nothing about the coordinator: the exit code is that of a file that cannot be written.
func TestCheckOfAReceivedBackup(t *testing.T) {
	for _, c := range []struct {
		name    string
		missing bool
		code    int
	}{
		{"not a store", false, exitFailed},
		{"cannot be read back", true, exitCannotStart},
	} {
		name := filepath.Join(t.TempDir(), "copy.db")
		file, err := newPendingFile(name, false, secret)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write(make([]byte, 1<<16)); err != nil {
			t.Fatal(err)
		}
		if c.missing {
			if err := os.Remove(file.Name()); err != nil {
				t.Fatal(err)
			}
		}
		if f := explain(backupCmd{File: name}.check(file, new(backupInfo))); f.code != c.code {
			t.Errorf("%s: exit code %d, want %d; %q", c.name, f.code, c.code, f.text)
		}
		if err := file.discard(); err != nil {
			t.Error(err)
		}
	}
}
