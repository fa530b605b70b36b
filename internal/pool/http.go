package pool

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/strictjson"
)

// pages serves the JSON form of the notifications, and metrics.
func (s *Supervisor) pages() http.Handler {
	calls := service{Supervisor: s}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v2/internal/workers/ready", func(w http.ResponseWriter, r *http.Request) {
		var n readyJSON
		s.answer(w, r, &n, func() error {
			req, err := n.request()
			if err == nil {
				_, err = calls.NotifyReady(r.Context(), req)
			}
			return err
		})
	})
	mux.HandleFunc("POST /v2/internal/workers/{worker_id}/failed", func(w http.ResponseWriter, r *http.Request) {
		var n failedJSON
		s.answer(w, r, &n, func() error {
			req, err := n.request(r.PathValue("worker_id"))
			if err == nil {
				_, err = calls.NotifyFailed(r.Context(), req)
			}
			return err
		})
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics(), promhttp.HandlerOpts{}))
	return mux
}

// answer reads the body of a request into n, makes the call and writes what came of it.
func (s *Supervisor) answer(w http.ResponseWriter, r *http.Request, n any, call func() error) {
	began := time.Now()
	err := s.authorized(r.Header.Values("Authorization"))
	if err == nil {
		err = readJSON(http.MaxBytesReader(w, r.Body, maxBody), n)
	}
	if err == nil {
		err = call()
	}
	s.notified(began, err)
	w.Header().Set("Content-Type", "application/json")
	if err == nil {
		_, _ = io.WriteString(w, "{}\n")
		return
	}
	code := httpStatus(err)
	if code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": status.Convert(err).Message()})
}

// httpStatus returns the status of P3. The table is not that of package httpstatus, because
// RESOURCE_EXHAUSTED is about the size of a notification here.
func httpStatus(err error) int {
	switch status.Code(err) {
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.AlreadyExists, codes.FailedPrecondition:
		return http.StatusConflict
	case codes.ResourceExhausted:
		return http.StatusRequestEntityTooLarge
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// readyJSON is the body of a ready notification.
type readyJSON struct {
	WorkerID      string            `json:"worker_id"`
	PoolID        string            `json:"pool_id"`
	Status        string            `json:"status"`
	Endpoint      string            `json:"endpoint"`
	VRAMUsedBytes uint64            `json:"vram_used_bytes"`
	Capabilities  *capabilitiesJSON `json:"capabilities"`
}

type capabilitiesJSON struct {
	GPUDevice     *uint32 `json:"gpu_device"`
	SlotsTotal    uint32  `json:"slots_total"`
	ModelRef      string  `json:"model_ref"`
	EngineVersion string  `json:"engine_version"`
}

func (n *readyJSON) request() (*lessorv1.NotifyReadyRequest, error) {
	said, err := workerStatus(n.Status, "ready or draining")
	if err != nil {
		return nil, err
	}
	req := &lessorv1.NotifyReadyRequest{
		WorkerId: n.WorkerID, PoolId: n.PoolID, Status: said,
		Endpoint: n.Endpoint, VramUsedBytes: n.VRAMUsedBytes,
	}
	if c := n.Capabilities; c != nil {
		req.Capabilities = &lessorv1.WorkerCapabilities{
			GpuDevice: c.GPUDevice, SlotsTotal: c.SlotsTotal, ModelRef: c.ModelRef, EngineVersion: c.EngineVersion,
		}
	}
	return req, nil
}

// failedJSON is the body of a failed notification. Its worker is in the path, and may be repeated.
type failedJSON struct {
	WorkerID string `json:"worker_id"`
	PoolID   string `json:"pool_id"`
	Status   string `json:"status"`
	Message  string `json:"message"`
}

func (n *failedJSON) request(id string) (*lessorv1.NotifyFailedRequest, error) {
	if n.WorkerID != "" && n.WorkerID != id {
		return nil, invalid("worker_id", "%q is not the worker of the path, %q", n.WorkerID, id)
	}
	said, err := workerStatus(n.Status, "failed")
	return &lessorv1.NotifyFailedRequest{WorkerId: id, PoolId: n.PoolID, Status: said, Message: n.Message}, err
}

// workerStatus returns the status of a name; 0 for none. The error says what is allowed here.
func workerStatus(name, allowed string) (lessorv1.WorkerStatus, error) {
	switch name {
	case "":
		return 0, nil
	case "ready":
		return lessorv1.WorkerStatus_WORKER_STATUS_READY, nil
	case "failed":
		return lessorv1.WorkerStatus_WORKER_STATUS_FAILED, nil
	case "draining":
		return lessorv1.WorkerStatus_WORKER_STATUS_DRAINING, nil
	}
	return 0, invalid("status", "is %q; it must be %s", name, allowed)
}

// readJSON reads the body of a notification into a struct. The error is INVALID_ARGUMENT and names
// the field, RESOURCE_EXHAUSTED, or UNAVAILABLE if the connection is at fault.
func readJSON(body io.Reader, n any) error {
	text, err := io.ReadAll(body)
	if err != nil {
		return unread(err)
	}
	if err := strictjson.Unmarshal(text, n, strictjson.Strict, nil); err != nil {
		return invalid(cmp.Or(err.Field, "body"), "%s", err.Problem)
	}
	return nil
}

// unread returns the status of a body that could not be read.
func unread(err error) error {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return status.Errorf(codes.ResourceExhausted, "body: has more than %d bytes", tooLarge.Limit)
	}
	if _, ok := errors.AsType[net.Error](err); ok || errors.Is(err, io.ErrUnexpectedEOF) {
		return status.Errorf(codes.Unavailable, "body: has not arrived: %v", err)
	}
	return invalid("body", "cannot be read: %v", err) // for example, its chunks are malformed
}
