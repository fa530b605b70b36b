package worker_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/workertest"
)

// slog writes the number of an enum into JSON, which tells nobody anything.
func TestLogInJSONHasTheNamesOfEnums(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		log := &journal{}
		w := c.Worker("q", worker.Config{Logger: slog.New(slog.NewJSONHandler(log, nil))})
		w.Handle("fails", func(context.Context, *worker.Task) ([]byte, error) { return nil, worker.Permanent(errors.New("no")) })
		w.Handle("tells too much", func(context.Context, *worker.Task) ([]byte, error) { return make([]byte, 2<<20), nil })
		c.Run(w)
		c.Do(&lessorv1.TaskSpec{Queue: "q", Type: "fails"})
		c.Do(&lessorv1.TaskSpec{Queue: "q", Type: "tells too much"})
		for _, want := range []string{
			`"category":"ERROR_CATEGORY_USER_CODE"`, `"kind":"REPORT_KIND_COMPLETE","reason":"REASON_RESULT_TOO_LARGE"`, `"state":"TASK_STATE_LEASED"`,
		} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log has no %s:\n%s", want, log.String())
			}
		}
	})
}
