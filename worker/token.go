package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/internal/await"
	"github.com/lessor-dev/lessor/internal/pipe"
)

var _ credentials.PerRPCCredentials = (*Token)(nil)

// Token sends a bearer token with every call, for workers and producers alike:
//
//	conn, err := worker.Dial(target, grpc.WithPerRPCCredentials(worker.TokenFile("/run/secrets/lessor")))
//
// Make one with TokenFile or StaticToken, or use a source of your own: any
// credentials.PerRPCCredentials. It is safe for concurrent use.
type Token struct {
	// PlainText allows the token to be sent over any connection without TLS, where everyone on the
	// way can read it. Connections of Dial to this machine need it only if they have transport
	// credentials of their own, such as those of package insecure. Set it before Dial.
	PlainText bool

	file string // empty: the token never changes

	mu    sync.Mutex
	token string
}

// StaticToken returns a token that never changes.
func StaticToken(token string) *Token { return &Token{token: token} }

// TokenFile returns a token that is read from a file; white space around it is ignored. Each call
// reads the file again, so that a new token needs no restart. While the file cannot be read, the
// last token stays in use. A pipe or a terminal is read only once; a pipe must have a writer within
// 3 s. A worker whose token was refused, and that waits before its next try, sees within a second
// that the file has another one, and tries at once.
func TokenFile(path string) *Token { return &Token{file: path} }

// GetRequestMetadata implements credentials.PerRPCCredentials. The error is UNAUTHENTICATED if no
// token could ever be read.
func (t *Token) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token, err := t.current()
	if err != nil {
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	if sent, ok := ctx.Value(sentTokenKey{}).(*atomic.Pointer[sentToken]); ok {
		sent.Store(&sentToken{t, token})
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

// errNoToken is the error for an empty token, errInvalidToken the error for text that cannot be a
// token.
var (
	errNoToken      = errors.New("it is empty")
	errInvalidToken = errors.New("it contains a space, a line break or a character that is not ASCII")
)

// checkToken returns an error for a text that is no token, or that gRPC could not send.
func checkToken(token string) error {
	switch {
	case token == "":
		return errNoToken
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errInvalidToken
	}
	return nil
}

// read reads the file, but a pipe or a terminal only once. Time and size of a file do not tell
// whether it has changed: a new token often has the same size, and some file systems, or tools that
// copy files, keep the time.
func (t *Token) read() error {
	if info, err := os.Stat(t.file); t.token != "" && err == nil && !info.Mode().IsRegular() {
		return nil
	}
	text, err := pipe.ReadFile(t.file)
	if err != nil {
		return fmt.Errorf("token file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if err := checkToken(token); err != nil {
		return fmt.Errorf("token file %s: %w", t.file, err)
	}
	t.token = token
	return nil
}

// sentToken is the token that a call has sent, and where it came from.
type sentToken struct {
	source *Token
	text   string
}

// sentTokenKey is the key under which the context of a call may have an *atomic.Pointer[sentToken].
// The Token of the connection stores there what it gave: a worker has only the connection, which
// does not name its credentials.
type sentTokenKey struct{}

// awaitAnother waits until the source has another token, or ctx ends.
func (s *sentToken) awaitAnother(ctx context.Context) {
	ticker := time.NewTicker(tokenInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		another := false
		returned := await.Return(ctx, 0, func() { // the file system may hang
			token, err := s.source.current()
			another = err == nil && token != s.text
		})
		if !returned || another {
			return
		}
	}
}
