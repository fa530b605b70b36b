package worker

import (
	"errors"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Category says what kind of failure happened, for the retry policy (T4).
type Category = lessorv1.ErrorCategory

// The categories, and what the default policy does with them.
const (
	// UserCode: the handler itself failed. Retried. A plain error has this category.
	UserCode = lessorv1.ErrorCategory_ERROR_CATEGORY_USER_CODE
	// DataQuality: the input is bad. Not retried.
	DataQuality = lessorv1.ErrorCategory_ERROR_CATEGORY_DATA_QUALITY
	// Infrastructure: the machine or a service failed. Retried.
	Infrastructure = lessorv1.ErrorCategory_ERROR_CATEGORY_INFRASTRUCTURE
	// Configuration: something is missing or set wrongly. Not retried.
	Configuration = lessorv1.ErrorCategory_ERROR_CATEGORY_CONFIGURATION
	// Timeout: the work took too long. Retried. context.DeadlineExceeded has this category, except
	// after ErrCancelled.
	Timeout = lessorv1.ErrorCategory_ERROR_CATEGORY_TIMEOUT
	// Cancelled: the work stopped because of a cancel. Not retried. Any error after ErrCancelled
	// that names no other has this category.
	Cancelled = lessorv1.ErrorCategory_ERROR_CATEGORY_CANCELLED
)

// steerError is an error together with what the handler asks for. Zero fields ask for nothing.
type steerError struct {
	error
	category   Category
	retryable  *bool
	retryAfter time.Duration
	stack      string
	partial    []byte
}

// Unwrap returns the error that was steered.
func (e *steerError) Unwrap() error { return e.error }

// Permanent marks err as an error that another attempt cannot cure: the task fails for good.
// Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	retryable := false
	return &steerError{error: err, retryable: &retryable}
}

// RetryAfter asks for another attempt after d, cut to 24 h, instead of the policy's own wait; with
// 0 or less, the policy decides on the wait. The policy's limits on the number of attempts still
// hold. RetryAfter(d, nil) is nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	retryable := true
	return &steerError{error: err, retryable: &retryable, retryAfter: max(d, 0)}
}

// WithCategory says what kind of failure err is; an unknown category counts as UserCode. It can be
// combined with Permanent and RetryAfter. If two of these disagree, the outer one wins, and of
// errors joined by errors.Join the first. WithCategory(c, nil) is nil.
func WithCategory(c Category, err error) error {
	if err == nil {
		return nil
	}
	if _, known := lessorv1.ErrorCategory_name[int32(c)]; !known {
		c = UserCode // the coordinator would refuse the whole report
	}
	return &steerError{error: err, category: c}
}

// WithStack adds text that helps to find the cause of err, such as a stack or the end of a log.
// Only the last 64 KiB are reported. WithStack(s, nil) is nil.
func WithStack(stack string, err error) error {
	if err == nil {
		return nil
	}
	return &steerError{error: err, stack: stack}
}

// WithPartialProgress adds what was done before a cancel stopped the work, for those who asked for
// the cancel: it is the task's partial_progress, and nothing reads it but people and programs. If
// done has more than 64 KiB, all of it is left out. WithPartialProgress(b, nil) is nil.
func WithPartialProgress(done []byte, err error) error {
	if err == nil {
		return nil
	}
	return &steerError{error: err, partial: done}
}

// releaseError asks the worker to give the task back.
type releaseError struct {
	delay  time.Duration
	reason string
}

// Error names the reason.
func (e *releaseError) Error() string { return "released: " + e.reason }

// Release returns an error with which a handler gives the task back because it cannot do the task
// here and now. That does not count as a failure. The task is granted again after delay, cut to 24
// h; 0 or less: at once. The reason is cut to 1 KiB. From the third release in a row, the
// coordinator adds a wait of its own (T5). A panic with such an error gives the task back, too.
func Release(delay time.Duration, reason string) error {
	return &releaseError{delay: min(max(delay, 0), maxDelay), reason: reason}
}

// steering collects what the errors in err's tree ask for, in the order in which errors.As searches
// the tree: on each point the outermost error decides, and of joined errors the first. For a panic,
// stack and category are always those of the panic.
func steering(err error) steerError {
	var sum steerError
	if crash, ok := errors.AsType[*PanicError](err); ok {
		sum.category, sum.stack = UserCode, clip(string(crash.Stack), maxText) // the innermost frames come first
	}
	sum.collect(err)
	return sum
}

// collect adds what err and the errors in it ask for, on each point that is still open.
func (e *steerError) collect(err error) {
	if s, ok := err.(*steerError); ok { //nolint:errorlint // the tree is walked here
		if e.category == 0 {
			e.category = s.category
		}
		if e.retryable == nil {
			e.retryable, e.retryAfter = s.retryable, s.retryAfter
		}
		if e.stack == "" {
			e.stack = s.stack
		}
		if e.partial == nil {
			e.partial = s.partial
		}
	}
	switch inner := err.(type) { //nolint:errorlint // as above
	case interface{ Unwrap() error }:
		e.collect(inner.Unwrap())
	case interface{ Unwrap() []error }:
		for _, each := range inner.Unwrap() {
			e.collect(each)
		}
	}
}

// wantsFailure reports whether the handler asked for its error to count as a failure, even if the
// handler was stopped by a drain.
func (e steerError) wantsFailure() bool { return e.category != 0 || e.retryable != nil }
