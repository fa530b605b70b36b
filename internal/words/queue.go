package words

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// RateUnit is a unit of a rate.
type RateUnit struct {
	Name    string
	Seconds float64
}

// RateUnits are the units of a rate, shortest first.
var RateUnits = []RateUnit{{"s", 1}, {"m", 60}, {"h", 60 * 60}, {"d", 24 * 60 * 60}}

// Rate returns a number per second in the shortest unit in which there is at least one.
func Rate(perSecond float64) string {
	unit := RateUnits[0]
	for _, unit = range RateUnits {
		if perSecond*unit.Seconds >= 1 {
			break
		}
	}
	return strconv.FormatFloat(perSecond*unit.Seconds, 'g', 6, 64) + "/" + unit.Name
}

// Oldest returns for how long the oldest READY task of a queue has been so; "" if none is.
func Oldest(q *lessorv1.Queue) string {
	switch {
	case q.GetOldestReady() == nil:
		return ""
	case q.GetOldestReadyAtLeast():
		return "≥" + Age(q.GetOldestReady().AsDuration())
	}
	return Age(q.GetOldestReady().AsDuration())
}

// Settings returns the settings of a queue in few words.
func Settings(q *lessorv1.Queue) string {
	var set []string
	switch {
	case q.GetPausedAt() != nil:
		set = append(set, "paused for "+Age(time.Since(q.GetPausedAt().AsTime())))
	case q.GetPaused():
		set = append(set, "paused")
	}
	if n := q.GetMaxInflight(); n > 0 {
		set = append(set, fmt.Sprintf("inflight %d", n))
	}
	if r := q.GetRateLimit(); r != nil {
		set = append(set, "rate "+Rate(r.GetPerSecond()))
	}
	if n := len(q.GetFairnessWeights()); n > 0 {
		set = append(set, fmt.Sprintf("weights %d", n))
	}
	if q.GetRetryPolicy() != nil {
		set = append(set, "retry")
	}
	return strings.Join(set, ", ")
}
