// Package again says when a call that the coordinator has refused is worth repeating.
package again

import (
	"math/rand/v2"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Bounds of repeats.
const (
	most        = 10 // repeats of one call
	leastJitter = 50 * time.Millisecond
	mostJitter  = 5 * time.Second
)

// Wait is how long to wait before a call is made again that has failed with err after so many repeats; ok is false where it is not worth it. Only
// RESOURCE_EXHAUSTED with RetryInfo is: then nothing was done, and the coordinator knows when to come back. What is added to its word grows
// from repeat to repeat and is drawn by chance, so that those who were refused together do not come back together.
func Wait(err error, repeats int) (wait time.Duration, ok bool) {
	st := status.Convert(err)
	if st.Code() != codes.ResourceExhausted || repeats >= most {
		return 0, false
	}
	for _, d := range st.Details() {
		if info, told := d.(*errdetails.RetryInfo); told {
			return info.GetRetryDelay().AsDuration() + rand.N(min(leastJitter<<repeats, mostJitter)), true
		}
	}
	return 0, false
}
