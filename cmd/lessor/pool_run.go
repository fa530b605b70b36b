package main

import (
	"errors"
	"io/fs"
	"log/slog"
	"net"

	"github.com/lessor-dev/lessor/internal/pipe"
	"github.com/lessor-dev/lessor/internal/pool"
)

// poolRunCmd is lessor pool run.
type poolRunCmd struct {
	File      string `short:"c" required:"" type:"bytes" placeholder:"FILE" help:"YAML file that describes the pools; see docs/pools.md."`
	poolToken `embed:""`
	Log       logging `embed:"" prefix:"log-"`
}

// Help is shown below the flags.
func (poolRunCmd) Help() string {
	return `Starts the workers of each pool, for example one for each GPU, and starts a worker again when its process fails. What they print goes to standard
output, with the worker before each line. "lessor pool list" shows which of them are ready.

Each process gets by its environment: LESSOR_POOL_ID, LESSOR_WORKER_ID, LESSOR_POOL_URL and LESSOR_POOL_TOKEN, with which it may say that it is ready;
and with gpus, LESSOR_GPU_DEVICE and CUDA_VISIBLE_DEVICES.

The first SIGINT, SIGTERM or SIGHUP drains: each process gets SIGTERM, and SIGKILL after the drain timeout of its pool. The second kills them at once.
If pool run itself is killed, its processes die with it (on Linux).

Example:
  lessor pool run --file pools.yaml

in which pools.yaml says, for example:
  pools:
  - id: gpu
    command: [lessor, worker, run, --queue, train, --, ./train.sh]
    gpus: [0, 1]`
}

func (c poolRunCmd) Run(a *app) error {
	defer a.catchSignals()()
	log, err := c.Log.logger(a)
	if err != nil {
		return err
	}
	a.warnStrays(log)
	data, err := pipe.ReadFile(c.File)
	if err != nil {
		return fail(exitUsage, "", "--file: %v", err)
	}
	config, err := pool.Parse(data)
	if err != nil {
		return poolFileError(c.File, err)
	}
	token, err := c.token(log)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", config.Listen)
	if err != nil {
		return fail(exitCannotStart, `another "lessor pool run" may run; set listen in the file`, "%v", err)
	}
	log.Info("supervising pools", "pools", len(config.Pools), "listen", l.Addr().String())
	s := pool.New(config, pool.Options{Token: token, URL: "http://" + l.Addr().String(), Output: a.out, Log: log})
	return s.Run(a.ctx, a.stopNow, l)
}

func (c poolRunCmd) token(log *slog.Logger) (string, error) {
	file, err := c.file()
	if err != nil {
		return "", err
	}
	token, err := pool.Token(file)
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return "", fail(exitCannotStart, "name another file with --pool-token-file",
			"cannot use the token file: %v", err)
	}
	if err != nil {
		return "", fail(exitUsage, "remove the file, and a new one is made", "--pool-token-file: %v", err)
	}
	warnExposed(log, "--pool-token-file", file)
	return token, nil
}
