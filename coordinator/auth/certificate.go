package auth

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"net/url"
	"strings"
	"time"
)

// CertificatePrefix begins the id of a certificate as a credential.
const CertificatePrefix = "cert-"

// Scheme of the name in a certificate that says who its holder is: lessor://TENANT/ROLE/SUBJECT.
const Scheme = "lessor"

const idBytes = 20 // of the hash

// CertificateID names a certificate: the beginning of its SHA-256.
func CertificateID(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return CertificatePrefix + hex.EncodeToString(sum[:idBytes])
}

// isCertificate reports whether an id has the form of CertificateID.
func isCertificate(id string) bool {
	digits, ok := strings.CutPrefix(id, CertificatePrefix)
	raw, err := hex.DecodeString(digits)
	return ok && err == nil && len(raw) == idBytes && strings.ToLower(digits) == digits
}

// Certified tells who a client certificate speaks for that was verified already. It is the zero Identity where the certificate has no name of
// ours: such a one lets nobody in, but may be asked for beside a token. The error is an *Error; beside it stands who that is, where the name can be read.
func (k *Keyring) Certified(cert *x509.Certificate, now time.Time) (Identity, error) {
	who, err := named(cert)
	if err != nil || who.Tenant == "" {
		return Identity{}, err
	}
	if !now.Before(who.Until) {
		return who, &Error{Expired}
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	if t := k.tokens[name{who.Tenant, who.Credential}]; t.RevokedAt != 0 {
		return who, &Error{Revoked}
	}
	return who, nil
}

// named reads the name of ours in a certificate; there may be one.
func named(cert *x509.Certificate) (who Identity, err error) {
	for _, uri := range cert.URIs {
		if uri.Scheme != Scheme {
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
	role, subject, ok := strings.Cut(strings.TrimPrefix(uri.Path, "/"), "/")
	who := Identity{Tenant: uri.Host, Subject: subject}
	who.Role, _ = ParseRole(role)
	request := Request{Tenant: who.Tenant, Role: who.Role, Subject: who.Subject}
	if !ok || uri.User != nil || uri.RawQuery != "" || uri.Fragment != "" || request.check() != nil {
		return Identity{}, &Error{Malformed}
	}
	return who, nil
}

// Name is the name of a certificate that speaks for a subject in a role. The error is a *lease.FieldError.
func Name(r Request) (*url.URL, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	return &url.URL{Scheme: Scheme, Host: r.Tenant, Path: "/" + r.Role.String() + "/" + r.Subject}, nil
}
