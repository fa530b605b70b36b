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

// With the variable modeEnv the test binary runs as another program: one that checks files as the
// command bbolt check does, or one that commits to a store.
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

// checkFiles reads names of files, and prints for each what bbolt's own check says. It may not get
// that far: a damaged page can make bbolt panic in a goroutine of its own.
func checkFiles() {
	for names := bufio.NewScanner(os.Stdin); names.Scan(); {
		if err := boltCheckFile(names.Text()); err != nil {
			fmt.Println("finds it")
		} else {
			fmt.Println("misses it")
		}
	}
}

// boltCheckFile does what the command bbolt check does.
func boltCheckFile(name string) error {
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

// boltCheck asks another process for the result of bbolt's check, and starts a new one if that
// process dies of it.
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
	const patience = 500 * time.Millisecond // a check takes about 1 ms, and its result is only counted
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

// commitTo commits to a store, and prints a line after each commit. Two goroutines commit in turn,
// as in an engine, so that one commit begins while the other waits for the disk.
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
		b.Put(store.Output, []byte("large"), make([]byte, 20<<20)) // so that the file must grow
	}
	return b
}
