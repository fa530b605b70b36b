package execworker

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/lessor-dev/lessor/internal/diskroom"
)

// capture collects the standard output of one attempt: in memory if it has at most limit bytes,
// else in a file of the spool.
type capture struct {
	spool Spool
	name  string
	limit int

	memory bytes.Buffer
	file   *os.File         // nil while memory holds all output
	to     *diskroom.Writer // writes to file
	size   int64
}

// Write fails if it cannot write to the spool, or would fill its disk. The attempt cannot succeed
// then.
func (c *capture) Write(p []byte) (int, error) {
	c.size += int64(len(p))
	if c.file == nil && c.memory.Len()+len(p) <= c.limit {
		return c.memory.Write(p)
	}
	if err := c.spill(); err != nil {
		return 0, err
	}
	n, err := c.to.Write(p)
	return n, c.spoolError(err)
}

// spill moves the output from memory to a new file, unless there is a file.
func (c *capture) spill() error {
	if c.file != nil {
		return nil
	}
	file, err := c.spool.create(c.name)
	if err != nil {
		return c.spoolError(err)
	}
	c.file, c.to = file, diskroom.NewWriter(file)
	if _, err := c.to.Write(c.memory.Bytes()); err != nil {
		return c.spoolError(err)
	}
	c.memory = bytes.Buffer{}
	return nil
}

func (c *capture) spoolError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.As(err, new(*diskroom.FullError)): // which does not name the file
		return fmt.Errorf("spooling the output to %s: %w", c.spool.dir, err)
	}
	return fmt.Errorf("spooling the output: %w", err)
}

// inline reports whether memory holds all of the output.
func (c *capture) inline() bool { return c.file == nil }

// keep makes the file durable. The capture must not be used after that.
func (c *capture) keep() error {
	if err := c.spill(); err != nil {
		return err
	}
	file := c.file
	c.file = nil
	return c.spoolError(c.spool.keep(file, c.name))
}

// discard removes the file, unless keep has made it durable.
func (c *capture) discard() {
	if c.file != nil {
		c.spool.discard(c.file, c.name)
		c.file = nil
	}
}
