package docs_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

const workers = "../../docs/workers.md"

var (
	pythonBlock = regexp.MustCompile("(?s)\n```python\n(.*?)\n```\n")
	// pythonName matches a name in a module that protoc makes: the file of the module, and the name.
	pythonName     = regexp.MustCompile(`(\w+)_pb2(?:_grpc)?\.(\w+)`)
	pythonCall     = regexp.MustCompile(`\bworkers\.(\w+)\(`)
	pythonArgument = regexp.MustCompile(`(?:^|, )(\w+)=`)
)

// The Python of docs/workers.md, which no check runs, has the modules, names, fields and calls of the protos.
func TestPython(t *testing.T) {
	page, err := os.ReadFile(workers)
	if err != nil {
		t.Fatal(err)
	}
	block := pythonBlock.FindSubmatch(page)
	if block == nil {
		t.Fatalf("%s has no Python", workers)
	}
	text := string(block[1])
	for _, at := range pythonName.FindAllStringSubmatchIndex(text, -1) {
		module, name := text[at[2]:at[3]], strings.TrimSuffix(text[at[4]:at[5]], "Stub")
		desc, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("lessor.v1." + name))
		if err != nil || desc.ParentFile().Path() != "lessor/v1/"+module+".proto" {
			t.Errorf("%s.proto does not declare %s", module, name)
			continue
		}
		message, ok := desc.(protoreflect.MessageDescriptor)
		if !ok {
			continue
		}
		for _, argument := range pythonArgument.FindAllStringSubmatch(argumentsAt(text[at[1]:]), -1) {
			if message.Fields().ByName(protoreflect.Name(argument[1])) == nil {
				t.Errorf("%s has no field %s", name, argument[1])
			}
		}
	}
	calls := pythonCall.FindAllStringSubmatch(text, -1)
	for _, call := range calls {
		if find[protoreflect.ServiceDescriptor](t, "lessor.v1.WorkerService").Methods().ByName(protoreflect.Name(call[1])) == nil {
			t.Errorf("there is no call %s", call[1])
		}
	}
	if len(calls) < 3 {
		t.Errorf("it makes %d calls, want Lease, Start and Complete", len(calls))
	}
}

// argumentsAt returns the arguments of a call that begins with its parenthesis, without those of the calls within.
func argumentsAt(text string) string {
	var own strings.Builder
	depth := 0
	for _, c := range text {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case depth == 1:
			own.WriteRune(c)
		}
		if depth == 0 {
			break
		}
	}
	return own.String()
}
