package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

var _ credentials.PerRPCCredentials = (*Token)(nil)

// Token sends a bearer token with every call, for workers and producers alike:
//
//	conn, err := worker.Dial(target, grpc.WithPerRPCCredentials(worker.TokenFile("/run/secrets/lessor")))
//
// Make one with TokenFile or StaticToken, or use a source of your own: any credentials.PerRPCCredentials. It is safe for concurrent use.
type Token struct {
	// PlainText allows the token to be sent over connections without TLS as well, where everyone on the way can read it. It is for
	// coordinators on this machine.
	PlainText bool

	file string // empty: the token never changes

	mu       sync.Mutex
	token    string
	modified time.Time
	size     int64
}

// StaticToken returns a token that never changes.
func StaticToken(token string) *Token { return &Token{token: token} }

// TokenFile returns a token that is read from a file; white space around it is ignored. Each call checks whether the file has changed, and
// if so reads it again, so that a new token needs no restart. While the file cannot be read, the last token stays in use. A pipe is read only
// once, and must have a writer within a few seconds.
func TokenFile(path string) *Token { return &Token{file: path} }

// GetRequestMetadata implements credentials.PerRPCCredentials. The error is UNAUTHENTICATED if no token could ever be read.
func (t *Token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := t.current()
	if err != nil {
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (t *Token) RequireTransportSecurity() bool { return !t.PlainText }

func (t *Token) current() (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == "" {
		if err := checkToken(t.token); err != nil {
			return "", fmt.Errorf("the given token: %w", err)
		}
		return t.token, nil
	}
	err := t.read()
	if t.token == "" {
		return "", err
	}
	return t.token, nil
}

// errNoToken is the error for an empty file, errInvalidToken the error for text that cannot be a token.
var (
	errNoToken      = errors.New("it is empty")
	errInvalidToken = errors.New("it contains a space, a line break or a character that is not ASCII")
)

// checkToken returns an error for a token that gRPC could not send.
func checkToken(token string) error {
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errInvalidToken
	}
	return nil
}

// read reads the file if it has changed.
func (t *Token) read() error {
	info, err := os.Stat(t.file)
	if err != nil {
		return fmt.Errorf("token file: %w", err)
	}
	isPipe := info.Mode()&fs.ModeNamedPipe != 0
	if t.token != "" && (isPipe || info.ModTime().Equal(t.modified) && info.Size() == t.size) {
		return nil
	}
	read := os.ReadFile
	if isPipe {
		read = readPipe
	}
	text, err := read(t.file)
	token := strings.TrimSpace(string(text))
	if err == nil && token == "" {
		err = errNoToken
	}
	if err == nil {
		err = checkToken(token)
	}
	if err != nil {
		return fmt.Errorf("token file %s: %w", t.file, err)
	}
	t.token, t.modified, t.size = token, info.ModTime(), info.Size()
	return nil
}

// writerWithin is how long a pipe may have no writer.
const writerWithin = 3 * time.Second

// readPipe reads a pipe, which may be the FIFO of another program or a process substitution of the shell. Opened in the usual way, a pipe
// that never gets a writer would hang the caller.
func readPipe(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var text []byte
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		more, err := io.ReadAll(f) // waits while there is a writer, and ends at once while there is none
		text = append(text, more...)
		switch {
		case errors.Is(err, syscall.EAGAIN): // there is a writer; on macOS the read does not wait for it
			began = time.Now()
		case len(text) > 0 || err != nil:
			return text, err
		case time.Since(began) >= writerWithin:
			return nil, fmt.Errorf("it is a pipe into which nobody has written within %v", writerWithin)
		}
	}
}
