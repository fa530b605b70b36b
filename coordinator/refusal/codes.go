package refusal

import (
	"slices"
	"strings"

	"github.com/lessor-dev/lessor/coordinator/quota"
)

// Error codes. A status has the code in metadata["code"], and as its reason the code without "E."
// and with underscores.
const (
	CodeInvalid    = "E.REQUEST.INVALID"
	CodeNotFound   = "E.TASK.NOT_FOUND"
	CodeNoQueue    = "E.QUEUE.NOT_FOUND"
	CodeNoWorker   = "E.WORKER.NOT_FOUND"
	CodeState      = "E.TASK.STATE"
	CodeExists     = "E.TASK.EXISTS"
	CodeStopping   = "E.COORDINATOR.STOPPING"
	CodeOverloaded = "E.COORDINATOR.OVERLOADED"
	CodeStore      = "E.STORE.FAILED"
	CodeDiskFull   = "E.STORE.DISK_FULL"
	CodeStoreGone  = "E.STORE.GONE"
	CodeInternal   = "E.INTERNAL"
	CodeBackupBusy = "E.BACKUP.BUSY"
	CodeNoBackup   = "E.BACKUP.NOT_FOUND"
	CodeBackupLate = "E.BACKUP.TIMEOUT"

	CodeStandbyBehind   = "E.STANDBY.BEHIND"
	CodeStandbyReplaced = "E.STANDBY.REPLACED"
	CodeStandbyName     = "E.STANDBY.NAME_TAKEN"

	CodeToken       = "E.AUTH.INVALID_TOKEN"
	CodeCertificate = "E.AUTH.MTLS_REQUIRED"
	CodeForbidden   = "E.AUTH.FORBIDDEN"
	CodeOpen        = "E.AUTH.OPEN"
	CodeAuthLimit   = "E.AUTH.LIMIT"
	CodeNoToken     = "E.AUTH.NOT_FOUND"
)

// Codes of refusals by quotas (X5): nothing was changed, and a repeat may succeed after the wait
// that is told.
const (
	CodeQuotaCalls    = "E.QUOTA.CALLS"
	CodeQuotaSubmits  = "E.QUOTA.SUBMITS"
	CodeQuotaFrames   = "E.QUOTA.FRAMES"
	CodeQuotaSessions = "E.QUOTA.SESSIONS"
	CodeQuotaStreams  = "E.QUOTA.STREAMS"
	CodeQuotaWatches  = "E.QUOTA.WATCHES"
	CodeQuotaWaits    = "E.QUOTA.WAITS"
	CodeQuotaTasks    = "E.QUOTA.TASKS"
	CodeQuotaAttempts = "E.QUOTA.ATTEMPTS"
)

var quotaCodes = [...]string{
	quota.Calls:    CodeQuotaCalls,
	quota.Submits:  CodeQuotaSubmits,
	quota.Frames:   CodeQuotaFrames,
	quota.Sessions: CodeQuotaSessions,
	quota.Streams:  CodeQuotaStreams,
	quota.Watches:  CodeQuotaWatches,
	quota.Waits:    CodeQuotaWaits,
	quota.Tasks:    CodeQuotaTasks,
}

// all are the codes of this file.
var all = append([]string{
	CodeInvalid, CodeNotFound, CodeNoQueue, CodeNoWorker, CodeState, CodeExists, CodeStopping, CodeOverloaded, CodeStore,
	CodeDiskFull, CodeStoreGone, CodeInternal, CodeBackupBusy, CodeNoBackup, CodeBackupLate, CodeStandbyBehind,
	CodeStandbyReplaced, CodeStandbyName, CodeToken, CodeCertificate, CodeForbidden, CodeOpen, CodeAuthLimit,
	CodeNoToken, CodeQuotaAttempts, CodeDenied, CodeStaleBinding, CodeUnknown, CodeTimeout, CodeKicked, CodeSeqGap,
	CodeConcurrency, CodePkgInvalid, CodePkgPermission, CodeSessionEnded,
}, quotaCodes[:]...)

// BeginsCode reports whether one of the codes begins with a text.
func BeginsCode(text string) bool {
	return slices.ContainsFunc(all, func(code string) bool { return strings.HasPrefix(code, text) })
}

// QuotaCode returns the code for a limit that is used up.
func QuotaCode(l quota.Limit) string { return quotaCodes[l] }

// IsQuotaCode reports whether a code is that of a refusal by a quota (X5).
func IsQuotaCode(code string) bool {
	return code == CodeQuotaAttempts || slices.Contains(quotaCodes[:], code)
}

// Codes that only error and reset frames have, which may also have those above. docs/errors.md has
// all codes, docs/protocol.md those of frames (W14).
const (
	CodeDenied       = "E.SESSION.DENIED"
	CodeStaleBinding = "E.SESSION.STALE_BINDING"
	CodeUnknown      = "E.CMD.UNKNOWN"
	CodeTimeout      = "E.TIMEOUT"
	CodeKicked       = "E.SESSION.KICKED"
	CodeSeqGap       = "E.RESULT.SEQ_GAP"
	CodeConcurrency  = "E.CMD.CONCURRENCY_VIOLATION"

	// Of packages (W13). CodeSessionEnded is in a result.
	CodePkgInvalid    = "E.PKG.INVALID"
	CodePkgPermission = "E.PKG.PERMISSION"
	CodeSessionEnded  = "E.SESSION.ENDED"
)
