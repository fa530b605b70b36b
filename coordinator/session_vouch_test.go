package coordinator

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/auth"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// W2, X1: what a handshake says of the credential must be what came with the call, and lets nobody in; where no credentials are asked for it is not
// looked at.
func TestHandshakeAuth(t *testing.T) {
	t.Attr("rules", "W2 X1")
	type says = lessorv1.HandshakeAuth
	const byToken, byCertificate = lessorv1.AuthMode_AUTH_MODE_TOKEN, lessorv1.AuthMode_AUTH_MODE_MTLS
	guardedBy(t, Auth{}, func(t *testing.T, r *rig) {
		token, _ := r.issue(t, DefaultTenant, auth.Worker)
		operator, _ := r.issue(t, DefaultTenant, auth.Operator)
		for name, tt := range map[string]struct {
			auth   *says
			code   string
			status codes.Code
		}{
			"nothing":       {nil, "", codes.OK},
			"the mode":      {&says{Mode: byToken}, "", codes.OK},
			"the same":      {&says{Mode: byToken, Token: token}, "", codes.OK},
			"another one":   {&says{Mode: byToken, Token: operator}, codeDenied, codes.PermissionDenied},
			"a bad one":     {&says{Token: "nonsense"}, codeDenied, codes.PermissionDenied},
			"a certificate": {&says{Mode: byCertificate, Token: token}, codeCertificate, codes.Unauthenticated},
		} {
			h := hello(name)
			h.Auth = tt.auth
			tk := r.bearing(token).talk(t, name)
			id := tk.say(h)
			if tt.code == "" {
				hear[*lessorv1.Accept](tk)
				continue
			}
			tk.refused(id, tt.code, "handshake.auth")
			if err := tk.over(); status.Code(err) != tt.status || errorCode(err) != tt.code {
				t.Errorf("%s: ended with %v", name, err)
			}
		}
	})
	serve(t, nil, func(t *testing.T, r *rig) {
		h := hello("w")
		h.Auth = &says{Mode: byToken, Token: "anything"}
		tk := r.talk(t, "w")
		tk.say(h)
		hear[*lessorv1.Accept](tk)
	})
}
