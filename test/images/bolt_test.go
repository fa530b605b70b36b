//go:build faults && !race

package images

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"golang.org/x/sync/errgroup"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/test/harness"
)

// modeEnv makes this binary another program: one that checks files as bbolt does, or one that commits to a store.
const modeEnv = "LESSOR_TEST_IMAGES"

func TestMain(m *testing.M) {
	mode, dir, _ := strings.Cut(os.Getenv(modeEnv), " ")
	switch mode {
	case "check":
		checkFiles()
	case "commit":
		if err := commitTo(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		goleak.VerifyTestMain(m)
	}
}

// checkFiles answers each name of a file with what bbolt's own check says of it. It may not come to an answer: a page can make bbolt panic in a goroutine of its own.
func checkFiles() {
	for names := bufio.NewScanner(os.Stdin); names.Scan(); {
		if err := boltSound(names.Text()); err != nil {
			fmt.Println("finds it")
		} else {
			fmt.Println("misses it")
		}
	}
}

// boltSound is the command bbolt check.
func boltSound(name string) error {
	db, err := bbolt.Open(name, 0o600, &bbolt.Options{ReadOnly: true, PreLoadFreelist: true, Timeout: time.Second})
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	return db.View(func(tx *bbolt.Tx) error {
		var first error
		for err := range tx.Check() {
			if first == nil {
				first = err
			}
		}
		return first
	})
}

// boltCheck asks a process for bbolt's opinion, and starts another one when that is the end of it.
type boltCheck struct {
	t   *testing.T
	in  io.WriteCloser
	out *os.File
	end func()
}

func (c *boltCheck) start() {
	cmd := exec.Command(harness.Self(c.t))
	cmd.Env = append(os.Environ(), modeEnv+"=check")
	in, err := cmd.StdinPipe()
	if err != nil {
		c.t.Error(err)
		return
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Error(err)
		return
	}
	if err := cmd.Start(); err != nil {
		c.t.Error(err)
		return
	}
	c.in, c.out = in, out.(*os.File)
	c.end = func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed, or has panicked
		c.in = nil
	}
}

func (c *boltCheck) says(name string) string {
	if c.in == nil {
		c.start()
	}
	const patience = 500 * time.Millisecond // it is a matter of one, and what it says is only counted
	_ = c.out.SetReadDeadline(time.Now().Add(patience))
	_, _ = fmt.Fprintln(c.in, name)
	answer := make([]byte, 64)
	n, err := c.out.Read(answer)
	if err != nil {
		c.end()
		return "panics or hangs"
	}
	return strings.TrimSpace(string(answer[:n]))
}

func (c *boltCheck) close() {
	if c.in != nil {
		c.end()
	}
}

// commitTo commits to a store, and prints a line after each commit: two goroutines in turn, as an engine does, so that one begins while the other one waits for the disk.
func commitTo(dir string) error {
	st, err := boltstore.Open(dir, boltstore.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	var both errgroup.Group
	for first := range uint32(2) {
		both.Go(func() error {
			for n := first; n < 60; n += 2 {
				if err := st.Commit(context.Background(), changes(n)); err != nil {
					return err
				}
				fmt.Println(n)
			}
			return nil
		})
	}
	return both.Wait()
}

func changes(n uint32) *store.Batch {
	b := new(store.Batch)
	for key := range n % 7 {
		b.Put(store.Spec, binary.BigEndian.AppendUint32(nil, n*10+key), make([]byte, 100<<(key+n%5)))
	}
	b.Delete(store.Spec, binary.BigEndian.AppendUint32(nil, n*5))
	if n == 40 {
		b.Put(store.Output, []byte("large"), make([]byte, 20<<20)) // the file must grow
	}
	return b
}
