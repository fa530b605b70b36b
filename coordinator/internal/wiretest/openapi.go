package wiretest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// schema is a schema of openapi.json, as far as the document uses schemas.
type schema struct {
	Ref        string `json:"$ref"`
	Type       any    // a text, or a list of texts; nil: any
	Properties map[string]schema
	Required   []string
	Items      *schema
	Additional *schema `json:"additionalProperties"`
}

// apiDocument is what tests need of openapi.json.
type apiDocument struct {
	Paths map[string]map[string]struct {
		Responses map[string]struct {
			Content map[string]struct{ Schema schema }
		}
	}
	Components struct{ Schemas map[string]schema }
}

var readAPIDocument = sync.OnceValues(func() (d apiDocument, err error) {
	text, err := os.ReadFile(filepath.Join(repository(), "coordinator/httpapi/openapi.json"))
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	return d, err
})

// WantDescribed checks that openapi.json describes a response, if the request has a route (H2).
// body is that of a response in JSON; nil: it is not checked.
func WantDescribed(t *testing.T, method, path string, status int, body map[string]any) {
	t.Helper()
	d, err := readAPIDocument()
	if err != nil {
		t.Fatal(err)
	}
	path, _, _ = strings.Cut(path, "?")
	for template, methods := range d.Paths {
		pattern := regexp.MustCompile("^" + strings.ReplaceAll(template, "{task_id}", "[a-z0-9]+") + "$")
		route, known := methods[map[string]string{
			http.MethodGet: "get", http.MethodPost: "post",
			http.MethodDelete: "delete",
		}[method]]
		if !known || !pattern.MatchString(path) {
			continue
		}
		response, known := route.Responses[strconv.Itoa(status)]
		if !known {
			t.Errorf("%s %s: openapi.json does not have the status %d", method, path, status)
		}
		if content, ok := response.Content["application/json"]; ok && body != nil {
			if wrong := d.wrong(content.Schema, body); wrong != "" {
				t.Errorf("%s %s: status %d: by openapi.json, the body%s", method, path, status, wrong)
			}
		}
	}
}

// wrong returns where a value differs from a schema; "" if it does not.
func (d *apiDocument) wrong(s schema, value any) string {
	if s.Ref != "" {
		s = d.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
	}
	types, _ := s.Type.([]any)
	if s.Type != nil && types == nil {
		types = []any{s.Type}
	}
	if types != nil && !slices.ContainsFunc(types, func(name any) bool { return isOf(name, value) }) {
		return fmt.Sprintf(": %v is no %v", value, s.Type)
	}
	for _, name := range s.Required {
		if _, there := value.(map[string]any)[name]; !there {
			return fmt.Sprintf(".%s is missing", name)
		}
	}
	switch value := value.(type) {
	case map[string]any:
		for name, one := range value {
			inner, known := s.Properties[name]
			if s.Additional != nil {
				inner, known = *s.Additional, true
			}
			if !known && s.Properties != nil {
				return fmt.Sprintf(".%s is unknown", name)
			}
			if wrong := d.wrong(inner, one); wrong != "" {
				return "." + name + wrong
			}
		}
	case []any:
		for i, one := range value {
			if s.Items == nil { // any value
				break
			}
			if wrong := d.wrong(*s.Items, one); wrong != "" {
				return fmt.Sprintf("[%d]%s", i, wrong)
			}
		}
	}
	return ""
}

// isOf reports whether a value is of a type of JSON schema.
func isOf(name, value any) bool {
	switch value := value.(type) {
	case nil:
		return name == "null"
	case string:
		return name == "string"
	case bool:
		return name == "boolean"
	case float64:
		return name == "number" || name == "integer" && value == float64(int64(value))
	case []any:
		return name == "array"
	}
	return name == "object"
}
