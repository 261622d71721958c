// Package serve shows the stored runs and the testbeds to browsers and other programs over HTTP: as pages, as
// JSON and as OpenMetrics. It changes no run, but SQLite may create its files beside the store. A client with
// the server's token may ask testbeds to start and cancel jobs; these requests go through the store. The
// package shows no file names of the machine, except those in the commands of runs and in the reasons why
// runs ended. Pages load nothing from outside the server. Everything except live progress works without
// scripts.
package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/report"
)

// Limits of the server.
const (
	maxRequests = 64 // number of requests that wait or are being answered
	maxFrom     = 56 // of these, from one address of another machine
	maxLists    = 4  // number of lists that are laid out at the same time
	maxLive     = 32 // number of clients that receive events
	maxLiveFrom = 8  // of these, from one address of another machine
	maxPosts    = 8  // number of POST requests that are answered at the same time
	maxPostFrom = 4  // of these, from one address of another machine
	maxBody     = 16 << 10
	maxHeader   = 16 << 10
	readTime    = 10 * time.Second
	bodyTime    = 2 * time.Second   // limit for the body of a request to arrive
	waitTime    = 30 * time.Second  // limit for waiting while other requests derive documents
	workTime    = 100 * time.Second // limit for an answer; the document of a long run takes time
	answerTime  = 2 * time.Minute   // workTime plus the time to send the answer
	liveTime    = 24 * time.Hour    // limit for a stream of events; browsers then open a new one
	idleTime    = time.Minute
	endTime     = 5 * time.Second // limit for answers in progress when the server ends
)

// Server answers requests about the runs of an App.
type Server struct {
	app    *app.App
	hosts  []string // names of the server in addition to loopback names
	mux    *http.ServeMux
	active chan struct{} // one element per request
	turn   chan struct{} // held while documents are derived, for one request at a time
	lists  chan struct{} // held while all runs are listed
	live   chan struct{} // one element per client of events
	posts  chan struct{} // one element per request whose body has been read
	ending chan struct{} // closed when the server ends
	kept   cache
	beds   bedCache
	counts counts

	from   map[taken]int // number of clients that wait or are being answered
	fromMu sync.Mutex

	unlisted atomic.Value // string: the last text passed to noteOnce
	close    func() error // closes the store
	gate     *gate        // nil means that no client may act
}

// Options configure a server.
type Options struct {
	// Hosts lists names of the server. Browsers also reach the server by a loopback name and by the address
	// on which it listens. The server refuses all other values of the Host header, because DNS rebinding
	// relies on them.
	Hosts []string
	// Token lets clients act on testbeds. Without a token, they can only read.
	Token host.Secret
	// HTTPS is set if browsers reach the server through a proxy that speaks HTTPS.
	HTTPS bool
}

// New returns a server for the runs of an App.
func New(a *app.App, o Options) *Server {
	s := newServer(a)
	s.app.Dirs, s.close = a.Dirs.Share()
	for _, name := range o.Hosts {
		if name != "" {
			s.hosts = append(s.hosts, hostName(name))
		}
	}

	if !o.Token.Empty() {
		s.openGate(newGate(o.Token, o.HTTPS))
	}

	const page, data = htmlText, "application/json"
	s.handle("/{$}", page, s.few(s.runsPage))
	s.handle("/runs/{id}", page, s.runPage)
	s.handle("/devices", page, s.few(s.devicesPage))
	s.handle("/compare", page, s.comparePage)
	s.handle("/history", page, s.historyPage)
	s.handle("/api/v1/runs", data, s.few(s.runsData))
	s.handle("/api/v1/runs/{id}", data, s.runData)
	s.handle("/api/v1/compare", data, s.compareData)
	s.handle("/api/v1/history", data, s.historyData)
	s.handle("/beds", page, s.few(s.bedsPage))
	s.handle("/alarms", page, s.few(s.alarmsPage))
	s.handle("/api/v1/beds", data, s.bedsData)
	s.handle("/api/v1/beds/{bed}/requests", data, s.requestsData)
	s.mux.HandleFunc("GET "+eventsPath, s.events)
	s.handle("/metrics", openMetrics, s.metrics)
	return s
}

const openMetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8"

// NewMetrics returns a server that answers requests for /metrics with what families returns.
func NewMetrics(a *app.App, families func() []report.Family) *Server {
	s := newServer(a)
	s.handle("/metrics", openMetrics, func(*http.Request) ([]byte, error) {
		return report.Exposition(append(families(), s.own()...)), nil
	})
	return s
}

// newServer returns a server without pages.
func newServer(a *app.App) *Server {
	own := *a
	s := &Server{
		app:    &own,
		mux:    http.NewServeMux(),
		active: make(chan struct{}, maxRequests),
		turn:   make(chan struct{}, 1),
		lists:  make(chan struct{}, maxLists),
		live:   make(chan struct{}, maxLive),
		posts:  make(chan struct{}, maxPosts),
		ending: make(chan struct{}),
		beds:   bedCache{turn: make(chan struct{}, 1)},
		from:   map[taken]int{},
		counts: counts{all: map[[3]string]int{}},
		close:  func() error { return nil },
	}
	s.handle("/", htmlText, func(*http.Request) ([]byte, error) { return nil, notFound("page") })
	return s
}

const htmlText = "text/html; charset=utf-8"

// Serve answers requests on ln until ctx ends. It then ends the requests in progress within seconds. It
// closes ln and the store.
func (s *Server) Serve(ctx context.Context, ln net.Listener) (err error) {
	defer func() { err = errors.Join(err, s.close()) }()
	server := &http.Server{
		Handler:        s,
		ReadTimeout:    readTime,
		WriteTimeout:   answerTime,
		IdleTimeout:    idleTime,
		MaxHeaderBytes: maxHeader,
		ErrorLog:       log.New(logged{s}, "", 0),
	}
	server.RegisterOnShutdown(func() { close(s.ending) })
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ln) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve %s: %v", ln.Addr(), check.Underlying(err))
	case <-ctx.Done():
	}

	ending, stop := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer stop()
	err = server.Shutdown(ending)
	if err != nil { // an answer took too long
		err = server.Close()
	}

	<-ended
	return err
}

// logged passes messages of net/http to Server.note.
type logged struct{ *Server }

func (l logged) Write(text []byte) (int, error) {
	l.note("%s", strings.TrimSpace(string(text)))
	return len(text), nil
}

// note reports something that no client may see.
func (s *Server) note(format string, args ...any) {
	if s.app.Note != nil {
		s.app.Note(format, args...)
	}
}

// failure is an error whose text a client may see.
type failure struct {
	code int
	text string
}

func (f failure) Error() string { return f.text }

func notFound(what string) error {
	return failure{http.StatusNotFound, "there is no such " + what}
}

// errBusy is returned to a request that has waited too long for its turn.
var errBusy = failure{http.StatusServiceUnavailable, "the server works on other requests; try again later"}

// statusLeft is the status code under which the server counts requests whose client left before the answer.
const statusLeft = 499

func badRequest(text string) error { return failure{http.StatusBadRequest, text} }

// unframed keeps other sites from showing the pages in frames. A policy inside a page cannot do that.
const unframed = "frame-ancestors 'none'"

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; "+unframed)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "private, no-cache")
	seen := &watched{w, http.StatusInternalServerError} // the code that is counted if a handler panics
	defer func() { s.counts.add(r, seen.code) }()
	if !s.named(r) {
		text := "this server has another name; chokepoint serve --host adds one"
		if name := hostName(r.Host); possibleName().MatchString(name) {
			text = "this server has another name; if " + name + " is its own, start it with --host " + name
		}

		s.fail(seen, r, failure{http.StatusForbidden, text})
		return
	}

	if foreign(r) {
		s.fail(seen, r, failure{http.StatusForbidden, "pages of other sites may only link to this server"})
		return
	}

	if s.gate != nil {
		h.Set("Referrer-Policy", "same-origin") // otherwise even our own forms would send no origin
		h.Set("Cache-Control", "no-store")      // pages of a session contain the session's key
	}

	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		if _, pattern := s.mux.Handler(r); r.Method != http.MethodPost || pattern == "" {
			h.Set("Allow", "GET, HEAD")
			s.fail(seen, r, failure{http.StatusMethodNotAllowed, "this page only answers GET and HEAD"})
			return
		}

		if http.NewCrossOriginProtection().Check(r) != nil {
			s.fail(seen, r, errForeign)
			return
		}

		if err := readWhole(seen, r); err != nil {
			s.fail(seen, r, badRequest("the body of the request is too long, or arrives too slowly"))
			return
		}
	}

	places, most, limit := s.active, maxFrom, workTime
	switch {
	case r.Method == http.MethodPost:
		places, most = s.posts, maxPostFrom
	case r.URL.Path == eventsPath:
		places, most, limit = s.live, maxLiveFrom, liveTime
	}

	share := taken{places, source(r)}
	if !s.take(share, 1, most) {
		s.fail(seen, r, failure{http.StatusServiceUnavailable, "too many requests at once from this address"})
		return
	}
	defer s.take(share, -1, most)
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		r = r.WithContext(ctx)
		s.mux.ServeHTTP(seen, r)
	default:
		s.fail(seen, r, failure{http.StatusServiceUnavailable, "too many requests at once"})
	}
}

// readWhole reads the body of a request before the request takes a place, so that slow senders do not block
// others.
func readWhole(w http.ResponseWriter, r *http.Request) error {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTime)) // connections in memory do not support deadlines
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return err
	}

	_ = control.SetReadDeadline(time.Time{})
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// taken identifies the places of one kind that clients from one address occupy.
type taken struct {
	places chan struct{}
	from   netip.Prefix
}

// take adds n to the number of places that an address occupies. It returns false if the address would then
// occupy more than most places. Slow clients keep their places for a long time and would otherwise leave none
// for others. Clients on this machine are not counted, because they may come through a proxy.
func (s *Server) take(t taken, n, most int) bool {
	if t.from.Addr().IsLoopback() {
		return true
	}

	s.fromMu.Lock()
	defer s.fromMu.Unlock()
	if s.from[t]+n > most {
		return false
	}

	s.from[t] += n
	if s.from[t] == 0 {
		delete(s.from, t)
	}

	return true
}

// watched records the status code of an answer.
type watched struct {
	http.ResponseWriter
	code int
}

// WriteHeader records the code and sends it.
func (w *watched) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap returns the underlying writer for http.ResponseController.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// possibleName matches names and addresses that the flag --host accepts. It matches no options and no shell
// code.
var possibleName = check.Pattern(`^[a-z0-9:][a-z0-9.:-]*$`)

// named reports whether the request names this server.
func (s *Server) named(r *http.Request) bool {
	name := hostName(r.Host)
	if name == "localhost" || slices.Contains(s.hosts, name) {
		return true
	}

	ip, err := netip.ParseAddr(name)
	if err != nil {
		return false
	}

	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ip.IsLoopback() || local != nil && hostName(local.String()) == ip.Unmap().String()
}

// foreign reports whether, according to the browser, a page of another site loads something from the server.
// Such requests cost time on this machine. Following a link to a page does not count.
func foreign(r *http.Request) bool {
	h := r.Header
	site := h.Get("Sec-Fetch-Site")
	return (site == "cross-site" || site == "same-site") &&
		(h.Get("Sec-Fetch-Mode") != "navigate" || h.Get("Sec-Fetch-Dest") != "document")
}

// hostName returns the name or address in a Host header without its port, in the form in which names are
// compared.
func hostName(host string) string {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}

	if ip, err := netip.ParseAddr(name); err == nil {
		return ip.Unmap().WithZone("").String()
	}

	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// handle answers GET requests for a path with the content that f returns. A page contains its own policy.
func (s *Server) handle(path, kind string, f func(*http.Request) ([]byte, error)) {
	s.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		content, err := f(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}

		send(w, http.StatusOK, kind, content)
	})
}

func send(w http.ResponseWriter, code int, kind string, content []byte) {
	h := w.Header()
	own := report.Policy(content)
	if own != "" && strings.HasPrefix(kind, "text/html") {
		h.Set("Content-Security-Policy", own+"; "+unframed)
	}

	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(content)))
	w.WriteHeader(code)
	_, _ = w.Write(content) // the client may have left
}

// fail answers with an error. If the client did not cause the error, fail only notes the cause, because it
// may contain file names.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	f, ok := errors.AsType[failure](err)
	switch {
	case ok:
	case errors.Is(r.Context().Err(), context.DeadlineExceeded):
		f = failure{http.StatusServiceUnavailable, "the answer takes too long"}
	case r.Context().Err() != nil:
		f = failure{statusLeft, "the client left"}
	case errors.Is(err, app.ErrUsage): // the run was deleted after it was listed
		f = failure{http.StatusNotFound, "there is no such run"}
	default:
		f = failure{http.StatusInternalServerError, "this cannot be read; the server's terminal has " +
			"the reason"}
		s.note("%s: %v", r.URL.EscapedPath(), err)
	}

	switch f.code {
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "30")
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "60")
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	}

	kind := "application/json"
	content, _ := json.Marshal(map[string][]string{"errors": {check.Plain(f.text)}})
	if !strings.HasPrefix(r.URL.Path, "/api/") && r.URL.Path != "/metrics" {
		page := report.ServedPage{
			Links:  links(""),
			Kind:   "Error",
			Title:  strconv.Itoa(f.code),
			Alerts: []report.Item{{Text: f.text, Tone: report.Bad}},
		}
		text, err := page.HTML()
		if err == nil {
			kind, content = htmlText, text
		}
	}

	send(w, f.code, kind, content)
}
