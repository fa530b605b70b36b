package main

import (
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
)

// poolCmd is lessor pool.
type poolCmd struct {
	Run    poolRunCmd    `cmd:"" help:"Keep the worker processes of this machine running."`
	List   poolListCmd   `cmd:"" help:"List the workers of the pools on this machine."`
	Get    poolGetCmd    `cmd:"" help:"Show the workers of a pool on this machine."`
	Notify poolNotifyCmd `cmd:"" help:"Say that a worker is ready, drains or has failed; for the processes that pool run starts."`
}

// poolToken has the flag of commands that know the token of a supervisor.
type poolToken struct {
	PoolTokenFile string `shared:"" type:"bytes" placeholder:"FILE" help:"File with the bearer token of the pools; by default lessor/pool.token in the user's state directory."`
}

func (t poolToken) file() (string, error) {
	if t.PoolTokenFile != "" {
		return t.PoolTokenFile, nil
	}
	state, err := stateDir("--pool-token-file")
	return filepath.Join(state, "pool.token"), err
}

// poolClient has the flags of commands that ask a supervisor.
type poolClient struct {
	PoolAddr  string `shared:"" placeholder:"HOST:PORT" default:"127.0.0.1:9200" help:"Where pool run listens."`
	poolToken `embed:""`
}

// call makes a call to the supervisor.
func (c poolClient) call(use func(lessorv1.PoolServiceClient) error) error {
	if err := checkHostPort("pool-addr", c.PoolAddr); err != nil {
		return err
	}
	file, err := c.file()
	if err != nil {
		return err
	}
	token := worker.TokenFile(file)
	token.PlainText = true // the supervisor listens on the loopback interface only
	conn, err := grpc.NewClient("passthrough:///"+c.PoolAddr,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithPerRPCCredentials(token),
		grpc.WithUnaryInterceptor(withTimeout), grpc.WithNoProxy())
	if err != nil {
		return fail(exitUsage, "an address is HOST:PORT", "--pool-addr: %q: %v", c.PoolAddr, err)
	}
	defer func() { _ = conn.Close() }()
	return explainPool(c.PoolAddr, use(lessorv1.NewPoolServiceClient(conn)))
}

// explainPool returns the error for one of the supervisor.
func explainPool(addr string, err error) error {
	switch s, _ := status.FromError(err); s.Code() {
	case codes.OK:
		return nil
	case codes.Unavailable:
		problem, _ := dialProblem(s.Message())
		return fail(exitUnavailable, `start one with "lessor pool run"; its file says where it listens, by default on 127.0.0.1:9200`,
			"cannot reach the supervisor of the pools at %s: %s", addr, problem)
	case codes.Unauthenticated:
		return fail(exitFailed, "name the file that pool run uses with --pool-token-file", "%s", s.Message())
	case codes.Unimplemented:
		return fail(exitFailed, "--pool-addr is where pool run listens, not the address of a coordinator",
			"the server at %s is no supervisor of pools", addr)
	case codes.NotFound:
		return fail(exitNotFound, `"lessor pool list" shows the pools`, "%s", s.Message())
	default:
		return err
	}
}

// poolFileError returns the error for a file, with a line for each problem.
func poolFileError(name string, err error) error {
	problems := strings.ReplaceAll(err.Error(), "\n", "\n"+name+": ")
	return fail(exitUsage, "docs/pools.md describes the file", "%s: %s", name, problems)
}
