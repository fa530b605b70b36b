//go:build faults

package backup

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/harness"
)

// With the variable clientOf, "ADDRESS NAME", the test binary runs as a client.
const clientOf = "LESSOR_TEST_BACKUP_CLIENT"

func TestMain(m *testing.M) {
	if addr, name, ok := strings.Cut(os.Getenv(clientOf), " "); ok {
		fmt.Fprintln(os.Stderr, submitForEver(addr, name))
		os.Exit(1)
	}
	harness.Main(m)
}

// submitForEver submits one task after the other, and prints the number of each acknowledged one.
func submitForEver(addr, name string) error {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	tasks := lessorv1.NewTaskServiceClient(conn)
	for n := 1; ; n++ {
		_, err := tasks.SubmitTask(context.Background(), &lessorv1.SubmitTaskRequest{
			Task: &lessorv1.TaskSpec{Queue: name, TaskKey: strconv.Itoa(n), Payload: make([]byte, 500)},
		})
		if err != nil {
			return err
		}
		fmt.Println(n)
	}
}

// client is such a process, and what it printed.
type client struct {
	name string
	last atomic.Int64 // the number of the last acknowledged task
}

func startClient(t *testing.T, addr, name string) *client {
	t.Helper()
	c := &client{name: name}
	harness.Start(t, harness.Command{
		Path: harness.Self(t), Env: []string{clientOf + "=" + addr + " " + name},
		Stdout: harness.Lines(func(line string) {
			if n, err := strconv.ParseInt(line, 10, 64); err == nil {
				c.last.Store(n)
			}
		}),
	})
	return c
}
