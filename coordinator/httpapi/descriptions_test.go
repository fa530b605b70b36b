package httpapi

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// messagesOf has the messages whose fields a schema shows; the first one that has a field describes
// it. A schema that is not here shows the message of its name.
var messagesOf = map[string][]string{
	"Alive": {"HeartbeatResponse"}, "Assignment": {"Assignment", "Task", "TaskSpec"}, "CancelRequest": {"CancelTaskRequest"},
	"Capabilities": {"Capabilities", "Concurrency"}, "CompletedRequest": {"CompleteRequest", "FailRequest"}, "CompletedResponse": {"CompleteResponse"},
	"DeltaEvent": {"FeedbackChunk", "WatchTaskResponse"}, "HeartbeatRequest": {"HeartbeatRequest", "Progress"}, "Spec": {"TaskSpec"},
	"StartedRequest": {"StartRequest"}, "StateEvent": {"WatchTaskResponse"}, "SubmitRequest": {"TaskSpec", "SubmitTaskRequest"},
	"BatchSubmitRequest": {"BatchSubmitTasksRequest"}, "BatchSubmitResponse": {"BatchSubmitTasksResponse"}, "ListRequest": {"TaskFilter", "ListTasksRequest"},
	"ListResponse": {"ListTasksResponse"}, "RetryRequest": {"RetryTaskRequest"}, "AdoptRequest": {"AdoptResultRequest"}, "DeleteRequest": {"DeleteTaskRequest"},
	"CancelTasksRequest": {"BatchCancelTasksRequest"}, "RetryTasksRequest": {"BatchRetryTasksRequest"}, "DeleteTasksRequest": {"BatchDeleteTasksRequest"},
	"BulkResponse": {"BatchResult"}, "SubmitResponse": {"SubmitTaskResponse"}, "TaskResponse": {"GetTaskResponse"},
}

const aboutKeys = "Makes the submit idempotent for as long as the task exists: the same key with the same spec is the same task, with another spec it is " +
	"a conflict. Specs are compared as they were sent, so a repeat is safest with the same bytes: a default that is written out, an empty object in place of " +
	"none, and in the payload another order, escape or form of a number make another spec. White space does not. Optional; not empty."

// ownWords describe what the protos do not have, or not in words that fit this API.
var ownWords = map[string]string{
	"Alive.acknowledged": "Always true.", "CompletedResponse.acknowledged": "Always true.",
	"Assignment.enqueuedAt": "When the task was submitted.", "Assignment.resources": "The requirements.resources of the task.",
	"CompletedRequest.outcome":     "How the attempt ended. CANCELLED: a cancel stopped it.",
	"CompletedRequest.error":       "Why it failed. Only with FAILED, where it is required, and CANCELLED.",
	"CompletedRequest.output":      "Result, only with SUCCEEDED; at most 1 MiB unless the coordinator is configured otherwise.",
	"CompletedRequest.artifacts":   "Results that lie elsewhere, only with SUCCEEDED. At most 64.",
	"CompletedResponse.finalState": "How the attempt ended: SUCCEEDED, FAILED or CANCELLED. taskState says what became of the task.",
	"DeltaEvent.attempt":           "Attempt that printed it.",
	"DeltaEvent.dataBase64":        "The piece, as base64, if it is not text.",
	"DeltaEvent.state":             "State of the task.",
	"HistoryEvent.refusedVerdict":  "The verdict on what was refused.",
	"ProblemBody.cancelReason":     "Why a cancel was asked.",
	"ProblemBody.code":             "Code as in docs/errors.md; absent with a verdict that is no fault of the worker.",
	"ProblemBody.error":            "Kind of the problem, for programs.",
	"ProblemBody.expectedAttempt":  "With attempt_mismatch: newest attempt of the task.",
	"ProblemBody.field":            "Field that is wrong.",
	"ProblemBody.message":          "What is wrong, for people.",
	"ProblemBody.reason":           "Reason of the verdict; without one the code without its E., with underscores.",
	"ProblemBody.receivedAttempt":  "With attempt_mismatch: attempt of the caller.",
	"ProblemBody.retryAfterMs":     "How long to wait before the request is repeated, unchanged.",
	"ProblemBody.serverTime":       "Coordinator's wall clock.",
	"ProblemBody.state":            "With task_already_terminal: state of the task, with SUCCEEDED for COMPLETED. It is not final if the attempt alone is over, as after a failure that is retried.",
	"ProblemBody.taskId":           "With a conflict: task that has the idempotencyKey, or whose state does not allow the request.",
	"ProblemBody.taskState":        "State of the task.",
	"ProblemBody.verdict":          "CANCELLED or REJECTED; null if there is no verdict, and nothing has changed.",
	"StateEvent.deleted":           "The task was deleted; its last event.",
	"StateEvent.event":             "A durable event.",
	"StateEvent.state":             "State of the task.",
	"StartedRequest.attempt":       "The attempt of the assignment.",
	"HeartbeatRequest.attempt":     "The attempt of the assignment.",
	"CompletedRequest.attempt":     "The attempt of the assignment.",
	"StartedRequest.attemptId":     "The attemptId of the assignment; checked if it is sent.",
	"HeartbeatRequest.attemptId":   "The attemptId of the assignment; checked if it is sent.",
	"CompletedRequest.attemptId":   "The attemptId of the assignment; checked if it is sent.",
	"GetRequest.waitMs": "How long to wait for the end of the task, at most a minute. Left out or 0: not at all. The answer is 200 in either case; state says whether " +
		"the task has ended.",
	"Spec.idempotencyKey":          aboutKeys,
	"SubmitRequest.idempotencyKey": aboutKeys,
	"HeartbeatRequest.progressPct": "How far the work has come, 0 to 100. Absent: 0 if there is a message or stage, else the last one stays.",
	"HistoryEvent.sequence":        "Durable number, rising within the workspace; the id of the server-sent event.",
	"Capabilities.runtimes": "Runtimes that it has, such as \"python3.12\" or \"cuda\"; at most 256. Compared with requirements of tasks, as are " +
		"features, labels and resources. Each name and value has at most 256 bytes.",
	"ListRequest.states":   "States, each as a parameter of its own. Left out: any.",
	"ListRequest.labels":   "Labels that the task must have, as key=value, each as a parameter of its own.",
	"TaskFilter.states":    "States. Left out: any.",
	"Progress.metrics":     "Gauges of the attempt.",
	"Task.artifacts":       "Artifacts of the report that brought the output.",
	"TaskResponse.task":    "The task.",
	"Progress.progressPct": "How far the work has come, 0 to 100.",
}

var (
	protoMessage = regexp.MustCompile(`^message (\w+) \{`)
	protoField   = regexp.MustCompile(`^(?:optional |repeated )?[\w.<>, ]+ (\w+) = \d+`)
	// notHere matches what comments say that is not about this API: numbers of rules, and lists of
	// tasks.
	notHere = regexp.MustCompile(` \([A-Z]\d+(?:, [A-Z]\d+)*\)| Lists leave [a-z ]+ out\.`)
)

// ofHTTP puts words of this API in the place of those of gRPC.
var ofHTTP = strings.NewReplacer("ALREADY_EXISTS", "a conflict", "TaskError.", "")

// ofNumbers says that a 0 is the same as no number. That of a priority is the default itself.
var ofNumbers = strings.NewReplacer("Default 0.", "Default 0.", "Default ", "Left out or 0: ", "Absent: no limit",
	"Left out or 0: no limit")

// fieldComments returns the comments of the fields of lessor.v1 as this API speaks of fields, by
// message and name in JSON: "Task.taskId".
func fieldComments(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../proto/lessor/v1/*.proto")
	if err != nil || len(files) == 0 {
		t.Fatalf("no protos (%v)", err)
	}
	comments := map[string]string{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var message, comment string
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if said, ok := strings.CutPrefix(line, "//"); ok {
				comment += said
				continue
			}
			if m := protoMessage.FindStringSubmatch(line); m != nil {
				message = m[1]
			} else if m := protoField.FindStringSubmatch(line); m != nil {
				comments[message+"."+jsonName(m[1])] = ofHTTP.Replace(jsonNames(notHere.ReplaceAllString(strings.TrimSpace(comment), "")))
			}
			comment = ""
		}
	}
	return comments
}

// describe sets the description of a field of a schema.
func (s *schemas) describe(name, field string, schema object) {
	said := ownWords[name+"."+field]
	plain, isBase64 := strings.CutSuffix(field, "Base64")
	messages := messagesOf[name]
	if messages == nil {
		messages = []string{name}
	}
	for _, message := range messages {
		if said == "" {
			said = s.comments[message+"."+plain]
		}
	}
	if name == "TaskFilter" { // there nothing may be empty or null
		said = left.Replace(said)
	}
	if kind := schema["type"]; kind == "integer" || kind == "number" {
		said = ofNumbers.Replace(said)
	}
	switch form, _ := schema["description"].(string); {
	case said == "":
		s.undescribed = append(s.undescribed, name+"."+field)
	case isBase64 && ownWords[name+"."+field] == "":
		said = "In place of " + plain + ": its bytes, as base64."
	case form != "":
		said = form + " " + said
	}
	schema["description"] = said
}
