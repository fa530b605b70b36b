package web

import (
	"maps"
	"net/http"
	"net/url"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// rowsPerPage is how many rows a table has; a link leads to the next ones.
const rowsPerPage = 100

// mostCalls is how often a page asks for a part of a long list.
const mostCalls = 20

// longestSearch is how long a page searches for its first row. A call that has begun by then is
// waited for; each looks at a bounded number of them.
const longestSearch = time.Second

// listed is an answer that is a page of a list.
type listed interface{ GetNextPageToken() string }

// search returns the first page of a list, from the one with a token on, that has a row; if it is
// not found in so many calls, soon, or without going beyond a quota, that up to which there is
// none: its token leads on.
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

// next returns the link to the next rows of a table, with some parameters in the place of those
// that the request has; "" if there are none.
func next(r *http.Request, token string, instead url.Values) string {
	if token == "" {
		return ""
	}
	query := r.URL.Query()
	maps.Copy(query, instead)
	query.Set("page", token)
	return r.URL.Path + "?" + query.Encode()
}
