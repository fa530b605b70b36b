// Package chart draws horizontal bars as SVG, readable on light and dark pages alike.
package chart

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/template"
)

// Chart is a picture of panels, one below the other.
type Chart struct {
	Title  string
	Panels []Panel
	Notes  []string // lines below the panels
}

// Panel is bars along one axis.
type Panel struct {
	Heading string
	Axis    Axis
	Bars    []Bar
}

// Axis says what the length of bars means. Bars that go beyond its ends are cut off.
type Axis struct {
	Log      bool
	From, To float64
	Origin   float64 // the value at which bars begin
	Ticks    []Tick
}

// Tick is a line across a panel.
type Tick struct {
	At    float64
	Label string
}

// Bar is one figure.
type Bar struct {
	Label string // in front of the bar
	Value float64
	Text  string // after the bar: the value in words
	// Low and High are the range of the value; both are 0 if it has none.
	Low, High float64
	// Mark is a value to reach; 0 if there is none.
	Mark float64
	Tone Tone
}

// Tone is the colour of a bar.
type Tone string

// Plain bars are neither good nor bad.
const (
	Plain Tone = "plain"
	Good  Tone = "good"
	Bad   Tone = "bad"
)

// Measures of the picture, in its own units.
const (
	width    = 860
	left     = 370 // the left end of axes
	right    = 690 // the right end of axes
	rowSize  = 22
	barSize  = 12
	headSize = 46 // height of a panel's heading and the labels of its ticks
	titleAt  = 26
	noteSize = 18
)

// x returns the horizontal position of a value.
func (a Axis) x(value float64) float64 {
	scale := func(v float64) float64 { return v }
	if a.Log {
		scale = math.Log
	}
	value = min(max(value, a.From), a.To)
	share := (scale(value) - scale(a.From)) / (scale(a.To) - scale(a.From))
	return left + share*(right-left)
}

// Powers returns an axis for ratios around 1. Its ticks are powers of two, its ends the first ones
// beyond all values. It ignores values that are not positive.
func Powers(values []float64) Axis {
	positive := slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return v <= 0 })
	low, high := -1, 1
	for _, v := range positive {
		low, high = min(low, int(math.Floor(math.Log2(v)))), max(high, int(math.Ceil(math.Log2(v))))
	}
	axis := Axis{Log: true, From: math.Exp2(float64(low)), To: math.Exp2(float64(high)), Origin: 1}
	for power := low; power <= high; power++ {
		axis.Ticks = append(axis.Ticks, Tick{math.Exp2(float64(power)), ratioLabel(power)})
	}
	return axis
}

func ratioLabel(power int) string {
	if power < 0 {
		return fmt.Sprintf("1/%d", 1<<-power)
	}
	return fmt.Sprint(1 << power)
}

// Shares returns an axis from 0 to 1.
func Shares() Axis {
	return Axis{To: 1, Ticks: []Tick{{0, "0"}, {0.25, "25 %"}, {0.5, "50 %"}, {0.75, "75 %"}, {1, "100 %"}}}
}

// Write draws a chart.
func Write(w io.Writer, c Chart) error { return page.Execute(w, lay(c)) }

// The picture as the template needs it, with the place of everything.
type (
	picture struct {
		Title         string
		Width, Height int
		TitleY        int
		Panels        []panelAt
		Notes         []textAt
	}
	panelAt struct {
		Heading     textAt
		Top, Bottom int
		Ticks       []tickAt
		Bars        []barAt
	}
	tickAt struct {
		X, LabelY float64
		Label     string
		Origin    bool
	}
	barAt struct {
		Label, Text            string
		Tone                   Tone
		X, Y, Width, Height    float64
		Middle, LabelX, TextX  float64
		Ranged                 bool
		Low, High              float64
		Marked                 bool
		Mark, MarkTop, MarkEnd float64
	}
	textAt struct {
		Text string
		Y    int
	}
)

func lay(c Chart) picture {
	p := picture{Title: c.Title, Width: width, TitleY: titleAt}
	y := titleAt + 8
	for _, panel := range c.Panels {
		laid := layPanel(panel, y)
		p.Panels = append(p.Panels, laid)
		y = laid.Bottom + rowSize
	}
	for _, note := range c.Notes {
		p.Notes = append(p.Notes, textAt{note, y})
		y += noteSize
	}
	p.Height = y
	return p
}

func layPanel(panel Panel, y int) panelAt {
	laid := panelAt{Heading: textAt{panel.Heading, y + rowSize}, Top: y + headSize}
	laid.Bottom = laid.Top + len(panel.Bars)*rowSize
	for _, tick := range panel.Axis.Ticks {
		laid.Ticks = append(laid.Ticks, tickAt{
			panel.Axis.x(tick.At), float64(laid.Top - 6), tick.Label,
			tick.At == panel.Axis.Origin,
		})
	}
	for i, bar := range panel.Bars {
		laid.Bars = append(laid.Bars, layBar(panel.Axis, bar, float64(laid.Top+i*rowSize)))
	}
	return laid
}

func layBar(axis Axis, bar Bar, top float64) barAt {
	from, to := axis.x(axis.Origin), axis.x(bar.Value)
	laid := barAt{
		Label: bar.Label, Text: bar.Text, Tone: bar.Tone, X: min(from, to), Width: max(from, to) - min(from, to),
		Y: top + (rowSize-barSize)/2, Height: barSize, Middle: top + rowSize/2, LabelX: left - 10, TextX: right + 10,
	}
	if bar.Low > 0 || bar.High > 0 {
		laid.Ranged, laid.Low, laid.High = true, axis.x(bar.Low), axis.x(bar.High)
	}
	if bar.Mark > 0 {
		laid.Marked, laid.Mark, laid.MarkTop, laid.MarkEnd = true, axis.x(bar.Mark), top+2, top+rowSize-2
	}
	return laid
}

func escape(text string) (string, error) {
	var b strings.Builder
	err := xml.EscapeText(&b, []byte(text))
	return b.String(), err
}

// page has all colours in its style, so that the reader's own choice of light or dark decides them.
var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"text": escape,
	"at":   func(x float64) string { return fmt.Sprintf("%.1f", x) },
}).Parse(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{.Width}} {{.Height}}" width="{{.Width}}" height="{{.Height}}" role="img">
<title>{{text .Title}}</title>
<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600; font-size: 15px }
.heading { font-weight: 600 }
.muted { fill: #59636e; font-size: 12px }
.grid { stroke: #d1d9e0 }
.origin, .range { stroke: #59636e; stroke-width: 1.5 }
.mark { stroke: #1f2328; stroke-width: 2; stroke-dasharray: 3 2 }
.plain { fill: #0969da }
.good { fill: #2da44e }
.bad { fill: #d1603d }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc }
.muted { fill: #9198a1 }
.grid { stroke: #3d444d }
.origin, .range { stroke: #9198a1 }
.mark { stroke: #f0f6fc }
.plain { fill: #4493f8 }
.good { fill: #3fb950 }
.bad { fill: #db6d4c }
}
</style>
<text class="title" x="16" y="{{.TitleY}}">{{text .Title}}</text>
{{- range $panel := .Panels}}
<text class="heading" x="16" y="{{.Heading.Y}}">{{text .Heading.Text}}</text>
{{- range .Ticks}}
<line class="{{if .Origin}}origin{{else}}grid{{end}}" x1="{{at .X}}" y1="{{$panel.Top}}" x2="{{at .X}}" y2="{{$panel.Bottom}}"/>
<text class="muted" text-anchor="middle" x="{{at .X}}" y="{{at .LabelY}}">{{text .Label}}</text>
{{- end}}
{{- range .Bars}}
<text text-anchor="end" dominant-baseline="central" x="{{at .LabelX}}" y="{{at .Middle}}">{{text .Label}}</text>
<rect class="{{.Tone}}" x="{{at .X}}" y="{{at .Y}}" width="{{at .Width}}" height="{{at .Height}}"/>
{{- if .Ranged}}
<line class="range" x1="{{at .Low}}" y1="{{at .Middle}}" x2="{{at .High}}" y2="{{at .Middle}}"/>
{{- end}}
{{- if .Marked}}
<line class="mark" x1="{{at .Mark}}" y1="{{at .MarkTop}}" x2="{{at .Mark}}" y2="{{at .MarkEnd}}"/>
{{- end}}
<text class="muted" dominant-baseline="central" x="{{at .TextX}}" y="{{at .Middle}}">{{text .Text}}</text>
{{- end}}
{{- end}}
{{- range .Notes}}
<text class="muted" x="16" y="{{.Y}}">{{text .Text}}</text>
{{- end}}
</svg>
`))
