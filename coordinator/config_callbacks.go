package coordinator

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/lessor-dev/lessor/coordinator/tasktoken"
)

// Callbacks configures how workers without gRPC report over HTTP.
type Callbacks struct {
	// TokenTTL is how long a task token is valid, 1 s to 2 h. A token is always valid for at least
	// ten minutes after the end of its lease (H1). Default: 1 h.
	TokenTTL time.Duration
	// URL is where workers reach the HTTP listener, without a path, for example
	// "https://lessor.example:7421". Empty: the address of the listener, with https if the listener
	// has TLS, else http.
	URL string
}

func (c *Callbacks) fill() {
	c.TokenTTL = cmp.Or(c.TokenTTL, tasktoken.DefaultTTL)
	c.URL = strings.TrimSuffix(c.URL, "/")
}

// maxCallbackURL is the greatest length of the URL, in bytes. It is small because every assignment
// contains the URL.
const maxCallbackURL = 256

func (c *Callbacks) validate() error {
	bad := tasktoken.CheckTTL(c.TokenTTL)
	if c.URL == "" {
		return bad
	}
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		len(c.URL) > maxCallbackURL {
		bad = errors.Join(bad, fmt.Errorf("callback URL %q is not of the form http://HOST:PORT or https://HOST:PORT, of at most %d bytes", c.URL, maxCallbackURL))
	}
	return bad
}

// at returns the URL for callbacks to a listener, or "" if there is no listener.
func (c *Callbacks) at(lis net.Listener, scheme string) string {
	switch {
	case lis == nil:
		return ""
	case c.URL != "":
		return c.URL
	}
	addr, ok := lis.Addr().(*net.TCPAddr)
	if !ok {
		return scheme + "://" + lis.Addr().String()
	}
	host := addr.IP.String()
	if addr.IP.IsUnspecified() { // a server can listen on this address, but clients cannot call it
		host = cmp.Or(machine(), host)
	}
	return (&url.URL{Scheme: scheme, Host: net.JoinHostPort(host, fmt.Sprint(addr.Port))}).String()
}

// host returns the host of the URL for callbacks, unless at makes that of an address.
func (c *Callbacks) host() string {
	if u, err := url.Parse(c.URL); err == nil && u.Host != "" {
		return u.Hostname()
	}
	return machine()
}

// machine returns the name of this machine, or "" if it has none. On some systems the name resolves
// to a loopback address.
func machine() string {
	name, _ := os.Hostname()
	return name
}
