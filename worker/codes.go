package worker

// Codes of errors that the worker acts on or gives itself, in frames and elsewhere. docs/errors.md
// has all codes.
const (
	codeInternal = "E.INTERNAL"       // nothing was decided, and another try may help
	codeDenied   = "E.SESSION.DENIED" // the sender is not the one that the stream is bound to
	// the coordinator dropped feedback because the quota of frames is used up
	codeQuotaFrames = "E.QUOTA.FRAMES"
	// this state does not allow the frame, or this version does not know it
	codeUnknown = "E.CMD.UNKNOWN"
	codeSeqGap  = "E.RESULT.SEQ_GAP" // a frame is missing before the one that arrived (W7)
	// the worker refuses a task because it already runs another one of the same concurrency key
	codeConcurrencyViolation = "E.CMD.CONCURRENCY_VIOLATION"

	// An operation on a package has failed (W13).
	codePackageInvalid    = "E.PKG.INVALID"    // there is no such package, or it is not what it should be
	codePackagePermission = "E.PKG.PERMISSION" // the worker may not or will not do it

	// The session ends, or cannot be resumed.
	codeInvalidToken = "E.AUTH.INVALID_TOKEN" // the session token of a resume is refused, or the credential
	// a newer stream has the session, or another instance has replaced this one
	codeStaleBinding = "E.SESSION.STALE_BINDING"
)

// authCodes begins the codes with which a coordinator refuses a credential.
const authCodes = "E.AUTH."
