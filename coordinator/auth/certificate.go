package auth

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"maps"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// certificatePrefix is how the credential id of a certificate begins.
const certificatePrefix = "cert-"

// scheme is the scheme of the URI in a certificate that names its holder:
// lessor://TENANT/ROLE/SUBJECT.
const scheme = "lessor"

const idBytes = 20 // of the hash, in the id

// CertificateID returns the credential id of a certificate: "cert-" and the first 20 bytes of its
// SHA-256, in hex.
func CertificateID(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return certificatePrefix + hex.EncodeToString(sum[:idBytes])
}

// isCertificate reports whether an id has the form of CertificateID.
func isCertificate(id string) bool {
	digits, ok := strings.CutPrefix(id, certificatePrefix)
	raw, err := hex.DecodeString(digits)
	return ok && err == nil && len(raw) == idBytes && strings.ToLower(digits) == digits
}

// Certified returns who a client certificate speaks for, which TLS has verified already. If the
// certificate does not name a holder (see scheme), it returns the zero Identity: such a certificate
// lets nobody in, but may be required in addition to a token. The error is an *Error; the Identity
// returned with it says who the certificate names, if that can be read.
func (k *Keyring) Certified(cert *x509.Certificate, now time.Time) (Identity, error) {
	who, err := named(cert)
	if err != nil || who.Tenant == "" {
		return Identity{}, err
	}
	if !now.Before(who.Until) {
		return who, &Error{Expired}
	}
	k.mu.RLock()
	t, shown := k.tokens[who.Tenant][who.Credential], k.shown[who.Credential]
	k.mu.RUnlock()
	switch {
	case t.RevokedAt != 0:
		return who, &Error{Revoked}
	case shown.Tenant == "":
		k.show(who, now)
	}
	return who, nil
}

// fewShown is the number of certificates from which on those that have expired are looked for.
const fewShown = 1024

// show remembers a good certificate until it expires, so that it can be revoked in any case, see
// Revoke.
func (k *Keyring) show(who Identity, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.shown) >= k.forgetAt {
		maps.DeleteFunc(k.shown, func(_ string, who Identity) bool { return !now.Before(who.Until) })
		k.forgetAt = max(fewShown, 2*len(k.shown))
	}
	k.shown[who.Credential] = who
}

// named returns the holder that a certificate names in a URI of our scheme. More than one such URI
// is an error.
func named(cert *x509.Certificate) (who Identity, err error) {
	for _, uri := range cert.URIs {
		if uri.Scheme != scheme {
			continue
		}
		if who.Tenant != "" {
			return Identity{}, &Error{Malformed}
		}
		if who, err = parseName(uri); err != nil {
			return Identity{}, err
		}
		who.Credential, who.Until = CertificateID(cert), cert.NotAfter
	}
	return who, nil
}

func parseName(uri *url.URL) (Identity, error) {
	role, subject, _ := strings.Cut(strings.TrimPrefix(uri.Path, "/"), "/")
	who := Identity{Tenant: uri.Host, Subject: subject}
	who.Role, _ = ParseRole(role)
	request := Request{Tenant: who.Tenant, Role: who.Role, Subject: who.Subject}
	if uri.User != nil || hasPort(uri) || uri.RawQuery != "" || uri.Fragment != "" || request.check() != nil {
		return Identity{}, &Error{Malformed}
	}
	return who, nil
}

// hasPort reports whether the host of a URI has a port, even an empty one, or is an address of
// IPv6. The rules of an authority about which hosts it may certify do not look at the port, so one
// for the tenant "acme" alone would also be good for a tenant "acme:80".
func hasPort(uri *url.URL) bool { return strings.Contains(uri.Host, ":") }

// domain matches the hosts of URIs that crypto/x509 reads.
var domain = regexp.MustCompile(`^[!--/-~]+(\.[!--/-~]+)*$`)

// Name returns the URI that names the holder of a certificate. The error is a *lease.FieldError.
func Name(r Request) (*url.URL, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	uri := &url.URL{Scheme: scheme, Host: r.Tenant, Path: "/" + r.Role.String() + "/" + r.Subject}
	read, err := url.Parse(uri.String())
	if err != nil || hasPort(read) || read.Host != uri.Host || read.Path != uri.Path || !domain.MatchString(uri.Host) {
		return nil, &lease.FieldError{Field: "tenant", Problem: "cannot be the host of a URI"}
	}
	return uri, nil
}
