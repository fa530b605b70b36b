package main

import (
	"errors"
	"io/fs"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/internal/certs"
)

// certCmd is lessor cert.
type certCmd struct {
	Dev certDevCmd `cmd:"" help:"Create an authority, and certificates for a server and clients, for development."`
}

// certDevCmd is lessor cert dev.
type certDevCmd struct {
	Host   []string `default:"localhost,127.0.0.1,::1" placeholder:"NAME" help:"Names and addresses of the server. Repeatable."`
	Client []string `default:"default/operator/dev,default/worker/dev" placeholder:"TENANT/ROLE/NAME" help:"Who a client is. Repeatable."`
	Dir    string   `arg:"" type:"file" help:"Directory for the files; created if it is missing."`
}

// Help is shown below the flags.
func (certDevCmd) Help() string {
	return `Writes ca.pem, server.pem and TENANT-ROLE-NAME.pem, and the key of each as ...-key.pem. They are valid for a year. No file is overwritten. The
authority's key is also in the directory: in production, use an authority whose key is kept safe, and put the same name into its certificates,
the URI lessor://TENANT/ROLE/NAME.

Examples:
  lessor cert dev certs
  lessor serve --data data --tls-cert certs/server.pem --tls-key certs/server-key.pem --tls-client-ca certs/ca.pem
  lessor status --tls-ca certs/ca.pem --tls-cert certs/default-operator-dev.pem --tls-key certs/default-operator-dev-key.pem`
}

func (c certDevCmd) Run(a *app) error {
	if err := checkHosts(c.Host); err != nil {
		return err
	}
	clients := make(map[string]*url.URL) // by the name of the file
	for _, client := range c.Client {
		uri, err := clientName(client)
		if err != nil {
			return err
		}
		file := strings.ReplaceAll(client, "/", "-")
		if clients[file] != nil {
			return fail(exitUsage, "", "--client: two certificates would be %s.pem", file)
		}
		clients[file] = uri
	}
	err := c.write(clients)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fail(exitCannotStart, "name another directory, or remove what is there", "%v", err)
	case err != nil:
		return fail(exitCannotStart, "", "%v", err)
	}
	a.note("certificates for development are in %s", c.Dir)
	return nil
}

func (c certDevCmd) write(clients map[string]*url.URL) error {
	authority, err := certs.NewAuthority(c.Dir)
	if err == nil {
		err = authority.Server(c.Host)
	}
	for file, uri := range clients {
		if err == nil {
			err = authority.Client(file, uri)
		}
	}
	return err
}

// hostName matches host names that a certificate may contain.
var hostName = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*$`)

// checkHosts refuses a text that cannot be the name of a server, before any file is written. No
// client would trust a certificate with it.
func checkHosts(hosts []string) error {
	if len(hosts) == 0 { // [] in the configuration file
		return fail(exitUsage, "", "--host: must not be empty")
	}
	for _, host := range hosts {
		if net.ParseIP(host) == nil && !hostName.MatchString(host) {
			return fail(exitUsage, "for example coordinator.internal or 192.0.2.1, without a port",
				"--host: %q is neither the name of a host nor an IP address", host)
		}
	}
	return nil
}

// clientName reads TENANT/ROLE/NAME.
func clientName(text string) (uri *url.URL, err error) {
	parts := strings.Split(text, "/")
	if len(parts) == 3 {
		role, _ := auth.ParseRole(parts[1])
		uri, err = auth.Name(auth.Request{Tenant: parts[0], Role: role, Subject: parts[2]})
	}
	if len(parts) != 3 || err != nil || filepath.Base(parts[2]) != parts[2] {
		return nil, fail(exitUsage, "for example acme/worker/gpu-1", "--client: %q is not TENANT/ROLE/NAME", text)
	}
	return uri, nil
}
