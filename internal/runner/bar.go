package runner

import (
	"fmt"
	"strings"
	"time"

	"github.com/lessor-dev/lessor/internal/words"
)

// barText returns the progress bar in at most width columns:
//
//	[#########           ]  45 %  450/1000 done, 2 failed, 5 retried, 12.3/s, 45s left
//
// While the run stops, the lines that are left do not run, so no time is shown for them.
func barText(lines int64, c counts, rate float64, stopping bool, width int) string {
	share := 1.0
	if lines > 0 {
		share = min(float64(c.ended())/float64(lines), 1)
	}
	text := fmt.Sprintf("%3.0f %%  %d/%d done, %d failed, %d retried", share*100, c.done, lines, c.failed, c.retried)
	switch {
	case stopping:
		text += ", stopping"
	case rate > 0:
		left := time.Duration(float64(lines-c.ended()) / rate * float64(time.Second))
		text += fmt.Sprintf(", %s/s, %s left", rateText(rate), words.Age(left.Round(time.Second)))
	}
	const most = 30
	if room := min(width-len(text)-4, most); room > 4 {
		filled := int(share * float64(room))
		text = "[" + strings.Repeat("#", filled) + strings.Repeat(" ", room-filled) + "] " + text
	}
	return text[:max(min(len(text), width-1), 0)]
}

func rateText(rate float64) string {
	if rate < 100 {
		return fmt.Sprintf("%.1f", rate)
	}
	return fmt.Sprintf("%.0f", rate)
}
