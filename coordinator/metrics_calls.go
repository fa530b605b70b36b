package coordinator

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// callMetrics counts the calls of Lessor's own services, and measures those that are not streams.
// Only the methods of the services have labels.
type callMetrics struct {
	ended   *prometheus.CounterVec
	took    *prometheus.HistogramVec
	methods map[string]methodMetrics // by full name
}

// methodMetrics are the metrics of a method that almost every call needs: a look-up by label for
// each of them would be too slow.
type methodMetrics struct {
	name string
	ok   prometheus.Counter
	took prometheus.Observer // nil for a stream, which lasts as long as its client likes
}

func newCallMetrics() *callMetrics {
	m := &callMetrics{
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lessor_calls_total", Help: "Calls that ended, streams included, by method and gRPC code.",
		}, []string{"method", "code"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "lessor_call_seconds",
			Help:    "Duration of calls that are not streams, by method, whatever their code.",
			Buckets: prometheus.ExponentialBuckets(500e-6, 4, 8),
		}, []string{"method"}),
		methods: map[string]methodMetrics{},
	}
	for _, service := range []*grpc.ServiceDesc{
		&lessorv1.TaskService_ServiceDesc, &lessorv1.WorkerService_ServiceDesc,
		&lessorv1.AdminService_ServiceDesc, &lessorv1.AuthService_ServiceDesc,
	} {
		full := func(name string) string { return "/" + service.ServiceName + "/" + name }
		for _, one := range service.Methods {
			m.methods[full(one.MethodName)] = methodMetrics{
				name: one.MethodName, ok: m.ended.WithLabelValues(one.MethodName, codes.OK.String()),
				took: m.took.WithLabelValues(one.MethodName),
			}
		}
		for _, one := range service.Streams {
			m.methods[full(one.StreamName)] = methodMetrics{
				name: one.StreamName,
				ok:   m.ended.WithLabelValues(one.StreamName, codes.OK.String()),
			}
		}
	}
	return m
}

func (m *callMetrics) unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	begin := time.Now()
	res, err := next(ctx, req)
	m.end(info.FullMethod, begin, err)
	return res, err
}

func (m *callMetrics) stream(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler,
) error {
	err := next(srv, stream)
	m.end(info.FullMethod, time.Time{}, err)
	return err
}

func (m *callMetrics) end(method string, begin time.Time, err error) {
	of, ours := m.methods[method]
	switch {
	case !ours:
		return
	case err == nil:
		of.ok.Inc()
	default:
		m.ended.WithLabelValues(of.name, status.Code(asStatus(err)).String()).Inc()
	}
	if of.took != nil {
		of.took.Observe(time.Since(begin).Seconds())
	}
}
