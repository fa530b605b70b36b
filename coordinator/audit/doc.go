// Package audit writes the audit and keeps it within bounds (X4). What was done is written with the change itself (package engine). Refusals
// change nothing, and can be provoked without end, so this package sums them up. It also removes entries that are older than the retention.
//
// The first refusal of a kind is written at once. Those that follow within the window are counted, and one entry tells their number. A tenant has
// a bounded number of kinds in a window; all others share one entry for each outcome. So a flood takes a bounded part of the disk, and is visible
// all the same.
package audit
