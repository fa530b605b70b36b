package worker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// X1: TokenFile takes over each new token, even one of the same size in a file of the same time. If
// the file is gone or has no valid token, for example because it is just being written, the last
// token stays in use.
func TestTokenFileIsReadAgain(t *testing.T) {
	t.Attr("rules", "X1")
	file := filepath.Join(t.TempDir(), "token")
	token := TokenFile(file)
	if _, err := token.GetRequestMetadata(t.Context()); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without a file: error %v, want UNAUTHENTICATED", err)
	}
	at := time.Unix(1_800_000_000, 0) // of all of them
	for i, step := range []struct{ content, want string }{{"one\n", "one"}, {" two ", "two"}, {"", "two"}, {"a\nb", "two"}, {"six", "six"}, {"ten", "ten"}} {
		if err := os.WriteFile(file, []byte(step.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			got, err := token.GetRequestMetadata(t.Context())
			if err != nil || got["authorization"] != "Bearer "+step.want {
				t.Errorf("step %d, file %q: metadata %q (%v), want token %q", i, step.content, got, err, step.want)
			}
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got, err := token.GetRequestMetadata(t.Context()); err != nil || got["authorization"] != "Bearer ten" {
		t.Errorf("after the file was removed: metadata %q (%v), want token %q", got, err, "ten")
	}
}

// X1: a token that cannot be sent as metadata is refused with UNAUTHENTICATED and an error that
// says so, without the token. gRPC would refuse it as well, but with an error that sounds as if the
// coordinator had failed.
func TestInvalidTokenIsNotSent(t *testing.T) {
	t.Attr("rules", "X1")
	for _, text := range []string{"one\ntwo", "one two", "\x7fELF", "tok\u00e9n", "a\x00b"} {
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for name, token := range map[string]*Token{"file": TokenFile(file), "static": StaticToken(text)} {
			_, err := token.GetRequestMetadata(t.Context())
			if status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), errInvalidToken.Error()) || strings.Contains(err.Error(), text) {
				t.Errorf("%s %q: %v, want UNAUTHENTICATED with %q and without the text of the token",
					name, text, err, errInvalidToken)
			}
		}
	}
}

// X1: an empty token, such as the value of a variable that is not set, is refused with
// UNAUTHENTICATED and an error that says so.
func TestEmptyTokenIsNotSent(t *testing.T) {
	t.Attr("rules", "X1")
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, token := range map[string]*Token{"file": TokenFile(file), "static": StaticToken("")} {
		_, err := token.GetRequestMetadata(t.Context())
		if status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), errNoToken.Error()) {
			t.Errorf("%s: %v, want UNAUTHENTICATED with %q", name, err, errNoToken)
		}
	}
}

// X1: Dial refuses to send a token over a connection without TLS, unless its PlainText is set.
func TestTokenNeedsTLS(t *testing.T) {
	t.Attr("rules", "X1")
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	if _, err := Dial("localhost:1", plain, grpc.WithPerRPCCredentials(StaticToken("x"))); err == nil {
		t.Error("Dial accepts a token without TLS, want an error")
	}
	conn, err := Dial("localhost:1", plain, grpc.WithPerRPCCredentials(&Token{PlainText: true}))
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}
