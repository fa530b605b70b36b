package producer

import (
	"cmp"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/worker/internal/connecting"
)

// tellEvery is how often the log says at most that calls wait.
const tellEvery = time.Minute

// trouble tells the operator of the program why calls wait.
type trouble struct {
	log *slog.Logger

	mu     sync.Mutex
	toldAt time.Time
}

func newTrouble(cfg Config) *trouble { return &trouble{log: cmp.Or(cfg.Logger, slog.Default())} }

// tell says that calls wait because of err, unless the log has said something within the last
// minute.
func (t *trouble) tell(err error) {
	// the next stream has a new credential, or is refused, and the caller told
	if detail.ClosedByAge(err) || status.Code(err) == codes.Unauthenticated {
		return
	}
	t.mu.Lock()
	now := time.Now()
	told := !t.toldAt.IsZero() && now.Sub(t.toldAt) < tellEvery
	if !told {
		t.toldAt = now
	}
	t.mu.Unlock()
	if !told {
		t.log.Warn("calls to the coordinator wait, trying again", "error", why(err))
	}
}

// why returns for people why a stream was lost or could not be opened.
func why(err error) string {
	st := status.Convert(err)
	if st.Code() == codes.Unavailable {
		return connecting.Why(st.Message())
	}
	return st.Code().String() + ": " + st.Message()
}
