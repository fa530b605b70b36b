package wire

import (
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Resends of W6, which both sides of a stream make.
const (
	// resendBase is the first wait for an acknowledgement; each further wait is twice as long.
	resendBase = 200 * time.Millisecond
	// resendMost is the longest wait.
	resendMost = 5 * time.Second
	// ResendTries is how often a frame is sent again.
	ResendTries = 6
)

// ResendWait returns how long to wait for an acknowledgement after the given number of resends. The
// jitter makes the wait only longer, because an earlier resend does not help a peer that is merely
// slow.
func ResendWait(tries int) time.Duration {
	least := LeastResendWait(tries)
	return least + rand.N(least/4+1)
}

// LeastResendWait returns ResendWait without its jitter.
func LeastResendWait(tries int) time.Duration {
	return min(resendBase<<min(tries, ResendTries), resendMost*4/5)
}

// firstPayload is the lowest number that the field of a payload can have in a frame. The fields of
// the envelope have lower ones.
const firstPayload = 16

// HasUnknownPayload reports whether a frame without a known payload has a payload of a newer
// version. An unknown field of the envelope is ignored.
func HasUnknownPayload(frame proto.Message) bool {
	for b := frame.ProtoReflect().GetUnknown(); len(b) > 0; {
		number, _, n := protowire.ConsumeField(b)
		if n < 0 || number >= firstPayload {
			return true
		}
		b = b[n:]
	}
	return false
}
