package serve

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/report"
)

// MinToken is the minimum length of a token in bytes.
const MinToken = 16

// Limits of a gate.
const (
	sessionTime  = 12 * time.Hour
	maxSessions  = 32
	maxWrong     = 10 // maximum number of wrong tokens from one address
	wrongTime    = time.Minute
	maxAddresses = 1000 // maximum number of addresses that sent wrong tokens
)

// gate decides who may act on testbeds: programs that send the token, and browsers that have exchanged it for
// a session. It keeps only hashes of the token and of the sessions' cookies.
type gate struct {
	token  [sha256.Size]byte
	secure bool // browsers reach the server through HTTPS

	mu       sync.Mutex
	sessions []session // oldest first
	wrong    []guesses // oldest first
}

// session represents a browser that has sent the token.
type session struct {
	cookie [sha256.Size]byte
	form   string // secret in the forms of its pages, which other sites cannot read
	until  time.Time
}

// guesses counts the wrong tokens from one address since a certain time.
type guesses struct {
	from  netip.Prefix
	since time.Time
	n     int
}

func newGate(token host.Secret, secure bool) *gate {
	g := &gate{secure: secure}
	_ = token.Use(func(b []byte) error {
		g.token = sha256.Sum256(b)
		return nil
	})
	return g
}

// source returns the address of a client. For IPv6, it returns the /64 network, because one client may use
// all of its addresses.
func source(r *http.Request) netip.Prefix {
	name, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		name = r.RemoteAddr
	}

	ip, _ := netip.ParseAddr(name)
	ip = ip.Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() && !ip.IsLoopback() {
		bits = 64
	}

	from, _ := ip.Prefix(bits) // the zero prefix for clients without an address
	return from
}

var (
	errWrongToken = failure{http.StatusForbidden, "this is not the token of the server"}
	errGuesses    = failure{http.StatusTooManyRequests, "too many wrong tokens; try again in a minute"}
	errNoToken    = failure{http.StatusUnauthorized, "this needs the token of the server: Authorization: " +
		"Bearer TOKEN"}
	errNoSession = failure{http.StatusForbidden, "sign in first"}
	errForeign   = failure{http.StatusForbidden, "only a form of this server may ask for that"}
)

// check returns an error unless the client has sent the right token. It limits only the number of wrong
// tokens: several clients may share an address, and no client may lock out the others.
func (g *gate) check(r *http.Request, token string) error {
	sum := sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(sum[:], g.token[:]) == 1 {
		return nil
	}

	g.mu.Lock()
	defer g.mu.Unlock()
	from, now := source(r), time.Now()
	g.wrong = slices.DeleteFunc(g.wrong, func(w guesses) bool { return now.Sub(w.since) > wrongTime })
	i := slices.IndexFunc(g.wrong, func(w guesses) bool { return w.from == from })
	if i >= 0 && g.wrong[i].n >= maxWrong {
		return errGuesses
	}

	if i < 0 {
		g.wrong = append(g.wrong, guesses{from: from, since: now})
		if len(g.wrong) > maxAddresses {
			g.wrong = slices.Delete(g.wrong, 0, 1)
		}

		i = len(g.wrong) - 1
	}

	g.wrong[i].n++
	return errWrongToken
}

// bearer returns an error unless a request has the token in its header.
func (g *gate) bearer(r *http.Request) error {
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") {
		return errNoToken
	}
	return g.check(r, token)
}

// cookieName returns the name of the session cookie. If browsers use HTTPS, its prefix binds the cookie to
// this host and to HTTPS.
func (g *gate) cookieName() string {
	if g.secure {
		return "__Host-chokepoint"
	}
	return "chokepoint"
}

// open starts a session and returns its cookie.
func (g *gate) open() *http.Cookie {
	g.mu.Lock()
	defer g.mu.Unlock()
	value := rand.Text() + rand.Text()
	g.sessions = append(g.sessions, session{sha256.Sum256([]byte(value)), rand.Text(),
		time.Now().Add(sessionTime)})
	if len(g.sessions) > maxSessions {
		g.sessions = slices.Delete(g.sessions, 0, 1)
	}

	return g.cookie(value)
}

func (g *gate) cookie(value string) *http.Cookie {
	return &http.Cookie{Name: g.cookieName(), Value: value, Path: "/", HttpOnly: true, Secure: g.secure,
		SameSite: http.SameSiteStrictMode}
}

// close ends the session of a request. It returns a cookie that makes the browser delete the session's
// cookie.
func (g *gate) close(r *http.Request) *http.Cookie {
	s, ok := g.session(r)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sessions = slices.DeleteFunc(g.sessions, func(x session) bool { return ok && x.cookie == s.cookie })
	gone := g.cookie("")
	gone.MaxAge = -1
	return gone
}

// session returns the session to which a request belongs.
func (g *gate) session(r *http.Request) (s session, ok bool) {
	c, err := r.Cookie(g.cookieName())
	if err != nil {
		return s, false
	}

	sum := sha256.Sum256([]byte(c.Value))
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.sessions = slices.DeleteFunc(g.sessions, func(x session) bool { return now.After(x.until) })
	i := slices.IndexFunc(g.sessions, func(x session) bool {
		return subtle.ConstantTimeCompare(x.cookie[:], sum[:]) == 1
	})
	if i < 0 {
		return s, false
	}

	return g.sessions[i], true
}

// formKey is the name of the form field that holds session.form.
const formKey = "key"

// signed returns an error unless a browser has sent the request from a form on a page of its session.
func (g *gate) signed(r *http.Request) error {
	s, ok := g.session(r)
	if !ok {
		return errNoSession
	}

	browser := r.Header.Get("Sec-Fetch-Site") != "" || r.Header.Get("Origin") != ""
	key := r.PostFormValue(formKey)
	if !browser || subtle.ConstantTimeCompare([]byte(key), []byte(s.form)) != 1 {
		return errForeign
	}

	return nil
}

// key returns the hidden field for the forms of a session.
func (s session) key() []report.Field { return []report.Field{{Name: formKey, Value: s.form}} }

// openGate adds the handlers with which browsers start and end a session, and with which browsers and
// programs send requests to testbeds.
func (s *Server) openGate(g *gate) {
	s.gate = g
	s.handle("/login", htmlText, func(r *http.Request) ([]byte, error) { return s.loginPage(r, nil) })
	s.mux.HandleFunc("POST /login", s.signIn)
	s.handleForm("/logout", func(w http.ResponseWriter, r *http.Request) (string, error) {
		http.SetCookie(w, g.close(r))
		return "/login", nil
	})
	s.handleForm("/beds/{bed}/{kind}", s.askForm)
	s.mux.HandleFunc("POST /api/v1/beds/{bed}/requests", s.askData)
}

// handleForm adds a handler for a form of a session. The handler redirects to the path that f returns.
func (s *Server) handleForm(path string, f func(http.ResponseWriter, *http.Request) (string, error)) {
	s.mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		to := ""
		err := s.gate.signed(r)
		if err == nil {
			to, err = f(w, r)
		}

		if err != nil {
			s.fail(w, r, err)
			return
		}

		http.Redirect(w, r, to, http.StatusSeeOther)
	})
}

// loginPage returns the page with the form for the token or, in a session, the form that ends the session.
func (s *Server) loginPage(r *http.Request, wrong error) ([]byte, error) {
	p := report.ServedPage{Links: links(""), Title: "Sign in"}
	if of, ok := s.gate.session(r); ok {
		p.Title, p.Lead = "Signed in", "This browser may start and cancel jobs of testbeds."
		p.Form = &report.Form{Action: "/logout", Button: "Sign out", Post: true, Hidden: of.key()}
		return p.HTML()
	}

	p.Lead = "With the token of the server, this browser may start and cancel jobs of testbeds."
	p.Form = &report.Form{Action: "/login", Button: "Sign in", Post: true, Fields: []report.Field{
		{Name: "token", Label: "Token", Type: "password", Complete: "current-password"},
	}}
	if wrong != nil {
		p.Alerts = []report.Item{{Text: wrong.Error(), Tone: report.Bad}}
	}

	return p.HTML()
}

// signIn exchanges the token for a session.
func (s *Server) signIn(w http.ResponseWriter, r *http.Request) {
	err := s.gate.check(r, r.PostFormValue("token"))
	if err == nil {
		s.note("%s has signed in", source(r).Addr())
		http.SetCookie(w, s.gate.open())
		http.Redirect(w, r, "/beds", http.StatusSeeOther)
		return
	}

	page, pageErr := s.loginPage(r, err)
	if err == errWrongToken && pageErr == nil {
		s.noteWrongToken(r)
		send(w, http.StatusForbidden, htmlText, page)
		return
	}

	s.fail(w, r, err)
}

func (s *Server) noteWrongToken(r *http.Request) {
	s.note("%s has sent a wrong token", source(r).Addr())
}
