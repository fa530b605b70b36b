package main

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"strings"

	"github.com/alecthomas/kong"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/internal/certs"
	"github.com/lessor-dev/lessor/internal/config"
	"github.com/lessor-dev/lessor/worker"
)

// credentials are the flags for the credentials of a client, and for the authorities that it trusts
// (X1).
type credentials struct {
	Token         string `shared:"" placeholder:"TOKEN" help:"Bearer token. Other users of the machine can see a command line: prefer the environment or --token-file."`
	TokenFile     string `shared:"" type:"bytes" placeholder:"FILE" help:"File with the bearer token; read again when it changes, unless it is a pipe or a terminal."`
	InsecureToken bool   `shared:"" help:"Send the token to another machine even without TLS."`
	TLS           bool   `shared:"" name:"tls" help:"Use TLS and trust the authorities of the system. --tls-ca, --tls-cert and --tls-key imply it."`
	TLSCA         string `shared:"" name:"tls-ca" type:"bytes" placeholder:"FILE" help:"Trust the authorities in this file instead."`
	TLSCert       string `shared:"" name:"tls-cert" type:"bytes" placeholder:"FILE" help:"Client certificate."`
	TLSKey        string `shared:"" name:"tls-key" type:"bytes" placeholder:"FILE" help:"Its key."`
}

func (c credentials) overTLS() bool {
	return c.TLS || c.TLSCA != "" || c.TLSCert != "" || c.TLSKey != ""
}

// options returns the dial options of a connection to addr.
func (c credentials) options(addr string) ([]grpc.DialOption, error) {
	transport := insecure.NewCredentials()
	if c.overTLS() {
		files := certs.Files{CA: c.TLSCA, Cert: c.TLSCert, Key: c.TLSKey}
		var err error
		if transport, err = certs.Transport(files); err != nil {
			return nil, tlsError("--tls-ca", files, err)
		}
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(transport)}
	token, err := c.token()
	if token == nil || err != nil {
		return options, err
	}
	if _, err := token.GetRequestMetadata(context.Background()); err != nil {
		flag, text := "--token", strings.TrimPrefix(status.Convert(err).Message(), "the given token: ")
		if c.TokenFile != "" {
			flag, text = "--token-file", strings.TrimPrefix(text, "token file")
		}
		return nil, fail(exitUsage, `"lessor token create --out FILE" writes one`,
			"%s: %s", flag, strings.TrimLeft(text, ": "))
	}
	token.PlainText = c.InsecureToken || onThisMachine(addr)
	if !c.overTLS() && !token.PlainText {
		return nil, fail(exitUsage, "use --tls or --tls-ca, or --insecure-token if the network is trusted",
			"the token would be sent to %s unencrypted", addr)
	}
	return append(options, grpc.WithPerRPCCredentials(token)), nil
}

// tlsError returns the error for files of TLS that cannot be used. If one of them cannot be read,
// the error names its flag. caFlag is the flag of files.CA.
func tlsError(caFlag string, files certs.Files, err error) *failure {
	subject := "TLS"
	if unreadable, ok := errors.AsType[*fs.PathError](err); ok {
		switch unreadable.Path {
		case files.Cert:
			subject = "--tls-cert"
		case files.Key:
			subject = "--tls-key"
		case files.CA:
			subject = caFlag
		}
	}
	return fail(exitUsage, caFlag+", --tls-cert and --tls-key name files in PEM", "%s: %v", subject, err)
}

// chooseToken clears --token or --token-file if the other one was set in a place that takes
// precedence. They are two ways to set one value, so here, too, the command line takes precedence
// over the environment, and the environment over the configuration file.
func chooseToken(ctx *kong.Context) {
	var token, file *kong.Flag
	for _, flag := range ctx.Flags() {
		switch flag.Name {
		case "token":
			token = flag
		case "token-file":
			file = flag
		}
	}
	if token == nil || file == nil || token.Target.String() == "" || file.Target.String() == "" {
		return
	}
	switch a, b := config.PlaceOf(ctx, token), config.PlaceOf(ctx, file); {
	case a < b:
		file.Target.SetString("")
	case b < a:
		token.Target.SetString("")
	}
}

// token returns the bearer token, or nil if none is set.
func (c credentials) token() (*worker.Token, error) {
	switch {
	case c.Token != "" && c.TokenFile != "":
		return nil, fail(exitUsage, "", "--token and --token-file are both set, on the command line, by the environment or in the configuration file")
	case c.Token != "":
		return worker.StaticToken(c.Token), nil
	case c.TokenFile != "":
		return worker.TokenFile(c.TokenFile), nil
	}
	return nil, nil
}

// onThisMachine reports whether a HOST:PORT can only be on this machine.
func onThisMachine(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// dial connects to the value of --addr with these credentials.
func (c credentials) dial(addr string, more ...grpc.DialOption) (*client, error) {
	if err := checkHostPort("addr", addr); err != nil {
		return nil, err
	}
	options, err := c.options(addr)
	if err != nil {
		return nil, err
	}
	return dial(addr, append(options, more...)...)
}
