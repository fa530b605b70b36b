package execworker

import (
	"bytes"
	"fmt"
	"os"
)

// capture collects the standard output of one attempt: in memory up to limit bytes, and all of it in a file of the spool beyond that.
type capture struct {
	spool Spool
	name  string
	limit int

	memory bytes.Buffer
	file   *os.File // nil while memory holds all
	size   int64
}

// Write fails if the spool does; then the attempt cannot succeed.
func (c *capture) Write(p []byte) (int, error) {
	c.size += int64(len(p))
	if c.file == nil && c.memory.Len()+len(p) <= c.limit {
		return c.memory.Write(p)
	}
	if err := c.spill(); err != nil {
		return 0, err
	}
	return c.file.Write(p)
}

// spill moves what is in memory to the file.
func (c *capture) spill() error {
	if c.file != nil {
		return nil
	}
	file, err := c.spool.create(c.name)
	if err != nil {
		return fmt.Errorf("spooling the output: %w", err)
	}
	c.file = file
	if _, err := c.file.Write(c.memory.Bytes()); err != nil {
		return fmt.Errorf("spooling the output: %w", err)
	}
	c.memory = bytes.Buffer{}
	return nil
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
	if err := c.spool.keep(file, c.name); err != nil {
		return fmt.Errorf("spooling the output: %w", err)
	}
	return nil
}

// discard removes a file that was not kept.
func (c *capture) discard() {
	if c.file != nil {
		c.spool.discard(c.file, c.name)
		c.file = nil
	}
}
