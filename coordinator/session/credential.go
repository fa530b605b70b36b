package session

import (
	"crypto/subtle"

	"google.golang.org/grpc/codes"

	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// checkCredential checks what a handshake says of the worker's credential against the credential with which the call was let in (W2). A worker that believes it
// is known by another credential must not go on. A credential in a frame never lets anybody in.
func (ss *Session) checkCredential(corr string, a *lessorv1.HandshakeAuth) bool {
	if a.GetMode() == lessorv1.AuthMode_AUTH_MODE_MTLS && !ss.who.Certified {
		const why = "handshake.auth.mode: the connection has no client certificate"
		ss.refuse(corr, refusal.CodeCertificate, why, "connect with a client certificate")
		ss.end(refusal.New(codes.Unauthenticated, refusal.CodeCertificate, why, nil))
		return false
	}
	if a.GetToken() == "" || ss.who.Credential == "" { // where no credentials are asked for, none is looked at
		return true
	}
	if subtle.ConstantTimeCompare([]byte(ss.who.Token), []byte(a.GetToken())) != 1 {
		return ss.deny(corr, "handshake.auth.token: differs from the token of the call", "send the token of the authorization header without the word Bearer, or leave the field empty")
	}
	return true
}
