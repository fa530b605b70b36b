// Package detail reads the details of statuses: what a coordinator says for programs about an error (S4).
package detail

import "google.golang.org/grpc/status"

// Of returns the first detail of type T, or nil if there is none.
func Of[T any](st *status.Status) (found T) {
	for _, d := range st.Details() {
		if t, ok := d.(T); ok {
			return t
		}
	}
	return found
}
