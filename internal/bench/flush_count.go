package bench

import (
	"bytes"
	"os"
	"strconv"
)

// flushCounter is the file in which a disk counts the flushes that were requested; empty: there is
// none. It is independent evidence that what was acknowledged is durable: a program that forgets to
// flush shows none.
type flushCounter string

// read returns the count since the system started; ok is false if it is not known.
func (f flushCounter) read() (count uint64, ok bool) {
	if f == "" {
		return 0, false
	}
	raw, err := os.ReadFile(string(f))
	if err != nil {
		return 0, false
	}
	return parseFlushes(raw)
}

// parseFlushes reads the number of flushes from the stat file of a block device. Linux counts them
// since 5.5.
func parseFlushes(stat []byte) (count uint64, ok bool) {
	const flushes = 15 // number of fields before it
	fields := bytes.Fields(stat)
	if len(fields) <= flushes {
		return 0, false
	}
	count, err := strconv.ParseUint(string(fields[flushes]), 10, 64)
	return count, err == nil
}
