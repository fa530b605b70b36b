// Package authority asks the real coordinator who may say what becomes of a task, at the moments at which that is hard to say:
// a cancel and a report at once (T7), a report at the very expiry (A3, A4), crashes under leases whose workers are silent (A9), a wall
// clock that jumps (A8), and one task beside a hundred thousand of another (T12).
package authority
