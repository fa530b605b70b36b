package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// Lifetime of certificates for development, and how much clocks may differ.
const (
	devLife = 365 * 24 * time.Hour
	devSkew = time.Hour
)

// Authority signs certificates for development. Its key is in a file beside the certificates, which
// is not safe enough for production.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
}

// NewAuthority makes an authority, with ca.pem and ca-key.pem in dir. It makes dir if need be. It
// never replaces a file: if one exists, the error wraps fs.ErrExist.
func NewAuthority(dir string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	template, err := newTemplate("Lessor development authority")
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	a := &Authority{dir: dir}
	a.cert, a.key, err = a.write("ca", template)
	return a, err
}

// Server makes server.pem and server-key.pem for these hosts: names and IP addresses.
func (a *Authority) Server(hosts []string) error {
	template, err := newTemplate(hosts[0])
	if err != nil {
		return err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	_, _, err = a.write("server", template)
	return err
}

// Client makes NAME.pem and NAME-key.pem for the client that uri names.
func (a *Authority) Client(name string, uri *url.URL) error {
	template, err := newTemplate(name)
	if err != nil {
		return err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	template.URIs = []*url.URL{uri}
	_, _, err = a.write(name, template)
	return err
}

func newTemplate(name string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-devSkew),
		NotAfter:     now.Add(devLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}, nil
}

// write makes a key and a certificate, and writes both. The authority signs the certificate; the
// authority's own certificate signs itself.
func (a *Authority) write(name string, template *x509.Certificate) (*x509.Certificate, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	if err := a.create(name+"-key.pem", 0o600, "PRIVATE KEY", private); err != nil {
		return nil, nil, err
	}
	if err := a.create(name+".pem", 0o644, "CERTIFICATE", raw); err != nil {
		// a key without its certificate would look like that of another one
		return nil, nil, errors.Join(err, os.Remove(filepath.Join(a.dir, name+"-key.pem")))
	}
	cert, err := x509.ParseCertificate(raw)
	return cert, key, err
}

// create writes a file, which must not exist yet. If that fails, the file is removed, so that it
// can be tried again.
func (a *Authority) create(name string, mode os.FileMode, kind string, content []byte) error {
	file, err := os.OpenFile(filepath.Join(a.dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	if err := encode(file, kind, content); err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// encode writes content as PEM and closes the file.
func encode(file io.WriteCloser, kind string, content []byte) error {
	err := pem.Encode(file, &pem.Block{Type: kind, Bytes: content})
	return errors.Join(err, file.Close())
}
