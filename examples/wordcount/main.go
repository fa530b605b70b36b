// Wordcount is a worker to start from: it counts the words of text files, one task per file, and can be stopped at any time.
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	err := run(ctx, "127.0.0.1:7420")
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// run works until ctx ends; files that are being counted then may finish.
func run(ctx context.Context, addr string) error {
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
	return w.Run(ctx)
}
