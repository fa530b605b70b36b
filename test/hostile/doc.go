// Package hostile holds what clients that mean harm do to others: nothing. It says over raw connections what no library says, on both ports, while
// an honest client works and a worker keeps its lease; then it counts what the coordinator still has of them.
package hostile
