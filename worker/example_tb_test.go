package worker_test

import (
	"context"
	"fmt"
	"io"

	"github.com/lessor-dev/lessor/worker/workertest"
)

// exampleTB is a workertest.TB for examples, which have no *testing.T.
type exampleTB struct{ cleanups []func() }

var _ workertest.TB = (*exampleTB)(nil)

func newTB() *exampleTB { return &exampleTB{} }

// end calls the cleanups, as the end of a test does.
func (tb *exampleTB) end() {
	for last := len(tb.cleanups) - 1; last >= 0; last-- {
		tb.cleanups[last]()
	}
}

func (tb *exampleTB) Helper()                           {}
func (tb *exampleTB) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (tb *exampleTB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (tb *exampleTB) Cleanup(f func())                  { tb.cleanups = append(tb.cleanups, f) }
func (tb *exampleTB) Context() context.Context          { return context.Background() }
func (tb *exampleTB) Output() io.Writer                 { return io.Discard }

// check ends the example with an error; a program would return it.
func (tb *exampleTB) check(err error) {
	if err != nil {
		tb.Fatalf("%v", err)
	}
}
