// Package auth knows who may come in: it issues signed tokens, verifies them, and takes them back (X1, X3). It knows nothing of gRPC or HTTP.
//
// A token is text:
//
//	lsr_<key>.<payload>.<mac>
//
// The key is the id of the signing key, in clear, so that it is found without guessing. The payload is base64url of JSON: token id, audience,
// tenant, role, subject, issued and expiry in seconds since 1970. The mac is base64url of an HMAC-SHA256 over all that stands before it.
// Nothing of the payload is looked at before the mac was found good.
//
// Each tenant has keys of its own. One of them signs; older ones verify until they retire. A Keyring has all keys and tokens in memory and writes
// each change to the store before it takes effect, so that a token is good or revoked from the moment the change was answered, and after
// every restart. A token that the store does not know is not good, whoever signed it: what List shows is all there is.
//
// Secrets are compared in constant time, and no error or record that leaves the package has one in it.
package auth
