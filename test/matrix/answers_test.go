package matrix

import (
	"fmt"
	"slices"
	"strings"

	codev1 "google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lessor-dev/lessor/internal/detail"
)

// answer is what a cell was answered.
type answer struct {
	text         string   // the whole answer, in a form that can be compared
	summary      []string // a summary in a few words
	code         string   // the code of an error
	refusal      string   // status, code, and what is wrong with the credential if the answer says that
	randomValues []string // random values in it
}

// addMessage adds a message to the answer.
func (a *answer) addMessage(m proto.Message) {
	a.summary = append(a.summary, summaryOf(m.ProtoReflect())...)
	a.text += plainText(m) + "\n"
	a.randomValues = randomValues(m.ProtoReflect(), a.randomValues)
}

// end adds how the call ended; a nil error means OK.
func (a *answer) end(err error) {
	if err == nil {
		a.summary = slices.Insert(a.summary, 0, "OK")
		return
	}
	name, info := codev1.Code(status.Code(err)).String(), detail.Of[*errdetails.ErrorInfo](status.Convert(err)).GetMetadata()
	a.code, a.refusal = info["code"], strings.TrimSpace(name+" "+info["code"]+" "+info["problem"])
	a.summary = slices.Insert(a.summary, 0, name, a.code)
	a.text += plainText(status.Convert(err).Proto()) + "\n"
}

// plainText returns a message as text. Package prototext varies its white space on purpose, so it
// is made uniform.
func plainText(m proto.Message) string {
	return strings.Join(strings.Fields(prototext.MarshalOptions{Multiline: true}.Format(m)), " ")
}

// summaryOf summarizes an answer: the verdict, numbers of items, what was done.
func summaryOf(m protoreflect.Message) (words []string) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		v := m.Get(f)
		switch {
		case !m.Has(f):
		case f.Name() == "verdict" || f.Name() == "reason" && f.Enum() != nil || f.Name() == "code" && f.Kind() == protoreflect.StringKind:
			words = append(words, lastWord(f, v))
		case f.Name() == "result", f.Name() == "error", f.ContainingOneof() != nil && f.Message() != nil:
			words = append(append(words, string(f.Name())), summaryOf(v.Message())...)
		case f.IsList() && (f.Name() == "verdicts" || f.Name() == "leases" || f.Name() == "results"):
			words = append(append(words, fmt.Sprint(v.List().Len(), " ", f.Name())), summaryOf(v.List().Get(0).Message())...)
		case f.IsList():
			words = append(words, fmt.Sprint(v.List().Len(), " ", f.Name()))
		case f.Name() == "created", f.Name() == "resumed", f.Name() == "replayed":
			words = append(words, string(f.Name()))
		case f.Name() == "changed", f.Name() == "skipped", f.Name() == "leases", f.Name() == "sessions":
			words = append(words, fmt.Sprint(v.Uint(), " ", f.Name()))
		}
	}
	return words
}

// lastWord returns a text as it is, and an enum's name without its prefix.
func lastWord(f protoreflect.FieldDescriptor, v protoreflect.Value) string {
	if f.Enum() == nil {
		return v.String()
	}
	name := string(f.Enum().Values().ByNumber(v.Enum()).Name())
	return strings.TrimPrefix(strings.TrimPrefix(name, "VERDICT_"), "REASON_")
}

// randomFields lists the fields of answers that have a random value when they are new.
var randomFields = map[protoreflect.Name]bool{
	"lease_id": true, "session_id": true, "session_token": true, "token": true, "token_id": true, "key_id": true, "task_token": true, "operation_id": true,
}

func randomValues(m protoreflect.Message, found []string) []string {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				found = randomValues(v.List().Get(i).Message(), found)
			}
		case f.Message() != nil:
			found = randomValues(v.Message(), found)
		case randomFields[f.Name()]:
			found = append(found, v.String())
		}
		return true
	})
	return found
}
