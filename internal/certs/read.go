package certs

import (
	"crypto/tls"
	"slices"

	"github.com/lessor-dev/lessor/internal/pipe"
)

// readPair reads a certificate and its key.
func readPair(files Files) (pair tls.Certificate, err error) {
	cert, err := pipe.ReadFile(files.Cert)
	if err != nil {
		return pair, err
	}
	key, err := pipe.ReadFile(files.Key)
	if err != nil {
		return pair, err
	}
	return tls.X509KeyPair(cert, key)
}

// readOnce reports whether one of the files is a pipe. Then the files cannot be read again.
func readOnce(files Files) bool {
	return slices.ContainsFunc([]string{files.Cert, files.Key, files.CA}, pipe.Is)
}
