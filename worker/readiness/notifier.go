package readiness

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Notifier tells the pool that started this process how the process is. Its methods may be called
// at the same time: the calls take turns, so that what was said last arrives last.
//
// A call tries up to four times, at most 5 s each: after an answer of 500 and above, or without an
// answer, it waits 100, 200 and 400 ms. So it takes 21 s at most, from its turn on. It fails with a
// *StatusError if the supervisor answered, with an error that wraps ctx.Err() if ctx ended first,
// and else with what kept the supervisor from answering. No error contains the token.
type Notifier struct {
	base         *url.URL
	token        *string // a pointer, so that printing a Notifier does not show the token
	worker, pool string
	gpu          *uint32
	client       *http.Client

	turn chan struct{} // who puts an element in may call
}

// Ready is what a ready process offers. The supervisor shows it to whoever asks. All fields but
// VRAMUsedBytes may be zero.
type Ready struct {
	// Endpoint is where the process serves requests: a URL such as http://127.0.0.1:8001, of at
	// most 1,024 bytes. What has no scheme, or neither a host nor a path, is refused with 400.
	Endpoint string
	// VRAMUsedBytes is how much memory of the GPU the process uses, in bytes. Required: 0 is
	// refused with 400.
	VRAMUsedBytes uint64
	// SlotsTotal is how many requests the process serves at once.
	SlotsTotal uint32
	// ModelRef is the model that is loaded, EngineVersion the version of the software. At most 256
	// bytes each.
	ModelRef, EngineVersion string
}

// maxReason is the longest reason of a failure, in bytes.
const maxReason = 1 << 10

// notification is the body of a call.
type notification struct {
	WorkerID      string        `json:"worker_id"`
	PoolID        string        `json:"pool_id"`
	Status        string        `json:"status"`
	Message       string        `json:"message,omitempty"`
	Endpoint      string        `json:"endpoint,omitempty"`
	VRAMUsedBytes uint64        `json:"vram_used_bytes,omitempty"`
	Capabilities  *capabilities `json:"capabilities,omitempty"`
}

type capabilities struct {
	GPUDevice     *uint32 `json:"gpu_device,omitempty"`
	SlotsTotal    uint32  `json:"slots_total"`
	ModelRef      string  `json:"model_ref"`
	EngineVersion string  `json:"engine_version"`
}

// PoolID returns the name of the pool.
func (n *Notifier) PoolID() string { return n.pool }

// WorkerID returns the name of this worker, which no other process of the supervisor has.
func (n *Notifier) WorkerID() string { return n.worker }

// Ready says that the process is ready for work. Saying the same again is harmless; saying
// something else is refused with 409, because another process may have the name of this worker
// (P3).
func (n *Notifier) Ready(ctx context.Context, r Ready) error {
	return n.notify(ctx, []string{"ready"}, &notification{
		Status: "ready", Endpoint: r.Endpoint, VRAMUsedBytes: r.VRAMUsedBytes,
		Capabilities: &capabilities{
			GPUDevice:     n.gpu,
			SlotsTotal:    r.SlotsTotal,
			ModelRef:      r.ModelRef,
			EngineVersion: r.EngineVersion,
		},
	})
}

// Draining says that the process finishes what it has, and takes no more.
func (n *Notifier) Draining(ctx context.Context) error {
	return n.notify(ctx, []string{"ready"}, &notification{Status: "draining"})
}

// Failed says that the process cannot become ready, or go on. The supervisor stops it with SIGTERM,
// and starts another one after a wait. reason is for people, and cut to 1,024 bytes.
//
// ctx may be one that SIGTERM ends: the signal comes 250 ms after the answer.
func (n *Notifier) Failed(ctx context.Context, reason string) error {
	return n.notify(ctx, []string{url.PathEscape(n.worker), "failed"},
		&notification{Status: "failed", Message: clip(reason, maxReason)})
}

// notify sends a notification of this worker while no other is on its way. The error names the
// status.
func (n *Notifier) notify(ctx context.Context, path []string, body *notification) error {
	select {
	case n.turn <- struct{}{}:
		defer func() { <-n.turn }()
	case <-ctx.Done():
		return fmt.Errorf("readiness: %s: %w", body.Status, ctx.Err())
	}
	body.WorkerID, body.PoolID = n.worker, n.pool
	if err := n.post(ctx, n.base.JoinPath("v2/internal/workers").JoinPath(path...), body); err != nil {
		return fmt.Errorf("readiness: %s: %w", body.Status, err)
	}
	return nil
}

// clip makes s valid UTF-8 of at most limit bytes.
func clip(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") // without the first part of a character that was cut
}
