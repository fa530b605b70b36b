package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of processor times in /proc, the same on all of Linux that Go runs on.
const tick = 10 * time.Millisecond

// cpuTime is the processor time that a process has used, user and system. Without /proc it is 0 for ever.
func cpuTime(pid int) time.Duration {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	used, err := parseCPU(raw)
	if err != nil {
		return 0
	}
	return used
}

// parseCPU reads utime and stime of a stat file. The name of the process, in parentheses, may hold anything.
func parseCPU(stat []byte) (time.Duration, error) {
	_, rest, found := bytes.Cut(stat[max(bytes.LastIndexByte(stat, ')'), 0):], []byte(") "))
	fields := bytes.Fields(rest)
	const utime, stime = 11, 12 // behind the name
	if !found || len(fields) <= stime {
		return 0, errors.New("not a stat file")
	}
	user, err := strconv.ParseInt(string(fields[utime]), 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(string(fields[stime]), 10, 64)
	return time.Duration(user+system) * tick, err
}

// memory is what a process holds, in MiB: in all, and without the pages of files, which the kernel takes back when it needs them.
type memory struct{ resident, anonymous float64 }

func memoryOf(pid int) memory {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return memory{}
	}
	return parseMemory(string(raw))
}

func parseMemory(status string) (m memory) {
	for line := range strings.Lines(status) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[2] != "kB" {
			continue
		}
		size, err := strconv.ParseFloat(fields[1], 64)
		if err != nil {
			continue
		}
		switch fields[0] {
		case "VmRSS:":
			m.resident = size / 1024
		case "RssAnon:":
			m.anonymous = size / 1024
		}
	}
	return m
}

// loadAverage is the machine's of the last minute, -1 where that is not known.
func loadAverage() float64 {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return -1
	}
	first, _, _ := strings.Cut(string(raw), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return -1
	}
	return load
}
