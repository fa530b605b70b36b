package coordinator

import (
	"crypto/tls"
	"errors"
	"slices"
	"testing"
)

// The two listeners share a TLS configuration. Each negotiates its own protocol, also if the
// configuration of a connection is chosen by a callback.
func TestEachListenerHasItsProtocol(t *testing.T) {
	chosen, refused := &tls.Config{ServerName: "chosen"}, errors.New("no certificate")
	for name, shared := range map[string]*tls.Config{
		"no callback":                  {},
		"the callback chooses":         {GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return chosen, nil }},
		"the callback chooses nothing": {GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, nil }},
		"the callback refuses":         {GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, refused }},
	} {
		t.Run(name, func(t *testing.T) {
			for _, protocol := range []string{"h2", "http/1.1"} {
				own := withProtocol(shared, protocol)
				if !slices.Equal(own.NextProtos, []string{protocol}) || shared.NextProtos != nil {
					t.Errorf("the listener of %s negotiates %q, and the shared configuration has %q",
						protocol, own.NextProtos, shared.NextProtos)
				}
				if shared.GetConfigForClient == nil {
					if own.GetConfigForClient != nil {
						t.Error("the configuration got a callback")
					}
					continue
				}
				want, wantErr := shared.GetConfigForClient(nil)
				got, err := own.GetConfigForClient(nil)
				if !errors.Is(err, wantErr) || (got == nil) != (want == nil) || got != nil && (got.ServerName != want.ServerName || !slices.Equal(got.NextProtos, []string{protocol})) {
					t.Errorf("the callback of %s returns %+v (%v)", protocol, got, err)
				}
				if chosen.NextProtos != nil {
					t.Errorf("the chosen configuration was changed to negotiate %q", chosen.NextProtos)
				}
			}
		})
	}
}
