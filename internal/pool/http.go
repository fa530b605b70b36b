package pool

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
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

// httpStatus returns the status of P3.
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
	req := &lessorv1.NotifyReadyRequest{WorkerId: n.WorkerID, PoolId: n.PoolID, Status: said, Endpoint: n.Endpoint, VramUsedBytes: n.VRAMUsedBytes}
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

// readJSON reads one JSON value. Package json accepts invalid UTF-8, half of a surrogate pair, a name that comes twice, and names in any case, which two
// programs may read differently: readJSON refuses them. The error is INVALID_ARGUMENT and names the field, RESOURCE_EXHAUSTED, or UNAVAILABLE if the
// connection is at fault.
func readJSON(body io.Reader, n any) error {
	text, err := io.ReadAll(body)
	if err != nil {
		return notJSON(err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err = d.Decode(n); err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			err := exact(json.NewDecoder(bytes.NewReader(text)), "", reflect.TypeOf(n))
			if err == nil && protojson.Unmarshal(text, new(structpb.Value)) != nil { // of what is left, it refuses these alone
				err = invalid("body", "has a text that is not valid Unicode: invalid UTF-8, or an unpaired surrogate")
			}
			return err
		}
		if err == nil {
			err = errors.New("something follows the JSON value")
		}
	}
	return notJSON(err)
}

// exact reads a value that package json has read into the type t, and refuses a name that comes twice or in another case.
func exact(d *json.Decoder, path string, t reflect.Type) error {
	if token, err := d.Token(); err != nil || token != json.Delim('{') { // no field of a notification is a list
		return err
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for seen := map[string]bool{}; d.More(); {
		token, err := d.Token()
		if err != nil {
			return err
		}
		name := fmt.Sprint(token)
		field, known := fieldOf(t, name)
		switch {
		case !known:
			return invalid(path+name, "has the wrong case")
		case seen[name]:
			return invalid(path+name, "is sent twice")
		}
		seen[name] = true
		if err := exact(d, path+name+".", field); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

// fieldOf returns the type of the field of a struct with a JSON name.
func fieldOf(t reflect.Type, name string) (reflect.Type, bool) {
	for f := range t.Fields() {
		if f.Tag.Get("json") == name {
			return f.Type, true
		}
	}
	return nil, false
}

// notJSON returns the status of a body that package json has refused, or that could not be read.
func notJSON(err error) error {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return status.Errorf(codes.ResourceExhausted, "body: has more than %d bytes", tooLarge.Limit)
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return status.Errorf(codes.Unavailable, "body: has not arrived: %v", err)
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return invalid(cmp.Or(wrong.Field, "body"), "cannot be a JSON %s", wrong.Value)
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	if name, found := strings.CutPrefix(text, "unknown field "); found {
		return invalid(strings.Trim(name, `"`), "is not a field of this notification")
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		text = "ends before the JSON value does"
	}
	return invalid("body", "%s", fmt.Sprint("is not JSON: ", text))
}
