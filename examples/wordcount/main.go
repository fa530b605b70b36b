// Wordcount is a worker to start from: it counts the words of text files, one task per file, and
// can be stopped at any time.
//
//	lessor serve --data ./data
//	go run ./examples/wordcount
//	lessor submit --queue text --type wordcount --payload README.md
//	lessor task list --queue text
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/lessor-dev/lessor/worker"
)

func main() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if err := run(signals, "127.0.0.1:7420"); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// run works until a signal comes; files that are being counted then may finish. A second signal
// stops them, so that other workers go on with them at once, and a third one ends the program.
func run(signals chan os.Signal, addr string) error {
	conn, err := worker.Dial(addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	w, err := worker.New(conn, []string{"text"}, worker.Config{Concurrency: 4})
	if err != nil {
		return err
	}
	w.Handle("wordcount", count)
	ctx, drain := context.WithCancel(context.Background())
	defer drain()
	go func() {
		<-signals
		drain()
		<-signals
		signal.Stop(signals)
		w.Drain(0)
	}()
	return w.Run(ctx)
}
