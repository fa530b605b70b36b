package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
)

func main() {
	oneOf := flag.Uint64("one-of", 1, "try one of so many mistakes; 1 tries all")
	turn := flag.Uint64("turn", 0, "which of them: as many turns in a row try all")
	flag.Parse()
	if err := run(max(*oneOf, 1), *turn); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// catch tries all mistakes, several at the same time, and returns a channel with the result of
// each.
func catch(mistakes []mistake) []chan error {
	results := make([]chan error, len(mistakes))
	for i := range results {
		results[i] = make(chan error, 1)
	}
	next := atomic.Int64{}
	for range runtime.GOMAXPROCS(0) {
		go func() {
			for i := next.Add(1) - 1; int(i) < len(mistakes); i = next.Add(1) - 1 {
				results[i] <- mistakes[i].caught()
			}
		}()
	}
	return results
}

// part returns one of each oneOf mistakes. As many turns in a row choose all.
func part(mistakes []mistake, oneOf, turn uint64) (some []mistake) {
	for i, m := range mistakes {
		if uint64(i)%oneOf == turn%oneOf {
			some = append(some, m)
		}
	}
	return some
}

func run(oneOf, turn uint64) error {
	mistakes, err := readAll("test/seeded/testdata")
	if err != nil {
		return err
	}
	mistakes = part(mistakes, oneOf, turn)
	var faults []error
	results := catch(mistakes)
	for i, m := range mistakes {
		if err := <-results[i]; err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", m.name, err))
			continue
		}
		fmt.Printf("%-24s caught by %s\n", m.name, m.test)
	}
	if len(faults) == 0 {
		fmt.Printf("%d mistakes, all caught\n", len(mistakes))
	}
	return errors.Join(faults...)
}
