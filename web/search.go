package web

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// longestSearch is how long a page searches for its first row. A call that has begun by then is waited for; each looks at a bounded number of them.
const longestSearch = time.Second

// listed is an answer that is a page of a list.
type listed interface{ GetNextPageToken() string }

// search returns the first page of a list, from the one with a token on, that has a row; if it is not found in so many calls, soon, or without going beyond a
// quota, that up to which there is none: its token leads on.
func search[L listed](token string, ask func(token string) (L, error), rows func(L) int) (L, error) {
	began := time.Now()
	page, err := ask(token)
	for calls := 1; err == nil && rows(page) == 0 && page.GetNextPageToken() != "" && calls < mostCalls && time.Since(began) < longestSearch; calls++ {
		next, nextErr := ask(page.GetNextPageToken())
		if status.Code(nextErr) == codes.ResourceExhausted {
			return page, nil
		}
		page, err = next, nextErr
	}
	return page, err
}
