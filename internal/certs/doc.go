// Package certs makes configurations of TLS from files, which are read again when they change, and certificates for development.
package certs
