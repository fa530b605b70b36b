// Package auth issues the signed tokens that let callers in, verifies them, and revokes them (X1,
// X3). It knows nothing of gRPC or HTTP.
//
// A token is text:
//
//	lsr_<key>.<payload>.<mac>
//
// The key is the id of the signing key, in clear, so that the key is found without trying all. The
// payload is base64url of JSON: token id, audience, tenant, role, subject, issued and expiry in
// seconds since 1970. The mac is base64url of an HMAC-SHA256 over everything before it. Nothing in
// the payload is read before the mac is verified.
//
// Each tenant has its own keys. One of them signs; older ones verify until they retire. A Keyring
// holds all keys and tokens in memory, and writes each change to the store before the change takes
// effect. So when the call that creates or revokes a token returns, the change is in force, also
// after a restart. A token that is not in the store is not valid, even if its signature is. So List
// returns every token that can be valid.
//
// Secrets are compared in constant time. No error that leaves the package contains a secret.
package auth
