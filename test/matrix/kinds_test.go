package matrix

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// kind says what a field names; plain is for a field that names nothing.
type kind string

const plain kind = "plain"

// kinds says what each field of a request names. The key is the field's name, with the name of its
// message if that is needed. A text or number that is missing here fails the test, so that whoever
// adds a field decides whether it can reach another tenant's objects. Enums, bools, floats and
// times name nothing.
var kinds = map[string]kind{
	"task_id":              "task",
	"lease_id":             "lease",
	"worker_id":            "worker",
	"session_id":           "session",
	"session_token":        "resume",
	"instance_id":          "instance",
	"replaces_instance_id": "instance",
	"token_id":             "token",
	"tenant":               "tenant",
	"workspace_id":         "workspace",
	"queue":                "queue",
	"queues":               "queue",
	"type":                 "type",
	"types":                "type",
	"run_id":               "run",
	"task_key":             "node",
	"asset_id":             "asset",
	"host_node_id":         "host",
	"middleware_chain":     "node",
	"idempotency_key":      "idempotency",
	"concurrency_key":      "concurrency",
	"fairness_key":         "fairness",
	"fairness_weights":     "fairness",
	"resource_id":          "resource",
	"pool_id":              "pool",
	"package":              "package",
	"labels":               "label",
	"page_token":           "page",
	"after_sequence":       "sequence",
	"request_id":           "request",
	"report_id":            "report",
	"traceparent":          "trace",

	"Affinity.key": "affinity",
	// not that of a submit, which would conflict with the task that a filter with all names finds
	"TaskFilter.idempotency_key":     "key",
	"ListAuditEventsRequest.subject": "subject",
	"AwaitTasksRequest.add":          "task",
	"AwaitTasksRequest.forget":       "task",
	"GetQueueRequest.name":           "queue",
	"UpdateQueueRequest.name":        "queue",
	"PurgeQueueRequest.name":         "queue",
	"InstallPackageRequest.name":     "package",
	"UninstallPackageRequest.name":   "package",
	"Package.name":                   "package",
	"PkgEvent.name":                  "package",
	"FollowStart.name":               plain, // the standbys are those of the coordinator
	"StorePosition.run":              plain,
	"StorePosition.number":           plain,
	"StoreCursor.keyspace":           plain,
	"StoreCursor.key":                plain,
	"operation_id":                   "request",
	"WorkerInfo.name":                "worker",
	"Sender.id":                      "worker",
	"SessionRequest.id":              "frame",
	"SessionRequest.corr":            "frame",
	"Ack.for":                        "frame",

	// What is done, and how it went: these name nothing.
	"payload": plain, "output": plain, "checkpoint": plain, "partial_progress": plain, "message": plain, "stage": plain, "reason": plain, "problem": plain, "backup_id": plain,
	"stack_trace": plain, "cancelled_during_phase": plain, "metadata": plain, "metrics": plain, "FeedbackChunk.channel": plain,
	"FeedbackChunk.mime_type": plain, "FeedbackChunk.text": plain, "FeedbackChunk.data": plain, "Error.code": plain,
	"Error.remediation": plain, "Artifact.type": plain, "ResourceRef.type": plain, "ResourceRef.scope": plain, "subject": plain,
	"action": plain, "outcome": plain, "Sender.role": plain, "flags": plain, "version": plain, "hostname": plain,
	"runtimes": plain, "features": plain, "resources": plain, "packages": plain, "source": plain, "sha256": plain, "detail": plain, "PkgEvent.code": plain,
	"per_type_limits": plain,
	// Must be the same credential that came with the call.
	"HandshakeAuth.token": plain,
	// Numbers that count or limit something, or that are positions within what another field names.
	"attempt": plain, "priority": plain, "size_bytes": plain, "max_attempts": plain, "max_losses": plain, "max_tasks": plain,
	"max_parallel": plain, "max_bytes": plain, "max_inflight": plain, "burst": plain, "page_size": plain, "concurrency_limit": plain,
	"chain_index": plain, "Handshake.protocol": plain, "FeedbackChunk.index": plain, "SessionRequest.seq": plain,
	"Resume.last_seen_seq": plain, "Error.expected_seq": plain,
	// Fields of gRPC's own services, which know no tenants.
	"HealthCheckRequest.service": plain, "ServerReflectionRequest.host": plain, "file_by_filename": plain, "file_containing_symbol": plain,
	"containing_type": plain, "extension_number": plain, "all_extension_numbers_of_type": plain, "list_services": plain,
}

// kindOf returns what a field names, and fails the test if kinds does not say it.
func kindOf(t *testing.T, f protoreflect.FieldDescriptor) kind {
	t.Helper()
	for _, name := range []string{string(f.Parent().Name()) + "." + string(f.Name()), string(f.Name())} {
		if k, ok := kinds[name]; ok {
			return k
		}
	}
	if canName(f) {
		t.Errorf("%s: say in kinds what it names", f.FullName())
	}
	return plain
}

// canName reports whether a field is of a type that can name something.
func canName(f protoreflect.FieldDescriptor) bool {
	switch f.Kind() {
	case protoreflect.BoolKind, protoreflect.EnumKind, protoreflect.FloatKind, protoreflect.DoubleKind:
		return false
	}
	return !strings.HasPrefix(string(f.FullName()), "google.protobuf.")
}
