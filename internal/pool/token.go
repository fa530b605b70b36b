package pool

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// minToken is the fewest characters of a token that somebody else made.
const minToken = 16

// Token returns the token in a file. If the file does not exist, it is made, with a new token, and
// only its owner can read it. If a file or directory cannot be read or made, the error is an
// *fs.PathError.
func Token(name string) (string, error) {
	token, err := readToken(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return token, err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return "", err
	}
	file, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.new") // only its owner can read it
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = file.WriteString(rand.Text() + rand.Text() + "\n")
	if err := errors.Join(err, file.Close()); err != nil {
		return "", err
	}
	// The name appears with the whole token. If another supervisor has made a file in the meantime,
	// that one stays.
	if e, ok := errors.AsType[*os.LinkError](os.Link(file.Name(), name)); ok && !errors.Is(e, fs.ErrExist) {
		return "", &fs.PathError{Op: e.Op, Path: name, Err: e.Err}
	}
	return readToken(name)
}

// readToken returns the token in a file that exists.
func readToken(name string) (string, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(data))
	for _, c := range token {
		if c <= ' ' || c > '~' {
			return "", fmt.Errorf("%s: the token contains a space, a line break or a character that is not ASCII", name)
		}
	}
	if len(token) < minToken {
		return "", fmt.Errorf("%s: the token has %d characters; it must have at least %d", name, len(token), minToken)
	}
	return token, nil
}

// sameToken compares in a time that depends on neither token (P2).
func sameToken(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
