package coordinator

import (
	"net"
	"strings"
	"testing"
	"time"
)

// H1, S2: the callback URL in assignments is that of the HTTP listener, or the configured one.
func TestCallbackURL(t *testing.T) {
	t.Attr("rules", "H1 S2")
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	for _, c := range []struct {
		url  string
		lis  net.Listener
		want string
	}{
		{"", lis, "http://" + lis.Addr().String()},
		{"https://lessor.example:7421/", lis, "https://lessor.example:7421"},
		{"https://lessor.example:7421", nil, ""},
	} {
		callbacks := Callbacks{URL: c.url}
		callbacks.fill()
		if err := callbacks.validate(); err != nil {
			t.Errorf("%q: %v", c.url, err)
		}
		if got := callbacks.at(c.lis, "http"); got != c.want {
			t.Errorf("the callback URL with the setting %q is %q, want %q", c.url, got, c.want)
		}
	}
	for _, bad := range []string{"lessor.example", "ftp://lessor.example", "http://", "http://:7421", "http://u:p@lessor.example", "http://h/?q", "http://h/#f", "http://" + strings.Repeat("h", 300)} {
		if err := (&Callbacks{URL: bad, TokenTTL: time.Hour}).validate(); err == nil {
			t.Errorf("the setting %q is accepted, want an error", bad)
		}
	}
}
