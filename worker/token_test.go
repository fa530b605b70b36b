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

// X1: a token file that changes is read again; one that is gone, empty or being written leaves the last token in use.
func TestTokenFileIsReadAgain(t *testing.T) {
	t.Attr("rules", "X1")
	file := filepath.Join(t.TempDir(), "token")
	token := TokenFile(file)
	if _, err := token.GetRequestMetadata(t.Context()); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without a file: %v, want UNAUTHENTICATED", err)
	}
	at := time.Unix(1_800_000_000, 0)
	for i, step := range []struct{ content, want string }{{"one\n", "one"}, {" two ", "two"}, {"", "two"}, {"a\nb", "two"}, {"six", "six"}, {"ten", "ten"}} {
		at = at.Add(time.Second)
		if err := os.WriteFile(file, []byte(step.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			got, err := token.GetRequestMetadata(t.Context())
			if err != nil || got["authorization"] != "Bearer "+step.want {
				t.Errorf("step %d: %q (%v), want %q", i, got, err, step.want)
			}
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got, err := token.GetRequestMetadata(t.Context()); err != nil || got["authorization"] != "Bearer ten" {
		t.Errorf("without its file: %q (%v)", got, err)
	}
}

// X1: what is no token is refused by name, rather than by gRPC, which would say that the coordinator failed.
func TestWhatIsNoTokenIsNotSent(t *testing.T) {
	t.Attr("rules", "X1")
	for _, text := range []string{"one\ntwo", "one two", "\x7fELF", "tok\u00e9n", "a\x00b"} {
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for name, token := range map[string]*Token{"file": TokenFile(file), "static": StaticToken(text)} {
			_, err := token.GetRequestMetadata(t.Context())
			if status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), errNotOne.Error()) || strings.Contains(err.Error(), text) {
				t.Errorf("%s %q: %v, want UNAUTHENTICATED, and nothing of the text", name, text, err)
			}
		}
	}
}

// X1: a token does not go over a connection that everyone can read, unless that was asked for.
func TestTokenWantsTLS(t *testing.T) {
	t.Attr("rules", "X1")
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	if _, err := Dial("localhost:1", plain, grpc.WithPerRPCCredentials(StaticToken("x"))); err == nil {
		t.Error("the token would go over plain text")
	}
	conn, err := Dial("localhost:1", plain, grpc.WithPerRPCCredentials(&Token{PlainText: true}))
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}
