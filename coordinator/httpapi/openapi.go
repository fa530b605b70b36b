package httpapi

import (
	_ "embed"
	"net/http"
)

// document is the OpenAPI description of the routes. A test compares the description with the
// routes and with the structs of this package.
//
//go:embed openapi.json
var document []byte

// openAPI answers GET /openapi.json.
func (a *api) openAPI(w http.ResponseWriter, _ *http.Request) *problem {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(document) // the caller is gone
	return nil
}
