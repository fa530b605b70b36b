package coordinator_test

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// A flood of refused calls or of bad frames does not fill the log: of each message it gets a
// thousand lines at once, and then ten a second. The next line says how many were left out. At
// level debug the log has all.
func TestFloodsDoNotFillTheLog(t *testing.T) {
	const flood = 1500
	for message, once := range map[string]func(t *testing.T, r *wiretest.Rig, worker *wiretest.Worker){
		"finished call": func(t *testing.T, r *wiretest.Rig, _ *wiretest.Worker) {
			_, _ = r.Tasks.GetTask(t.Context(), &lessorv1.GetTaskRequest{TaskId: "nonsense"})
		},
		"frame refused": func(_ *testing.T, _ *wiretest.Rig, worker *wiretest.Worker) {
			worker.WantError(worker.Send(wiretest.HandshakeOf("again")), "E.CMD.UNKNOWN", "handshake")
		},
		"worker reports an error": func(_ *testing.T, _ *wiretest.Rig, worker *wiretest.Worker) {
			worker.Send(&lessorv1.Error{Code: "E.INTERNAL", Message: "oh"})
		},
	} {
		for level, want := range map[slog.Level]int{slog.LevelInfo: 1000, slog.LevelDebug: flood} {
			log := &wiretest.LogBuffer{}
			cfg := wiretest.NoHeartbeats
			cfg.Logger = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: level}))
			wiretest.ServeWith(t, nil, cfg, func(t *testing.T, r *wiretest.Rig) {
				worker := r.OpenSession(t, "w", 1)
				begin := time.Now()
				for range flood {
					once(t, r, worker)
				}
				synctest.Wait()
				if want < flood {
					want += int(10 * time.Since(begin).Seconds()) // bad frames are delayed
				}
				got := linesWith(t, log, message)
				if len(got) != want {
					t.Errorf("%q: after %d times, the log at level %v has %d lines, want %d",
						message, flood, level, len(got), want)
				}
				if level == slog.LevelDebug {
					return
				}
				time.Sleep(time.Second)
				once(t, r, worker)
				synctest.Wait()
				told := 0
				for _, line := range linesWith(t, log, message) {
					told += 1 + line.Left
				}
				if told != flood+1 {
					t.Errorf("%q: the lines of the log tell of %d times, want %d", message, told, flood+1)
				}
			})
		}
	}
}

type pacedLine struct {
	Msg  string
	Left int `json:"left_out"`
}

func linesWith(t *testing.T, log *wiretest.LogBuffer, message string) (found []pacedLine) {
	t.Helper()
	for line := range strings.Lines(log.String()) {
		var told pacedLine
		if err := json.Unmarshal([]byte(line), &told); err != nil {
			t.Fatal(err)
		}
		if told.Msg == message {
			found = append(found, told)
		}
	}
	return found
}
