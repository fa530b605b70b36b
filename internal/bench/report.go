package bench

import (
	"runtime"
)

// Report has the results of a run.
type Report struct {
	Machine Machine  `json:"machine"`
	Load    Load     `json:"load"`
	Limits  []Figure `json:"limits"`
	Results []Figure `json:"results"`
}

// Machine describes where the run was made.
type Machine struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	CPUs int    `json:"cpus"`
	Go   string `json:"go"`
	// LoadAverage is that of the last minute before the run, -1 if it is not known. Near 0 the
	// machine was idle.
	LoadAverage float64 `json:"load_average"`
	Version     string  `json:"version"`
}

// Load is the load of the run; see Config.
type Load struct {
	Addr      string `json:"addr,omitempty"`
	Producers []int  `json:"producers"`
	Workers   int    `json:"workers"`
	Slots     int    `json:"slots"`
	Payload   int    `json:"payload_bytes"`
	Tasks     int    `json:"tasks"`
	Backlogs  []int  `json:"backlogs"`
	Repeat    int    `json:"repeat"`
}

// Figure is one line of the report.
type Figure struct {
	Name string `json:"name"`
	Text string `json:"text"`
	Unit string `json:"unit"`
	Summary
	// CPU is the coordinator's processor time in milliseconds for 1,000 tasks; absent if it is not
	// known.
	CPU *Summary `json:"cpu_ms_per_1000_tasks,omitempty"`
	// Flushes counts those that anybody requested of the disk, for 1,000 tasks (for disk_flush:
	// 1,000 appends); absent if the disk does not count them.
	Flushes *Summary `json:"flushes_per_1000_tasks,omitempty"`
	// Bound is what the machine allows by Limits: the lowest of rates, the sum of times; 0 if there
	// is no such limit.
	Bound  float64  `json:"bound,omitempty"`
	Limits []string `json:"limited_by,omitempty"`
	// Share is how much of the bound was reached, 1 being all.
	Share float64 `json:"share,omitempty"`
}

func (c *Config) newReport() *Report {
	return &Report{
		Machine: Machine{
			OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version(),
			LoadAverage: loadAverage(), Version: c.Version,
		},
		Load: Load{
			Addr:      c.Addr,
			Producers: c.Producers,
			Workers:   c.Workers,
			Slots:     c.Slots,
			Payload:   c.Payload,
			Tasks:     c.Tasks,
			Backlogs:  c.Backlogs,
			Repeat:    c.Repeat,
		},
	}
}

// Busy reports whether others used the machine at the start; then the figures are worse than they
// could be.
func (m Machine) Busy() bool { return m.LoadAverage > 0.25*float64(m.CPUs) }

// fill adds the figures from what was measured.
func (r *Report) fill(limits, results []metric, found map[string][]float64) {
	for _, m := range limits {
		r.Limits = append(r.Limits, m.figure(found))
	}
	for _, m := range results {
		if len(found[m.name]) > 0 {
			r.Results = append(r.Results, m.figure(found))
		}
	}
}

func (m metric) figure(found map[string][]float64) Figure {
	f := Figure{Name: m.name, Text: m.text, Unit: m.unit, Summary: summarize(found[m.name])}
	if cpu := summarize(found[cpuOf(m.name)]); cpu.Max > 0 {
		f.CPU = &cpu
	}
	if flushes := found[flushesOf(m.name)]; len(flushes) > 0 {
		f.Flushes = new(summarize(flushes))
	}
	f.Limits, f.Bound = m.bound(found)
	f.Share = shareOf(m.unit, f.Median, f.Bound)
	return f
}

// bound returns the limit that is met first, with its name. Times add up, so for them it is the
// sum, with all names.
func (m metric) bound(found map[string][]float64) (names []string, bound float64) {
	limits := make([]float64, len(m.limits))
	for i, name := range m.limits {
		limits[i] = summarize(found[name]).Median
	}
	if bound = boundOf(m.unit, limits); bound == 0 {
		return nil, 0 // what this metric is compared with was not measured
	}
	for i, name := range m.limits {
		if m.unit == unitTime || limits[i] == bound {
			names = append(names, name)
		}
	}
	return names, bound
}
