package machine

import (
	"io/fs"
	"os"
	"time"
)

// Names of the gauges, in percent from 0 to 100.
const (
	MemPct  = "mem_pct"
	DiskPct = "disk_pct"
	CPUPct  = "cpu_pct"
)

// Meter measures the gauges. CPU usage is measured from one call of Measure to the next. Only one
// goroutine may use a Meter.
type Meter struct {
	root fs.FS
	disk string
	cpu  map[string]cpuReading
}

// New makes a Meter; disk is any path on the disk to measure.
func New(disk string) *Meter { return newMeter(os.DirFS("/"), disk) }

func newMeter(root fs.FS, disk string) *Meter { return &Meter{root: root, disk: disk} }

// Measure returns the gauges that are available.
func (m *Meter) Measure(now time.Time) map[string]float64 {
	gauges := make(map[string]float64, 3)
	groups := m.cgroups()
	setHighest(gauges, MemPct, m.memoryPcts(groups))
	setHighest(gauges, CPUPct, m.cpuSince(groups, now))
	if pct, ok := diskPct(m.disk); ok {
		setHighest(gauges, DiskPct, []float64{pct})
	}
	return gauges
}

// setHighest sets the gauge to the highest of the values, limited to 0 to 100; it sets nothing if
// there are none.
func setHighest(gauges map[string]float64, name string, values []float64) {
	for _, v := range values {
		gauges[name] = min(max(v, gauges[name], 0), 100)
	}
}
