// Package docs_test checks that the documents are true: it runs the commands that they show, and
// compares the answers with those that they show.
package docs_test

import (
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

const page = "../../docs/grpcurl.md"

// The commands of docs/grpcurl.md are run against a coordinator in fake time, and every answer must
// be as the page shows it.
func TestGRPCPageMatchesTheCoordinator(t *testing.T) {
	blocks := readPage(t, page)
	synctest.Test(t, func(t *testing.T) {
		c := &conversation{t: t}
		for _, b := range blocks {
			c.block = b
			switch b.kind {
			case "heading":
				c.checkAllShown()
				c.matcher = matcher{variables: make(map[string]string)}
			case "sh":
				c.checkAllShown()
				c.runCommands()
			case "json":
				c.compareJSON()
			case "text":
				c.compareText()
			default:
				c.fail("the test does not know blocks of %q", b.kind)
			}
		}
		c.checkAllShown()
	})
}

// conversation runs the commands that the page shows, and keeps the answers until the page shows
// them.
type conversation struct {
	t       *testing.T
	server  server
	block   block // the present one
	matcher matcher

	answers []any             // not shown by the page yet: a document, a text or a *status.Status
	session grpc.ClientStream // open until its goodbye; nil if there is none
}

func (c *conversation) fail(format string, args ...any) {
	c.t.Helper()
	c.t.Fatalf(page+":"+strconv.Itoa(c.block.line)+": "+format, args...)
}

func (c *conversation) check(err error) {
	c.t.Helper()
	if err != nil {
		c.fail("%v", err)
	}
}

// checkAllShown checks that the page has shown every answer.
func (c *conversation) checkAllShown() {
	c.t.Helper()
	if len(c.answers) > 0 {
		c.fail("the block above has an answer that the page does not show: %v", c.answers[0])
	}
}

func (c *conversation) runCommands() {
	commands, err := readShell(c.block.text)
	c.check(err)
	for _, command := range commands {
		switch command.name {
		case "lessor":
			cfg := coordinator.Config{}
			if slices.Contains(command.args, "--recovery=invalidate") {
				cfg.Recovery = engine.InvalidateLeases
			}
			c.server.start(c.t, cfg)
		case "sleep":
			seconds, err := strconv.Atoi(command.args[0])
			c.check(err)
			time.Sleep(time.Duration(seconds) * time.Second)
		case "grpcurl":
			c.grpcurl(command)
		case "frame":
			c.frame(command.body)
		}
	}
}

// grpcurl does what the tool does with these arguments. The first two are a flag and the address.
func (c *conversation) grpcurl(command command) {
	args := command.args[2:]
	method := strings.Join(args, " ")
	conn := c.server.dial(c.t)
	switch {
	case method == "lessor.v1.WorkerService/Session":
		c.open(conn)
		return // the connection is needed as long as the session
	case method == "list":
		c.answers = append(c.answers, listServices(c.t, conn))
	case args[0] == "describe":
		c.answers = append(c.answers, describe(c.t, args[1]))
	default:
		c.call(conn, method, command.body)
	}
	c.check(conn.Close())
}

// call makes a call with one request, and collects its answers or its error.
func (c *conversation) call(conn *grpc.ClientConn, method, body string) {
	desc := find[protoreflect.MethodDescriptor](c.t, method)
	request := c.request(desc.Input(), body)
	if !desc.IsStreamingServer() {
		answer := c.message(desc.Output())
		c.keepAnswer(answer, conn.Invoke(c.t.Context(), "/"+method, request, answer))
		return
	}
	stream, err := conn.NewStream(c.t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/"+method)
	c.check(err)
	c.check(errors.Join(stream.SendMsg(request), stream.CloseSend()))
	for err == nil {
		answer := c.message(desc.Output())
		err = stream.RecvMsg(answer)
		c.keepAnswer(answer, err)
	}
}

// keepAnswer keeps an answer, or the error instead. The end of a stream is neither.
func (c *conversation) keepAnswer(answer proto.Message, err error) {
	switch {
	case errors.Is(err, io.EOF):
	case err != nil:
		c.answers = append(c.answers, status.Convert(err))
	default:
		text, err := protojson.Marshal(answer)
		c.check(err)
		documents, err := readJSON(string(text))
		c.check(err)
		c.answers = append(c.answers, documents...)
	}
}

func (c *conversation) request(desc protoreflect.MessageDescriptor, body string) proto.Message {
	text, err := expand(body, c.matcher.variables)
	c.check(err)
	request := c.message(desc)
	if text != "" {
		c.check(protojson.Unmarshal([]byte(text), request))
	}
	return request
}

func (c *conversation) message(desc protoreflect.MessageDescriptor) proto.Message {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(desc.FullName())
	c.check(err)
	return kind.New().Interface()
}

func (c *conversation) open(conn *grpc.ClientConn) {
	stream, err := lessorv1.NewWorkerServiceClient(conn).Session(c.t.Context())
	c.check(err)
	c.session = stream
}

// frame sends a frame. After a goodbye, the coordinator must send nothing more that the page does
// not show.
func (c *conversation) frame(body string) {
	request := c.request((&lessorv1.SessionRequest{}).ProtoReflect().Descriptor(), body)
	if c.session == nil {
		c.fail("the page sends a frame, but no session is open")
	}
	c.check(c.session.SendMsg(request))
	if request.(*lessorv1.SessionRequest).GetGoodbye() != nil {
		c.receiveFrame()
		c.checkAllShown()
		c.session = nil
	}
}

// receiveFrame waits for the next frame of the session, or for its end.
func (c *conversation) receiveFrame() {
	if c.session == nil {
		c.fail("the page shows an answer, but there is no answer left and no session is open")
	}
	answer := &lessorv1.SessionResponse{}
	c.keepAnswer(answer, c.session.RecvMsg(answer))
}

// next returns the next answer that the page has not shown yet.
func (c *conversation) next() any {
	if len(c.answers) == 0 {
		c.receiveFrame()
	}
	if len(c.answers) == 0 {
		c.fail("the session has ended, the page shows more")
	}
	answer := c.answers[0]
	c.answers = c.answers[1:]
	return answer
}

func (c *conversation) compareJSON() {
	documents, err := readJSON(c.block.text)
	c.check(err)
	for _, want := range documents {
		c.check(c.matcher.match("answer", want, c.next()))
	}
}

func (c *conversation) compareText() {
	switch answer := c.next().(type) {
	case string:
		if answer != c.block.text {
			c.fail("the answer is\n%sthe page shows\n%s", answer, c.block.text)
		}
	case *status.Status:
		c.check(c.matcher.matchError(c.block.text, answer))
	default:
		c.fail("the answer is %v, the page shows text", answer)
	}
}

// The page shows every call of workers and producers, and a verdict with each reason.
func TestGRPCPageShowsEveryCallAndReason(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, service := range []string{"lessor.v1.WorkerService", "lessor.v1.TaskService"} {
		methods := find[protoreflect.ServiceDescriptor](t, service).Methods()
		for i := range methods.Len() {
			if call := service + "/" + string(methods.Get(i).Name()); !strings.Contains(string(text), call) {
				t.Errorf("the page has no call of %s", call)
			}
		}
	}
	for reason := lessorv1.Reason_REASON_NONE; reason <= lessorv1.Reason_REASON_RESULT_TOO_LARGE; reason++ {
		if !strings.Contains(string(text), `"reason": "`+reason.String()+`"`) {
			t.Errorf("the page shows no verdict with %v", reason)
		}
	}
}
