package pool

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// The token is made once, for its owner alone, and stays.
func TestTokenIsMadeOnce(t *testing.T) {
	t.Attr("rules", "P2")
	dir := filepath.Join(t.TempDir(), "a", "b")
	name := filepath.Join(dir, "token")
	if _, err := readToken(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want that there is no file", err)
	}
	first, err := Token(name)
	if err != nil || len(first) < 2*minToken {
		t.Fatalf("token %q, error %v, want a long token", first, err)
	}
	if again, err := Token(name); again != first || err != nil {
		t.Errorf("the second token is %q (%v), want %q", again, err, first)
	}
	if read, err := readToken(name); read != first || err != nil {
		t.Errorf("read %q (%v), want %q", read, err, first)
	}
	if info, err := os.Stat(name); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v (%v), want %v", info.Mode(), err, fs.FileMode(0o600))
	}
	if files, err := os.ReadDir(dir); len(files) != 1 || err != nil {
		t.Errorf("the directory has %v (%v), want only the token", files, err)
	}
	if other, err := Token(filepath.Join(dir, "other")); other == first || err != nil {
		t.Errorf("another file has the token %q (%v), want another one", other, err)
	}
}

// A token that somebody else made is taken without the space around it, if it fits into a header
// and cannot be guessed.
func TestTokenOfSomebodyElse(t *testing.T) {
	t.Attr("rules", "P2")
	name := filepath.Join(t.TempDir(), "token")
	for _, test := range []struct{ text, token, problem string }{
		{text: " 0123456789abcdef\r\n", token: "0123456789abcdef"},
		{text: "0123456789abcde~", token: "0123456789abcde~"},
		{text: "0123456789abcde\n", problem: "the token has 15 characters; it must have at least 16"},
		{text: "", problem: "the token has 0 characters; it must have at least 16"},
		{text: "0123456789abcdef 0", problem: "contains a space"},
		{text: "0123456789abcdef\n0", problem: "a line break"},
		{text: "0123456789abcdef\x7f", problem: "not ASCII"},
		{text: "0123456789abcdefé", problem: "not ASCII"},
	} {
		if err := os.WriteFile(name, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		token, err := Token(name)
		if token != test.token || (err == nil) != (test.problem == "") {
			t.Errorf("%q: token %q, error %v, want %q", test.text, token, err, test.token)
		}
		if err != nil && (!strings.Contains(err.Error(), test.problem) || !strings.HasPrefix(err.Error(), name) || strings.Contains(err.Error(), "012345")) {
			t.Errorf("%q: error %v, want the file and %q, and nothing of the token", test.text, err, test.problem)
		}
	}
}

// Supervisors that begin at the same time have the same token.
func TestTokenOfTwoSupervisors(t *testing.T) {
	t.Attr("rules", "P2")
	const supervisors, rounds = 8, 20
	dir := t.TempDir()
	for i := range rounds {
		name := filepath.Join(dir, string(rune('a'+i)))
		var tokens [supervisors]string
		var all sync.WaitGroup
		for j := range tokens {
			all.Go(func() {
				var err error
				if tokens[j], err = Token(name); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for _, token := range tokens {
			if token != tokens[0] {
				t.Errorf("tokens %q, want one", tokens)
			}
		}
	}
}

// A directory that cannot be made, and a file that cannot be read, are errors of their files.
func TestTokenWithoutAFile(t *testing.T) {
	for _, name := range []string{"/dev/null/token", t.TempDir()} {
		_, err := Token(name)
		if e, ok := errors.AsType[*fs.PathError](err); !ok || !strings.HasPrefix(name, e.Path) {
			t.Errorf("%s: error %v, want one that names the file", name, err)
		}
	}
}

// Only the token itself is the token.
func TestSameToken(t *testing.T) {
	t.Attr("rules", "P2")
	for _, test := range []struct {
		a, b string
		same bool
	}{{"a", "a", true}, {"a", "b", false}, {"a", "", false}, {"a", "aa", false}, {"aa", "a", false}, {"A", "a", false}} {
		if sameToken(test.a, test.b) != test.same {
			t.Errorf("%q and %q: want same: %v", test.a, test.b, test.same)
		}
	}
}
