package pool

import (
	"cmp"
	"context"
	"fmt"
	"net/url"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker/readiness"
)

// Limits of a notification.
const (
	maxEndpoint = 1024
	maxMessage  = 1024
	maxText     = 256
)

// service is PoolService.
type service struct {
	lessorv1.UnimplementedPoolServiceServer
	*Supervisor
}

var _ lessorv1.PoolServiceServer = service{}

// NotifyReady implements PoolService.
func (s service) NotifyReady(
	_ context.Context, req *lessorv1.NotifyReadyRequest,
) (*lessorv1.NotifyReadyResponse, error) {
	w, err := s.find(req, req.GetPoolId(), req.GetWorkerId())
	if err != nil {
		return nil, err
	}
	if err := checkReady(req, w); err != nil {
		return nil, err
	}
	return &lessorv1.NotifyReadyResponse{}, w.notifyReady(req)
}

// NotifyFailed implements PoolService.
func (s service) NotifyFailed(
	_ context.Context, req *lessorv1.NotifyFailedRequest,
) (*lessorv1.NotifyFailedResponse, error) {
	w, err := s.find(req, req.GetPoolId(), req.GetWorkerId())
	if err != nil {
		return nil, err
	}
	switch req.GetStatus() {
	case lessorv1.WorkerStatus_WORKER_STATUS_UNSPECIFIED, lessorv1.WorkerStatus_WORKER_STATUS_FAILED:
	default:
		return nil, invalid("status", "must be failed")
	}
	if len(req.GetMessage()) > maxMessage {
		return nil, invalid("message", "has %d bytes; at most %d are allowed", len(req.GetMessage()), maxMessage)
	}
	return &lessorv1.NotifyFailedResponse{}, w.notifyFailed(req.GetMessage())
}

// ListPools implements PoolService.
func (s service) ListPools(_ context.Context, req *lessorv1.ListPoolsRequest) (*lessorv1.ListPoolsResponse, error) {
	if err := unknown(req); err != nil {
		return nil, err
	}
	resp := &lessorv1.ListPoolsResponse{}
	for _, p := range s.pools {
		resp.Pools = append(resp.Pools, p.show())
	}
	return resp, nil
}

// GetPool implements PoolService.
func (s service) GetPool(_ context.Context, req *lessorv1.GetPoolRequest) (*lessorv1.GetPoolResponse, error) {
	if err := unknown(req); err != nil {
		return nil, err
	}
	if err := checkName("pool_id", req.GetPoolId()); err != nil {
		return nil, err
	}
	p := s.pool(req.GetPoolId())
	if p == nil {
		return nil, status.Errorf(codes.NotFound, "pool_id: the supervisor has no such pool: %q", req.GetPoolId())
	}
	return &lessorv1.GetPoolResponse{Pool: p.show()}, nil
}

// find returns the worker that a notification is about.
func (s service) find(req proto.Message, poolID, workerID string) (*worker, error) {
	if err := unknown(req); err != nil {
		return nil, err
	}
	if err := cmp.Or(checkName("pool_id", poolID), checkName("worker_id", workerID)); err != nil {
		return nil, err
	}
	p := s.pool(poolID)
	if p == nil {
		return nil, invalid("pool_id", "the supervisor has no such pool: %q", poolID)
	}
	w := p.worker(workerID)
	if w == nil {
		return nil, invalid("worker_id", "the pool has no such worker: %q", workerID)
	}
	return w, nil
}

func checkName(field, value string) error {
	if value == "" {
		return invalid(field, "is required")
	}
	if len(value) > maxText {
		return invalid(field, "has %d bytes; at most %d are allowed", len(value), maxText)
	}
	return nil
}

func checkReady(req *lessorv1.NotifyReadyRequest, w *worker) error {
	c := req.GetCapabilities()
	switch {
	case req.GetStatus() != lessorv1.WorkerStatus_WORKER_STATUS_READY && req.GetStatus() != lessorv1.WorkerStatus_WORKER_STATUS_DRAINING:
		return invalid("status", "must be ready or draining")
	case req.GetStatus() == lessorv1.WorkerStatus_WORKER_STATUS_READY && req.GetVramUsedBytes() == 0:
		return invalid("vram_used_bytes", "must not be 0")
	case len(req.GetEndpoint()) > maxEndpoint:
		return invalid("endpoint", "has %d bytes; at most %d are allowed", len(req.GetEndpoint()), maxEndpoint)
	case req.GetEndpoint() != "" && !isURL(req.GetEndpoint()):
		return invalid("endpoint", "is %q; it must be a URL such as http://127.0.0.1:8001", req.GetEndpoint())
	case len(c.GetModelRef()) > maxText:
		return invalid("capabilities.model_ref", "has %d bytes; at most %d are allowed", len(c.GetModelRef()), maxText)
	case len(c.GetEngineVersion()) > maxText:
		return invalid("capabilities.engine_version",
			"has %d bytes; at most %d are allowed", len(c.GetEngineVersion()), maxText)
	case c != nil && c.GpuDevice != nil && w.gpu != nil && c.GetGpuDevice() != *w.gpu:
		return invalid("capabilities.gpu_device",
			"is %d, but the worker was given GPU %d (%s)", c.GetGpuDevice(), *w.gpu, readiness.VarGPUDevice)
	}
	return nil
}

// isURL returns whether text is a URL that says where something is: after the scheme it has a host,
// or no host and a path, as unix:///run/gpu-0.sock. It takes no host and port without a scheme.
func isURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme != "" && (u.Hostname() != "" || u.Host == "" && u.Path != "")
}

// unknown refuses a field that this program does not know: the caller means something by it.
func unknown(m proto.Message) error {
	if n := len(m.ProtoReflect().GetUnknown()); n > 0 {
		return invalid("request", "has a field that this supervisor does not know; the caller is newer")
	}
	if r, ok := m.(*lessorv1.NotifyReadyRequest); ok && r.GetCapabilities() != nil {
		return unknown(r.GetCapabilities())
	}
	return nil
}

// invalid returns an INVALID_ARGUMENT that names the field, for people and for programs (S4).
func invalid(field, problem string, args ...any) error {
	text := fmt.Sprintf(problem, args...)
	st := status.New(codes.InvalidArgument, field+": "+text)
	detailed, err := st.WithDetails(&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: field, Description: text}}})
	if err != nil {
		return st.Err() // a text that is not UTF-8
	}
	return detailed.Err()
}
