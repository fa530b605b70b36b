package session

import (
	"crypto/subtle"

	"google.golang.org/grpc/codes"

	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// checkCredential compares the credential in a handshake with the credential of the call (W2). They
// must agree, so that no worker believes that it uses another credential than it does. The
// credential in a handshake gives no access: only that of the call does.
func (ss *Session) checkCredential(corr string, a *lessorv1.HandshakeAuth) bool {
	if a.GetMode() == lessorv1.AuthMode_AUTH_MODE_MTLS && !ss.who.Certified {
		const why = "handshake.auth.mode: the connection has no client certificate"
		ss.refuse(corr, refusal.CodeCertificate, why, "connect with a client certificate")
		ss.end(refusal.New(codes.Unauthenticated, refusal.CodeCertificate, why, nil))
		return false
	}
	if a.GetToken() == "" || ss.who.Credential == "" { // a coordinator without access control ignores the token
		return true
	}
	if subtle.ConstantTimeCompare([]byte(ss.who.Token), []byte(a.GetToken())) != 1 {
		return ss.deny(corr, "handshake.auth.token: differs from the token of the call",
			"send the token of the authorization header without the word Bearer, or leave the field empty")
	}
	return true
}
