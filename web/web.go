package web

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"html/template"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/httpstatus"
	"github.com/lessor-dev/lessor/internal/words"
)

// Config is what the page needs from the coordinator.
type Config struct {
	// Calls makes calls of the services of lessor.v1 with the context of a request that Admit has
	// let through.
	Calls grpc.ClientConnInterface
	// Admit lets only those through who may see all of a tenant, and refuses the others.
	Admit func(page http.Handler, refuse Refuse) http.Handler
	// Reader says who asks, by the context of a request that Admit has let through; nil, or no
	// tenant: no credentials are required.
	Reader func(context.Context) Reader
	// Logger gets a line about each page that cannot be shown because of a mistake of ours.
	Logger *slog.Logger
}

// Refuse answers a request that is not admitted: with a status, and with text about "this page"
// that says why.
type Refuse func(w http.ResponseWriter, r *http.Request, code int, text string)

// Reader is who looks at a page.
type Reader struct {
	Tenant, Subject, Role string
	Until                 time.Time // when the credential ends; zero: that is not known
}

//go:embed templates/*.html
var templateFiles embed.FS

// templates are read when the first page is asked for, and once for all coordinators of a process,
// of which a test has hundreds.
var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(functions).ParseFS(templateFiles, "templates/*.html"))
})

//go:embed style.css page.js icon.svg
var assets embed.FS

// pages serves all paths.
type pages struct {
	Config
	tasks lessorv1.TaskServiceClient
	admin lessorv1.AdminServiceClient
}

// page is how the page of a path is made, and which parameters it takes.
type page struct {
	show  func(*http.Request) (view, error)
	takes []string
}

// view is one page: its template, and what that shows.
type view struct {
	Title     string
	Template  string
	Workspace string // of what it shows; empty: the one in the query
	Live      bool   // page.js asks for it again and again
	Every     int    // how often, in seconds
	Failed    int    // the status of a page that could not be shown; 0: it was
	Form      *form  // of a list, also if that cannot be shown; nil: the page is none
	Data      any
}

// oftenest is how often page.js asks for a page, in seconds. It asks less often for one that takes
// more calls, so that none costs its reader more than one call a second.
const oftenest = 3

// counted counts the calls for each page.
type counted struct{ grpc.ClientConnInterface }

// callsOf is the key of a page's number of calls in the context of its request.
type callsOf struct{}

func (c counted) Invoke(ctx context.Context, method string, request, answer any, options ...grpc.CallOption) error {
	if calls, ok := ctx.Value(callsOf{}).(*int); ok {
		*calls++
	}
	return c.ClientConnInterface.Invoke(ctx, method, request, answer, options...)
}

// counting returns a request with a number of calls.
func counting(r *http.Request) (*http.Request, *int) {
	calls := new(int)
	return r.WithContext(context.WithValue(r.Context(), callsOf{}, calls)), calls
}

// Register adds the page to mux, below /ui/, and sends those who ask for / there.
func Register(mux *http.ServeMux, cfg Config) {
	cfg.Calls = counted{cfg.Calls}
	p := &pages{
		Config: cfg, tasks: lessorv1.NewTaskServiceClient(cfg.Calls),
		admin: lessorv1.NewAdminServiceClient(cfg.Calls),
	}
	for path, page := range map[string]page{
		"/ui/{$}":          {p.overview, []string{"page"}},
		"/ui/queue":        {p.queue, []string{"name"}},
		"/ui/tasks":        {p.list, filterParameters},
		"/ui/tasks/{task}": {p.task, nil},
		"/ui/run":          {p.run, []string{"id"}},
		"/ui/workers":      {p.workers, []string{"of", "page"}},
		"/ui/worker":       {p.worker, []string{"name"}},
	} {
		mux.Handle("GET "+path, secured(cfg.Admit(p.shown(page), p.refuse)))
	}
	mux.Handle("GET /ui/task", secured(http.HandlerFunc(toTask)))
	files := secured(http.StripPrefix("/ui/", http.FileServerFS(assets)))
	mux.Handle("GET /ui/style.css", files)
	mux.Handle("GET /ui/page.js", files)
	mux.Handle("GET /ui/icon.svg", files)
	mux.Handle("GET /ui/", secured(http.HandlerFunc(p.notFound)))
	mux.Handle("GET /{$}", http.RedirectHandler("/ui/", http.StatusFound))
	mux.Handle("GET /ui", http.RedirectHandler("/ui/", http.StatusFound))
}

// secured forbids a browser whatever the page does not need: other people's scripts, styles and
// frames, and copies on its disk. A page of another site can link to ours, but its images and
// frames would spend the calls of a reader who has given the browser a token.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy",
			"default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if embeds(r.Header) {
			http.Error(w, "a page of another site cannot embed this one", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// embeds reports whether a browser says that it makes the request for a part of another site's
// page, and not because its user goes from there to ours.
func embeds(h http.Header) bool {
	switch h.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none": // none: the user has typed the address
		return false
	}
	return h.Get("Sec-Fetch-Mode") != "navigate" || !slices.Contains([]string{"", "document"}, h.Get("Sec-Fetch-Dest"))
}

// shown answers with a page, or with one that says why it cannot be shown.
func (p *pages) shown(page page) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var v view
		every := oftenest
		clean, err := readable(r, page.takes)
		if err == nil {
			r = clean
			counting, calls := counting(r)
			v, err = page.show(counting)
			every = max(oftenest, *calls)
		}
		code := http.StatusOK
		if err != nil {
			told := status.Convert(err)
			code = httpstatus.Of(told.Code())
			form := v.Form
			v = errorView(code, told.Message())
			v.Form, v.Live = form, passes(code)
		}
		v.Every = every
		p.write(w, r, code, v)
	})
}

// notFound answers for a path that is no page. It tells nothing of any tenant, so it asks for no
// credential.
func (p *pages) notFound(w http.ResponseWriter, r *http.Request) {
	r.Pattern = "" // so that the metrics count the request as one without a route
	p.write(w, r, http.StatusNotFound, errorView(http.StatusNotFound, "there is no such page"))
}

// refuse answers a reader who is not admitted. It does not ask again: refused credentials count
// against their sender.
func (p *pages) refuse(w http.ResponseWriter, r *http.Request, code int, text string) {
	p.write(w, r, code, errorView(code, text))
}

// toTask sends a reader who has written an id into the box of a page to the task. Like notFound, it
// tells nothing of any tenant. It is no page, and so does not mind (see readable) what is in the
// query beside the id.
func toTask(w http.ResponseWriter, r *http.Request) {
	id := strings.TrimSpace(r.URL.Query().Get("id"))
	if id == "" || strings.Trim(id, ".") == "" { // the latter would be steps of a path
		http.Redirect(w, r, "/ui/tasks", http.StatusSeeOther)
		return
	}
	http.Redirect(w, r, "/ui/tasks/"+url.PathEscape(id), http.StatusSeeOther)
}

func errorView(code int, text string) view {
	return view{Title: http.StatusText(code), Template: "error", Failed: code, Data: text}
}

// passes reports whether a page that could not be shown may be shown later, as it was asked for:
// what is not there may come, and a quota has room again.
func passes(code int) bool {
	return code == http.StatusNotFound || code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}

// write answers with a page.
func (p *pages) write(w http.ResponseWriter, r *http.Request, code int, v view) {
	var page bytes.Buffer
	shown := v.in(r)
	if p.Reader != nil {
		shown.Reader = p.Reader(r.Context())
	}
	if err := templates().ExecuteTemplate(&page, "layout", shown); err != nil {
		p.Logger.ErrorContext(r.Context(), "a page could not be made", "path", r.URL.Path, "error", err)
		http.Error(w, "the page could not be made; the log of the coordinator says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, harmless(page.String())) // an error: the reader is gone
}

// harmless makes visible what would let a text of somebody else rewrite the page around it, or hide
// in it. It is for whole pages, so that no field can be forgotten; a link has such characters as
// %xx, a command as \ooo. It leaves white space, whose lines only a <pre> shows.
func harmless(page string) string { return words.Visible(page, "\n\r\t") }

// framed is a view with what the frame around it needs.
type framed struct {
	view
	Path   string
	Host   string // by which the browser has found the coordinator
	Reader Reader
}

func (v view) in(r *http.Request) framed {
	v.Workspace = cmp.Or(v.Workspace, workspaceOf(r))
	return framed{view: v, Path: r.URL.Path, Host: r.Host}
}

// workspaceOf returns the workspace that a request is about.
func workspaceOf(r *http.Request) string {
	if name := r.URL.Query().Get("workspace"); name != "" {
		return name
	}
	return "default"
}
