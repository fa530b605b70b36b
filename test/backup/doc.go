// Package backup takes backups of a coordinator under load, kills and pauses the readers of backups, kills restores and compactions, and fills the
// disk to which they write. The tests have the build tag faults.
package backup
