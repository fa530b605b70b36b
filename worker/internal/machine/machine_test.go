package machine

import (
	"math"
	"testing"
	"testing/fstest"
	"time"
)

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

// host has the files of a machine with 1,000 kB of memory, of which 400 are available. cpu is the
// first line of its proc/stat.
func host(cpu string) fstest.MapFS {
	return fstest.MapFS{
		"proc/meminfo": file("MemTotal:  1000 kB\nMemFree:  100 kB\nMemAvailable:  400 kB\n"),
		"proc/stat":    file(cpu + "\ncpu0 1 2 3\n"),
	}
}

func check(t *testing.T, gauges map[string]float64, name string, want float64) {
	t.Helper()
	if got, ok := gauges[name]; !ok || math.Abs(got-want) > 1e-6 {
		t.Errorf("%s = %v (%v), want %v", name, got, ok, want)
	}
}

// W9: without control groups the gauges are those of the machine. The CPU is measured between two
// readings, so that the first has none.
func TestMachine(t *testing.T) {
	t.Attr("rules", "W9")
	now := time.Unix(1000, 0)
	m := newMeter(host("cpu  100 0 100 700 100 0 0 0 50 0"), t.TempDir())
	gauges := m.Measure(now)
	check(t, gauges, MemPct, 60)
	if cpu, ok := gauges[CPUPct]; ok {
		t.Errorf("%s = %v in the first reading, want none", CPUPct, cpu)
	}
	if disk, ok := gauges[DiskPct]; !ok || disk <= 0 || disk > 100 {
		t.Errorf("%s = %v (%v), want more than 0 and at most 100", DiskPct, disk, ok)
	}
	m.root = host("cpu  120 0 110 760 110 0 0 0 60 0") // 30 of 100 busy
	check(t, m.Measure(now.Add(time.Second)), CPUPct, 30)
	m.root = host("cpu  120 0 110 760 110 0 0 0 60 0")
	if cpu, ok := m.Measure(now.Add(2 * time.Second))[CPUPct]; ok {
		t.Errorf("%s = %v though the processors counted no time since the last reading, want none", CPUPct, cpu)
	}
}

// W9: of the process's control group, the groups around it and the machine, the fullest counts.
// Memory is without the file cache that the kernel can give up. A group without a limit does not
// count, and neither does a group to which the process does not belong.
func TestControlGroups(t *testing.T) {
	t.Attr("rules", "W9")
	now := time.Unix(1000, 0)
	fs := host("cpu  100 0 100 700 100 0 0 0 0 0")
	for name, text := range map[string]string{
		"proc/self/cgroup":                   "1:name=systemd:/x\n0::/pod/box\n",
		"sys/fs/cgroup/pod/box/memory.max":   "max\n",
		"sys/fs/cgroup/pod/box/cpu.max":      "max 100000\n",
		"sys/fs/cgroup/pod/memory.max":       "1000\n",
		"sys/fs/cgroup/pod/memory.current":   "950\n",
		"sys/fs/cgroup/pod/memory.stat":      "anon 700\ninactive_file 150\n",
		"sys/fs/cgroup/pod/cpu.max":          "50000 100000\n",
		"sys/fs/cgroup/pod/cpu.stat":         "usage_usec 1000\n",
		"sys/fs/cgroup/elsewhere/memory.max": "1\n",
	} {
		fs[name] = file(text)
	}
	m := newMeter(fs, "/nowhere")
	gauges := m.Measure(now)
	check(t, gauges, MemPct, 80)
	if disk, ok := gauges[DiskPct]; ok {
		t.Errorf("%s = %v for a directory that does not exist, want none", DiskPct, disk)
	}
	fs["proc/stat"] = file("cpu  110 0 100 790 100 0 0 0 0 0") // the machine is busy for 10 of 100
	fs["sys/fs/cgroup/pod/cpu.stat"] = file("usage_usec 401000\n")
	check(t, m.Measure(now.Add(time.Second)), CPUPct, 80) // the group used 0.4 s of the 0.5 s that it may use
}

// A machine whose files are missing or cannot be parsed has no gauges, and neither does a control
// group of which only the limit or only the use is known.
func TestNoGaugesWithoutFiles(t *testing.T) {
	broken := fstest.MapFS{
		"proc/stat":        file("cpu 1 2 x 4 5 6"),
		"proc/meminfo":     file("MemTotal: none kB\nMemAvailable: 400 kB"),
		"proc/self/cgroup": file("0::/../../etc\n"),
	}
	group := func(name, text string) fstest.MapFS {
		return fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/" + name: file(text)}
	}
	for name, root := range map[string]fstest.MapFS{
		"other forms": broken, "short stat": {"proc/stat": file("cpu 1 2 3 4")}, "nothing": {},
		"memory limit": group("memory.max", "1000"), "memory use": group("memory.current", "1000"), "cpu limit": group("cpu.max", "50000 100000"),
		"no memory allowed": {"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("0"), "sys/fs/cgroup/memory.current": file("0")},
	} {
		m := newMeter(root, "/nowhere")
		for i := range 2 {
			if i == 1 && name == "short stat" {
				m.root = fstest.MapFS{"proc/stat": file("cpu 2 4 6 8")}
			}
			if gauges := m.Measure(time.Unix(int64(i), 0)); len(gauges) > 0 {
				t.Errorf("%s: gauges = %v, want none", name, gauges)
			}
		}
	}
}
