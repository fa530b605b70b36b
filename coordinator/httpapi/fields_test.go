package httpapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// filler gives each field of a message a value that no other field has. In a oneof it sets the
// field with the name in oneof, else the last one.
type filler struct {
	next   int
	isJSON bool // bytes are JSON
	oneof  protoreflect.Name
}

func (f *filler) message(m protoreflect.Message) {
	for i := range m.Descriptor().Fields().Len() {
		field := m.Descriptor().Fields().Get(i)
		if of := field.ContainingOneof(); of != nil && !of.IsSynthetic() && m.WhichOneof(of) != nil && field.Name() != f.oneof {
			continue
		}
		switch {
		case field.IsMap():
			f.next++
			m.Mutable(field).Map().Set(protoreflect.ValueOfString(fmt.Sprintf("k%d", f.next)).MapKey(),
				f.value(field.MapValue(), protoreflect.Value{}))
		case field.IsList():
			list := m.Mutable(field).List()
			for range 2 {
				var item protoreflect.Value
				if field.Message() != nil {
					item = list.NewElement()
				}
				list.Append(f.value(field, item))
			}
		case field.Message() != nil:
			f.value(field, m.Mutable(field))
		default:
			m.Set(field, f.value(field, protoreflect.Value{}))
		}
	}
}

// value returns a value for a field. The value of a message is given, and filled.
func (f *filler) value(field protoreflect.FieldDescriptor, given protoreflect.Value) protoreflect.Value {
	f.next++
	n := f.next
	switch field.Kind() {
	case protoreflect.MessageKind:
		switch m := given.Message().Interface().(type) {
		case *timestamppb.Timestamp:
			m.Seconds = int64(n)
		case *durationpb.Duration:
			m.Nanos = int32(n) * 1e6
		default:
			f.message(given.Message())
		}
		return given
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(fmt.Sprintf("s%d", n))
	case protoreflect.BytesKind:
		if f.isJSON {
			return protoreflect.ValueOfBytes([]byte(strconv.Itoa(n)))
		}
		return protoreflect.ValueOfBytes([]byte{0, byte(n)})
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		values := field.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get(1 + n%(values.Len()-1)).Number())
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(n))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(n))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	}
	return protoreflect.ValueOfUint64(uint64(n))
}

// messageValues adds all values in a message to all, by the paths and in the forms that they have
// in this API.
func messageValues(all map[string]string, path string, m protoreflect.Message) {
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		at := strings.TrimPrefix(path+"."+jsonName(string(field.Name())), ".")
		switch {
		case field.IsMap():
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				messageValue(all, at+"."+k.String(), field.MapValue(), v)
				return true
			})
		case field.IsList():
			for i := range v.List().Len() {
				messageValue(all, fmt.Sprintf("%s[%d]", at, i), field, v.List().Get(i))
			}
		default:
			messageValue(all, at, field, v)
		}
		return true
	})
}

// enumPrefix matches the part of a value's name that is the name of its enum, for all enums of
// lessor.v1 that this API shows.
var enumPrefix = regexp.MustCompile(`^(TASK_STATE|REASON|VERDICT|ERROR_CATEGORY|AFFINITY_MODE|HISTORY_EVENT_TYPE|REFUSED_KIND)_`)

func messageValue(all map[string]string, at string, field protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch v := v.Interface().(type) {
	case protoreflect.Message:
		switch m := v.Interface().(type) {
		case *timestamppb.Timestamp:
			all[at] = m.AsTime().Format(time.RFC3339Nano)
		case *durationpb.Duration:
			all[at] = strconv.FormatInt(m.AsDuration().Milliseconds(), 10)
		default:
			messageValues(all, at, v)
		}
	case protoreflect.EnumNumber:
		all[at] = enumPrefix.ReplaceAllString(string(field.Enum().Values().ByNumber(v).Name()), "")
	case []byte:
		all[at] = string(v)
	case float64:
		if strings.HasSuffix(at, "progressPct") {
			v *= 100
		}
		all[at] = fmt.Sprint(v)
	default:
		all[at] = fmt.Sprint(v)
	}
}

// jsonValues adds all values in a JSON value to all. A value in base64 gets the path and the text
// that it has without base64.
func jsonValues(all map[string]string, at string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			jsonValues(all, strings.TrimPrefix(at+"."+name, "."), inner)
		}
	case []any:
		for i, inner := range v {
			jsonValues(all, fmt.Sprintf("%s[%d]", at, i), inner)
		}
	default:
		text := fmt.Sprint(v)
		if plain, ok := strings.CutSuffix(at, "Base64"); ok {
			raw, _ := base64.StdEncoding.DecodeString(text)
			at, text = plain, string(raw)
		}
		all[at] = text
	}
}

// wantSameValues compares the values of a message with those of a JSON text. renamed returns the
// path in the JSON of a path in the message; "" if the JSON does not have the value. extra lists
// the paths that only the JSON has.
func wantSameValues(t *testing.T, what string, m proto.Message, text []byte, renamed func(string) string, extra ...string) {
	t.Helper()
	var body any
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	if err := decoder.Decode(&body); err != nil {
		t.Fatalf("%s: %v: %s", what, err, text)
	}
	of, got, want := map[string]string{}, map[string]string{}, map[string]string{}
	messageValues(of, "", m.ProtoReflect())
	jsonValues(got, "", body)
	for at, value := range of {
		if at = renamed(at); at != "" {
			want[at] = value
		}
	}
	for _, at := range extra {
		delete(got, at)
	}
	for _, at := range slices.Sorted(maps.Keys(want)) {
		if got[at] != want[at] {
			t.Errorf("%s: %s is %q in the JSON, and %q in the call", what, at, got[at], want[at])
		}
		delete(got, at)
	}
	if len(got) > 0 {
		t.Errorf("%s: the call does not have %v", what, got)
	}
}

// recordingCalls answers each call with a message that has a value in each field, and keeps the
// request.
type recordingCalls struct {
	grpc.ClientConnInterface
	fill     filler
	request  proto.Message
	response proto.Message
}

func (c *recordingCalls) Invoke(_ context.Context, _ string, request, answer any, _ ...grpc.CallOption) error {
	c.request, c.response = request.(proto.Message), answer.(proto.Message)
	c.fill.message(c.response.ProtoReflect())
	if v := c.response.ProtoReflect().Descriptor().Fields().ByName("verdict"); v != nil {
		c.response.ProtoReflect().Set(v, protoreflect.ValueOfEnum(lessorv1.Verdict_VERDICT_COMMITTED.Number()))
	}
	return nil
}

// H2: each field of a request is in the call that it becomes, and each field of the response is in
// the answer, with its own value.
func TestEveryFieldIsPassedOn(t *testing.T) {
	t.Attr("rules", "H2")
	h := Holder{LeaseID: "lease"}
	h.Ticket.Task, h.Ticket.Attempt = lease.TaskID{Space: 1, Seq: 1}, 1
	task := "/v1/tasks/" + h.Ticket.Task.String()
	claimed := `{"attempt": 1, "attemptId": "` + lease.AttemptID(h.Ticket.Task, 1) + `", "workerId": "w", "traceparent": "p", `
	selected := `"filter": {"workspaceId": "ws", "queue": "q", "states": ["READY", "FAILED"], "runId": "ru", "type": "ty", "labels": {"a=b": "c"},
			"hostNodeId": "h", "concurrencyKey": "ck", "idempotencyKey": "ik", "workerId": "w", "createdAfter": "2026-01-01T00:00:00Z",
			"createdBefore": "2026-01-02T00:00:00Z", "finishedAfter": "2026-01-03T00:00:00Z", "finishedBefore": "2026-01-04T00:00:00Z",
			"reasons": ["START_TIMEOUT"], "errorCategories": ["TIMEOUT"]}, "all": true, "pageToken": "p", "requestId": "ri"`
	for _, c := range []struct {
		path, body             string
		onlyInJSON, onlyInCall string // of the request
	}{
		{task + "/started", claimed + `"startedAt": "2026-01-01T00:00:00Z"}`, "attemptId", "taskId leaseId"},
		{task + "/heartbeat", claimed + `"heartbeatAt": "2026-01-01T00:00:00Z", "progressPct": 100, "message": "a", "stage": "b", "metrics": {"c": 2},
			"checkpoint": 3}`, "attemptId", "taskId leaseId"},
		{task + "/heartbeat", claimed + `"stage": "b", "checkpointBase64": "AAE="}`, "attemptId", "taskId leaseId"},
		{task + "/completed", claimed + `"outcome": "SUCCEEDED", "startedAt": "2025-01-01T00:00:00Z", "completedAt": "2026-01-01T00:00:00Z", "reportId": "r", "output": 5, "artifacts": [
			{"resourceId": "a", "workerId": "b", "type": "c", "sizeBytes": 6, "expiresAt": "2026-01-02T00:00:00Z", "inline": true, "metadata": {"d": "e"}}],
			"metrics": {"f": 7}}`, "attemptId outcome", "taskId leaseId"},
		{task + "/completed", claimed + `"outcome": "FAILED", "startedAt": "2025-01-01T00:00:00Z", "completedAt": "2026-01-01T00:00:00Z", "reportId": "r", "metrics": {"f": 7}, "error": {
			"category": "DATA_QUALITY", "message": "a", "stackTrace": "b", "retryable": true, "retryAfterMs": 1500}, "cancelledDuringPhase": "c",
			"partialProgress": 8}`, "attemptId outcome", "taskId leaseId"},
		{"/v1/leases", `{"workerId": "w", "workspaceId": "ws", "queues": ["q"], "maxTasks": 3, "waitMs": 1001, "capabilities": {"types": ["t"],
			"runtimes": ["a"], "features": ["b"], "labels": {"c": "d"}, "resources": {"e": 2}, "singleFlight": true}, "requestId": "ri"}`, "", ""},
		{"/v1/tasks", `{"workspaceId": "ws", "queue": "q", "type": "ty", "payload": 5, "runId": "ru", "taskKey": "tk", "assetId": "as",
			"idempotencyKey": "ik", "priority": -4, "runAt": "2026-01-02T00:00:00Z", "deadline": "2026-01-03T00:00:00Z", "attemptTimeoutMs": 1001,
			"startTimeoutMs": 1002, "retryPolicy": {"maxAttempts": 6, "maxLosses": 7, "initialBackoffMs": 1003, "backoffMultiplier": 1.5,
			"maxBackoffMs": 1004, "nonRetryableCategories": ["TIMEOUT"]}, "heartbeatIntervalMs": 1005, "heartbeatTimeoutMs": 1006,
			"cancelGracePeriodMs": 1007, "retentionMs": 1008, "labels": {"la": "lb"}, "requirements": {"runtimes": ["a"], "features": ["b"],
			"labels": {"c": "d"}, "resources": {"e": 2}}, "resourceRefs": [{"resourceId": "r1", "workerId": "r2", "type": "r3", "scope": "r4",
			"expiresAt": "2026-01-04T00:00:00Z", "metadata": {"f": "g"}}], "affinity": {"key": "ak", "mode": "PREFERRED", "ttlMs": 1009},
			"concurrencyKey": "ck", "concurrencyLimit": 8, "fairnessKey": "fk", "traceMeta": {"hostNodeId": "h", "middlewareChain": ["m"],
			"chainIndex": 9}, "requestId": "ri"}`, "", ""},
		{task + ":cancel", `{"reason": "a", "requestId": "ri"}`, "", "taskId"},
		{task + ":retry", `{"deadline": "2026-01-01T00:00:00Z", "requestId": "ri"}`, "", "taskId"},
		{task + ":adopt", `{"attempt": 5, "requestId": "ri"}`, "", "taskId"},
		{"/v1/tasks:batchCancel", `{` + selected + `, "reason": "a"}`, "", ""},
		{"/v1/tasks:batchRetry", `{` + selected + `, "deadline": "2026-01-03T00:00:00Z"}`, "", ""},
		{"/v1/tasks:batchDelete", `{` + selected + `, "force": true}`, "", ""},
		{"/v1/tasks:batchSubmit", `{"tasks": [{"queue": "q", "payload": 5, "affinity": {"key": "ak", "mode": "STICKY", "ttlMs": 1001}}, {"queue": "r", "payload": 6}],
			"requestId": "ri"}`, "", ""},
	} {
		for _, isJSON := range []bool{true, false} {
			calls := &recordingCalls{fill: filler{isJSON: isJSON}}
			api := New(Config{
				Calls: calls, Door: fixedHolder{h}, MaxBody: 1 << 20, Logger: slog.New(slog.DiscardHandler),
				Answered: func(string, int) {},
			}, http.NewServeMux())
			w := httptest.NewRecorder()
			api.ServeHTTP(w, httptest.NewRequest(http.MethodPost, c.path, strings.NewReader(c.body)))
			if calls.request == nil || w.Code/100 != 2 {
				t.Fatalf("%s: %d %s", c.path, w.Code, w.Body)
			}
			wantSameValues(t, "request of "+c.path, calls.request, []byte(c.body), func(at string) string {
				if slices.Contains(strings.Fields(c.onlyInCall), at) {
					return ""
				}
				return requestPath.Replace(at)
			}, strings.Fields(c.onlyInJSON)...)
			wantSameValues(t, "answer of "+c.path, calls.response, w.Body.Bytes(), answerPath, "acknowledged", "finalState")
		}
	}
}

// requestPath takes the names of messages off a path that the JSON of a request does not have.
var requestPath = strings.NewReplacer("concurrency.", "", "progress.", "", "task.", "")

// onlyGRPC matches the paths of what only the gRPC API shows.
var onlyGRPC = regexp.MustCompile(`^task\.(feedback|middlewares)\[|^currentAttempt$|^detail$|^results\[\d+\]\.error\.`)

// inEnvelope matches the paths of what an assignment shows of its task.
var inEnvelope = regexp.MustCompile(`task\.(?:spec\.)?(?:(?:requirements\.)(resources)|` +
	`(taskId|tenantId|createdAt|workspaceId|queue|type|payload|runId|taskKey|assetId|deadline|labels|resourceRefs|traceMeta))\b`)

// answerPath returns the path in an answer of a path in a response; "" if the answer does not have
// it.
func answerPath(at string) string {
	if onlyGRPC.MatchString(at) {
		return ""
	}
	if counted, ok := strings.CutPrefix(at, "result."); ok { // of what changes many tasks
		return counted
	}
	assignment, of, ok := strings.Cut(at, ".task.")
	if !ok || !strings.HasPrefix(at, "assignments[") {
		return at
	}
	shown := inEnvelope.ReplaceAllString("task."+of, "$1$2")
	if shown == "task."+of {
		return ""
	}
	return assignment + "." + strings.Replace(shown, "createdAt", "enqueuedAt", 1)
}

// S5: each field of an event is in what its reader gets. Only a durable event has an id, from which
// the reader can resume.
func TestEveryFieldOfAnEventIsPassedOn(t *testing.T) {
	t.Attr("rules", "S5")
	for _, event := range []string{"history", "progress", "chunk", "missed", "deleted"} {
		for _, body := range []protoreflect.Name{"text", "data"} {
			m, f := &lessorv1.WatchTaskResponse{}, filler{oneof: protoreflect.Name(event)}
			f.message(m.ProtoReflect())
			if c := m.GetChunk(); c != nil {
				c.ProtoReflect().Set(c.ProtoReflect().Descriptor().Fields().ByName(body), map[protoreflect.Name]protoreflect.Value{
					"text": protoreflect.ValueOfString("text"), "data": protoreflect.ValueOfBytes([]byte{0, 1}),
				}[body])
			}
			m.SubSequence = 1
			if event == "history" {
				m.SubSequence = 0
			}
			if event != "chunk" {
				m.Attempt = 0
			}
			w := httptest.NewRecorder()
			if err := newEventStream(w).tell(m); err != nil {
				t.Fatal(err)
			}
			head, data, _ := strings.Cut(w.Body.String(), "data: ")
			if durable := strings.Contains(head, fmt.Sprintf("\nid: %d\n", m.GetSequence())); durable != (event == "history") {
				t.Errorf("%s is told as %q", event, head)
			}
			wantSameValues(t, event, m, []byte(data), func(at string) string {
				if at == "sequence" || at == "subSequence" {
					return ""
				}
				return eventPath.Replace(at)
			}, "deleted")
			if event == "deleted" && !strings.Contains(data, `"deleted":true`) {
				t.Errorf("the end of a task is told as %s", data)
			}
		}
	}
}

// eventPath turns the paths of a WatchTaskResponse into those of the data of an event.
var eventPath = strings.NewReplacer("history.taskState", "event.taskState", "taskState", "state", "history.", "event.",
	"chunk.", "")
