package main

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// X3: a token ends at the latest when its signing key retires. The list shows that, so that a token
// that is no longer accepted is not listed as good.
func TestTokenListShowsRetiredKeys(t *testing.T) {
	t.Attr("rules", "X3")
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	at := func(after time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(after)) }
	keys := []*lessorv1.SigningKey{
		{KeyId: "signs", Signing: true},
		{KeyId: "retires", RetiresAt: at(time.Minute)},
		{KeyId: "retired", RetiresAt: at(-time.Minute)},
		{KeyId: "outlives", RetiresAt: at(time.Hour)},
	}
	for name, c := range map[string]struct {
		token       *lessorv1.TokenInfo
		state, ends string
	}{
		"good":            {&lessorv1.TokenInfo{KeyId: "signs", ExpiresAt: at(time.Hour)}, "good", minute(at(time.Hour))},
		"key outlives it": {&lessorv1.TokenInfo{KeyId: "outlives", ExpiresAt: at(time.Minute)}, "good", minute(at(time.Minute))},
		"key will retire": {&lessorv1.TokenInfo{KeyId: "retires", ExpiresAt: at(time.Hour)}, "good", minute(at(time.Minute))},
		"key has retired": {&lessorv1.TokenInfo{KeyId: "retired", ExpiresAt: at(time.Hour)}, "key retired", minute(at(-time.Minute))},
		"key is gone":     {&lessorv1.TokenInfo{KeyId: "dropped", ExpiresAt: at(time.Hour)}, "key retired", minute(at(time.Hour))},
		"expired":         {&lessorv1.TokenInfo{KeyId: "dropped", ExpiresAt: at(-time.Hour)}, "expired", minute(at(-time.Hour))},
		"revoked":         {&lessorv1.TokenInfo{KeyId: "signs", ExpiresAt: at(time.Hour), RevokedAt: at(0), RevokedBy: "ann"}, "revoked", minute(at(time.Hour))},
		"cut by its key":  {&lessorv1.TokenInfo{KeyId: "dropped", ExpiresAt: at(time.Hour), RevokedAt: at(0)}, "key retired", minute(at(time.Hour))},
	} {
		c.token.Role = lessorv1.Role_ROLE_WORKER
		if got := tokenCells(c.token, keys, now); got[3] != c.state || got[5] != c.ends {
			t.Errorf("%s: %s until %s, want %s until %s", name, got[3], got[5], c.state, c.ends)
		}
	}
	certificate := tokenCells(&lessorv1.TokenInfo{TokenId: "cert-1", RevokedAt: at(0)}, keys, now)
	if certificate[1] != "" || certificate[3] != "revoked" {
		t.Errorf("a revoked certificate is shown with the role %q and the state %q, want no role and revoked",
			certificate[1], certificate[3])
	}
}

// A signal ends a command that waits for the coordinator, and it leaves no partial file behind.
func TestSignalLeavesNoPartialFile(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"token create --role viewer --subject s --out file", "backup file"} {
		cmd := exec.Command(self, append(strings.Fields(args), "--addr", lis.Addr().String())...)
		cmd.Args[0] = "lessor"
		cmd.Dir = t.TempDir()
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		conn, err := lis.Accept() // the coordinator never answers
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		wantInterrupted(t, cmd, cmd.Dir, syscall.SIGINT)
		_ = conn.Close()
	}
}

// A key of which list says that it verifies is one whose tokens are good: at the time at which it
// retires they are refused.
func TestKeyState(t *testing.T) {
	now := time.Now()
	for want, k := range map[string]*lessorv1.SigningKey{
		"signs":    {Signing: true},
		"verifies": {RetiresAt: timestamppb.New(now.Add(1))},
		"retired":  {RetiresAt: timestamppb.New(now)},
	} {
		if got := keyState(k, now); got != want {
			t.Errorf("a key that retires at %v: %q, want %q", k.GetRetiresAt().AsTime(), got, want)
		}
	}
}
