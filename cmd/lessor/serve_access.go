package main

import (
	"time"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/internal/certs"
)

// accessFlags are the flags for TLS and for the credentials of callers (X1). Their environment
// variables have longer names, because clients use the shorter ones.
type accessFlags struct {
	Auth       bool          `help:"Require a token or a client certificate from every caller; lessor token create --data issues the first token."`
	Audience   string        `name:"auth-audience" type:"nonempty" default:"lessor" placeholder:"NAME" help:"Audience that tokens must have; coordinators whose stores are copies of each other need different ones."`
	HostTenant string        `name:"host-tenant" type:"nonempty" placeholder:"NAME" help:"Tenant whose operators run the coordinator itself: with --auth, only they may take backups and run standbys, which contain the data of all tenants, and see what each tenant has. If it is set, metrics and profiles are only for it, too."`
	Cert       string        `name:"tls-cert" env:"LESSOR_SERVE_TLS_CERT" type:"file" placeholder:"FILE" help:"Certificate of both listeners; new files take effect without a restart."`
	Key        string        `name:"tls-key" env:"LESSOR_SERVE_TLS_KEY" type:"file" placeholder:"FILE" help:"Its key."`
	ClientCA   string        `name:"tls-client-ca" env:"LESSOR_SERVE_TLS_CLIENT_CA" type:"file" placeholder:"FILE" help:"Accept client certificates of these authorities as credentials; implies --auth."`
	ClientCert bool          `name:"tls-require-client-cert" env:"LESSOR_SERVE_TLS_REQUIRE_CLIENT_CERT" help:"Refuse callers without a client certificate, whatever token they have."`
	Retention  time.Duration `name:"audit-retention" type:"positive" default:"720h" placeholder:"DURATION" help:"How long the audit is kept; at least 1h."`
}

// secure reports whether a listener may be on an address that others can reach.
func (f accessFlags) secure() bool { return f.Cert != "" && f.requiresCredential() }

func (f accessFlags) requiresCredential() bool { return f.Auth || f.ClientCA != "" }

// apply reads the certificates, and sets which credentials callers need.
func (f accessFlags) apply(cfg *coordinator.Config) (err error) {
	switch {
	case (f.Cert == "") != (f.Key == ""):
		return fail(exitUsage, "", "--tls-cert and --tls-key must be set together")
	case f.ClientCA != "" && f.Cert == "":
		return fail(exitUsage, "", "--tls-client-ca: needs --tls-cert and --tls-key")
	case f.ClientCert && f.ClientCA == "":
		return fail(exitUsage, "", "--tls-require-client-cert: needs --tls-client-ca")
	case f.HostTenant != "" && !f.requiresCredential():
		return fail(exitUsage, "without credentials, all callers are of the host tenant", "--host-tenant: needs --auth")
	}
	cfg.AuditRetention = f.Retention
	if f.requiresCredential() {
		cfg.Auth, cfg.HostTenant = &gate.Auth{Audience: f.Audience, RequireCertificate: f.ClientCert}, f.HostTenant
	}
	if f.Cert == "" {
		return nil
	}
	files := certs.Files{Cert: f.Cert, Key: f.Key, CA: f.ClientCA}
	if cfg.TLS, err = certs.Server(files, cfg.Logger); err != nil {
		return tlsError("--tls-client-ca", files, err)
	}
	return nil
}
