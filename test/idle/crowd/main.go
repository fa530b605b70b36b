// Crowd runs many idle workers in one process. It reads commands, one in a line, and prints how
// long each took, in nanoseconds:
//
//	open ADDR N M    N workers connect to a coordinator, at most M at the same time, and send handshake and register; earlier connections are closed
//	beat N           each worker sends N heartbeats, each after the answer to the one before
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "crowd:", err)
		os.Exit(1)
	}
}

func serve() error {
	var c crowd
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		begun := time.Now()
		if err := c.do(lines.Text()); err != nil {
			return err
		}
		fmt.Println(time.Since(begun).Nanoseconds())
	}
	return nil
}

// crowd are the workers.
type crowd []*member

func (c *crowd) do(line string) error {
	var addr string
	var n, atOnce int
	if _, err := fmt.Sscanf(line, "open %s %d %d", &addr, &n, &atOnce); err == nil {
		return c.open(addr, n, atOnce)
	}
	if _, err := fmt.Sscanf(line, "beat %d", &n); err != nil {
		return fmt.Errorf("unknown command %q", line)
	}
	return c.each(len(*c), func(m *member) error { return m.beat(n) })
}

func (c *crowd) open(addr string, n, atOnce int) error {
	for _, m := range *c {
		m.close()
	}
	*c = make(crowd, n)
	for i := range *c {
		(*c)[i] = &member{name: fmt.Sprintf("idle-%d", i)}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := c.each(atOnce, func(m *member) error { return m.open(ctx, addr) })
	if ctx.Err() != nil {
		err = fmt.Errorf("not all %d opened within %v: %w", n, patience, err)
	}
	return err
}

func (c *crowd) each(atOnce int, do func(*member) error) error {
	var all errgroup.Group
	all.SetLimit(atOnce)
	for _, m := range *c {
		all.Go(func() error {
			if err := do(m); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			return nil
		})
	}
	return all.Wait()
}
