// Package authority checks, on the real coordinator, who decides the outcome of a task when that is
// close: a cancel and a report at the same time (T7), a report at the moment of expiry (A3, A4),
// crashes while workers are silent (A9), a coordinator or a disk that stands still and a wall clock
// that jumps (A8), a paused worker whose lease is lost (V9), and one task beside a hundred thousand
// of another key (T12).
package authority
