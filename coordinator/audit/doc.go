// Package audit writes the audit and limits its size (X4). The engine writes the entry of a change
// in the same commit as the change. Refusals, and calls that succeed without an effect, such as a
// second cancel, change nothing, and a caller can cause any number of them, so this package sums
// them up. It also removes entries older than the retention.
//
// The first of a kind is written at once. Further ones of that kind within the window are counted,
// and one entry holds their number. The number of kinds per tenant and window is limited; all
// others share one entry for each outcome. So a flood uses a limited part of the disk, but is still
// visible.
package audit
