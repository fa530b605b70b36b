package main

import (
	"errors"
	"io/fs"
	"path/filepath"
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
	Dir    string   `arg:"" type:"bytes" help:"Directory for the files; created if it is missing."`
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
	names := make([]auth.Request, len(c.Client))
	for i, client := range c.Client {
		var err error
		if names[i], err = clientName(client); err != nil {
			return err
		}
	}
	authority, err := certs.NewAuthority(c.Dir)
	if errors.Is(err, fs.ErrExist) {
		return fail(exitCannotStart, "name another directory, or remove what is there", "%v", err)
	}
	if err != nil {
		return err
	}
	if err := authority.Server(c.Host); err != nil {
		return err
	}
	for _, r := range names {
		uri, err := auth.Name(r)
		if err != nil {
			return err
		}
		if err := authority.Client(strings.Join([]string{r.Tenant, r.Role.String(), r.Subject}, "-"), uri); err != nil {
			return err
		}
	}
	a.note("certificates for development are in %s", c.Dir)
	return nil
}

// clientName reads TENANT/ROLE/NAME.
func clientName(text string) (r auth.Request, err error) {
	parts := strings.Split(text, "/")
	if len(parts) == 3 {
		r.Tenant, r.Subject = parts[0], parts[2]
		r.Role, _ = auth.ParseRole(parts[1])
		_, err = auth.Name(r)
	}
	if len(parts) != 3 || err != nil || filepath.Base(r.Subject) != r.Subject {
		return r, fail(exitUsage, "for example acme/worker/gpu-1", "--client: %q is not TENANT/ROLE/NAME", text)
	}
	return r, nil
}
