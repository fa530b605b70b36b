// Package backup takes backups of a coordinator under load, kills and stops who reads them, fills the disk that they are written to, and kills restores and
// compactions. Its tests have the build tag faults.
package backup
