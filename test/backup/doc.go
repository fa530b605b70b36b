// Package backup takes backups of a coordinator under load, kills and pauses the readers of
// backups, kills restores and compactions, fills the disk to which they write, and makes it fail.
// The tests have the build tag faults.
package backup
