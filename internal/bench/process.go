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

// tick is the unit of processor times in /proc, the same on every Linux that Go supports.
const tick = 10 * time.Millisecond

// cpuTime returns the processor time that a process has used, user and system. Without /proc it is
// always 0.
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

// parseCPU reads utime and stime from a stat file. The name of the process, in parentheses, may
// contain anything.
func parseCPU(stat []byte) (time.Duration, error) {
	_, rest, found := bytes.Cut(stat[max(bytes.LastIndexByte(stat, ')'), 0):], []byte(") "))
	fields := bytes.Fields(rest)
	const utime, stime = 11, 12 // index of the field after the name
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

// memory is what a process holds, in MiB: anonymous memory and, separately, mapped pages of files,
// which the kernel can take back. A page that several processes share counts in part for each.
type memory struct{ anonymous, mapped float64 }

// memoryOf asks the kernel; ok is false if the kernel does not tell.
func memoryOf(pid int) (m memory, ok bool) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return memory{}, false
	}
	return parseMemory(string(raw))
}

func parseMemory(rollup string) (m memory, ok bool) {
	found := 0
	for line := range strings.Lines(rollup) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[2] != "kB" {
			continue
		}
		size, err := strconv.ParseFloat(fields[1], 64)
		if err != nil {
			continue
		}
		switch fields[0] {
		case "Pss_Anon:":
			m.anonymous = size / 1024
			found++
		case "Pss_File:":
			m.mapped = size / 1024
			found++
		}
	}
	return m, found == 2
}

// loadAverage returns the machine's load average of the last minute, or -1 if it is not known.
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
