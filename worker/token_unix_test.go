//go:build unix

package worker

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func newFIFO(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "token")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// A pipe gives its token once. The writer may come after the reader.
func TestTokenFromAPipe(t *testing.T) {
	name := newFIFO(t)
	synctest.Test(t, func(t *testing.T) {
		token := TokenFile(name)
		time.AfterFunc(time.Second, func() {
			if err := os.WriteFile(name, []byte("secret\n"), 0o600); err != nil {
				t.Error(err)
			}
		})
		for range 2 {
			got, err := token.GetRequestMetadata(t.Context())
			if err != nil || got["authorization"] != "Bearer secret" {
				t.Fatalf("metadata %q, %v; want the token of the pipe", got, err)
			}
		}
	})
}

// A terminal gives its token once, too: a second call would wait for somebody who types it again.
// /dev/null stands for it.
func TestTokenFromATerminal(t *testing.T) {
	token := &Token{file: os.DevNull, token: "typed"}
	if err := token.read(); err != nil {
		t.Errorf("the second read: %v, want none", err)
	}
}
