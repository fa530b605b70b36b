package bench

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// flush makes the data of a file durable, as bbolt does.
func flush(file *os.File) error { return unix.Fdatasync(int(file.Fd())) }

// flushCounterOf finds the counter of the disk that a directory is on. There is none for a file
// system that has not exactly one disk: tmpfs, overlay, one over a network, or one on several
// disks.
func flushCounterOf(dir string) flushCounter {
	var at unix.Stat_t
	if err := unix.Stat(dir, &at); err != nil {
		return ""
	}
	device := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(at.Dev), unix.Minor(at.Dev))
	stat := device + "/stat"
	if _, err := os.Stat(device + "/partition"); err == nil {
		stat = device + "/../stat" // the flushes of a partition are counted for its disk
	}
	if _, ok := flushCounter(stat).read(); !ok {
		return ""
	}
	return flushCounter(stat)
}
