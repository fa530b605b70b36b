package worker_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/workertest"
)

// hangingCreds is a source of credentials that ignores its context and returns only when letGo is
// closed.
type hangingCreds struct {
	asked, waiting atomic.Int32
	letGo          chan struct{}
}

func (h *hangingCreds) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	h.asked.Add(1)
	h.waiting.Add(1)
	defer h.waiting.Add(-1)
	<-h.letGo
	return nil, nil
}

func (*hangingCreds) RequireTransportSecurity() bool { return false }

// credentialed is a connection whose streams ask creds for their metadata.
type credentialed struct {
	grpc.ClientConnInterface
	creds *hangingCreds
}

func (c credentialed) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return c.ClientConnInterface.NewStream(ctx, desc, method, append(opts, grpc.PerRPCCredentials(c.creds))...)
}

// If a source of credentials hangs, the worker logs it and does not ask the source again before it
// has returned. When the source returns the worker connects and works. If it never returns, Run
// still ends when its context does.
func TestCredentialsThatHang(t *testing.T) {
	for _, returns := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := workertest.Start(t)
			creds := &hangingCreds{letGo: make(chan struct{})}
			log := &journal{}
			w, err := worker.New(credentialed{c.Conn(), creds}, []string{"q"},
				worker.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			w.HandleDefault(echo)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- w.Run(ctx) }()
			time.Sleep(5 * time.Minute)
			if creds.asked.Load() != 1 || !strings.Contains(log.String(), "credentials does not return") {
				t.Errorf("the source was asked %d times, want once, and a log line that it does not return:\n%s",
					creds.asked.Load(), log)
			}
			if returns {
				close(creds.letGo)
				task := c.Do(&lessorv1.TaskSpec{Queue: "q"})
				if task.GetState() != lessorv1.TaskState_TASK_STATE_COMPLETED {
					t.Errorf("the task is %v, want COMPLETED", task.GetState())
				}
			}
			cancel()
			select {
			case err := <-done:
				if err != nil {
					t.Errorf("Run = %v, want nil", err)
				}
			case <-time.After(time.Minute):
				t.Error("Run has not returned a minute after its context ended")
			}
			if !returns {
				close(creds.letGo)
			}
			synctest.Wait()
			if n := creds.waiting.Load(); n != 0 {
				t.Errorf("%d calls of the source have not returned, want 0", n)
			}
		})
	}
}
