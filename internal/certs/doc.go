// Package certs makes TLS configurations from files, which it reads again when they change, and
// certificates for development.
package certs
