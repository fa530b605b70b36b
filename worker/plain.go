package worker

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// plainToLocal makes connections without TLS to targets on this machine. A token that asks for TLS
// may be sent over one if it really has not left the machine: the name of a target does not prove
// that, but the address of the other end does.
type plainToLocal struct {
	credentials.TransportCredentials
}

func newPlainToLocal() plainToLocal { return plainToLocal{insecure.NewCredentials()} }

// ClientHandshake returns the connection as it is.
func (p plainToLocal) ClientHandshake(
	_ context.Context, _ string, conn net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	info := plainInfo{}
	if !staysHere(conn.RemoteAddr()) {
		info.SecurityLevel = credentials.NoSecurity // gRPC then refuses to send a token
	}
	return conn, info, nil
}

// Info returns a protocol other than that of package insecure, with which gRPC refuses tokens
// before there is a connection.
func (p plainToLocal) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: plainInfo{}.AuthType()}
}

// Clone implements credentials.TransportCredentials.
func (p plainToLocal) Clone() credentials.TransportCredentials { return newPlainToLocal() }

// plainInfo says how safe a connection is; without a level, gRPC trusts it.
type plainInfo struct{ credentials.CommonAuthInfo }

// AuthType implements credentials.AuthInfo.
func (plainInfo) AuthType() string { return "plain-to-local" }

// staysHere reports whether the other end of a connection is on this machine.
func staysHere(address net.Addr) bool {
	switch a := address.(type) {
	case *net.UnixAddr:
		return true
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	}
	return false
}
