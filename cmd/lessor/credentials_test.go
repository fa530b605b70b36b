package main

import (
	"strings"
	"testing"
)

// X1: a token leaves this machine only over TLS, unless the user says that the network is trusted.
// A client certificate implies TLS.
func TestTokenIsSentOverTLS(t *testing.T) {
	t.Attr("rules", "X1")
	const unencrypted = "the token would be sent to "
	for name, c := range map[string]struct {
		addr  string
		flags credentials
		want  string
	}{
		"this machine":    {"127.0.0.1:1", credentials{Token: "t"}, ""},
		"by its name":     {"localhost:1", credentials{Token: "t"}, ""},
		"another machine": {"192.0.2.1:1", credentials{Token: "t"}, unencrypted},
		"any machine":     {":1", credentials{Token: "t"}, unencrypted},
		"no token":        {"192.0.2.1:1", credentials{}, ""},
		"trusted network": {"192.0.2.1:1", credentials{Token: "t", InsecureToken: true}, ""},
		"TLS":             {"192.0.2.1:1", credentials{Token: "t", TLS: true}, ""},
		"no key":          {"127.0.0.1:1", credentials{TLSCert: "none.pem"}, "TLS: "},
		"no certificate":  {"127.0.0.1:1", credentials{TLSKey: "none.pem"}, "TLS: "},
	} {
		_, err := c.flags.options(c.addr)
		if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// X1: other machines can reach a listener only if it has TLS and wants credentials, or if the user
// says that the network is trusted.
func TestListenerForOtherMachines(t *testing.T) {
	t.Attr("rules", "X1")
	for name, c := range map[string]struct {
		serve serveCmd
		opens bool
	}{
		"neither":           {serveCmd{}, false},
		"credentials":       {serveCmd{Access: accessFlags{Auth: true}}, false},
		"TLS":               {serveCmd{Access: accessFlags{Cert: "cert"}}, false},
		"both":              {serveCmd{Access: accessFlags{Auth: true, Cert: "cert"}}, true},
		"certificates":      {serveCmd{Access: accessFlags{ClientCA: "ca", Cert: "cert"}}, true},
		"a trusted network": {serveCmd{Insecure: true}, true},
	} {
		lis, err := c.serve.listen("listen", "0.0.0.0:0")
		if (err == nil) != c.opens {
			t.Errorf("%s: error %v, want a listener: %t", name, err, c.opens)
		}
		if err == nil {
			_ = lis.Close()
		}
	}
}
