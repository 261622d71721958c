// Package rest reaches a router by its REST API: one with MikroTik's RouterOS, which runs a line of the
// console and answers with what that printed
// (https://help.mikrotik.com/docs/spaces/ROS/pages/47579162/REST+API), or one with OPNsense, which answers
// questions (https://docs.opnsense.org/development/api.html). It knows nothing of labs.
package rest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// Schemes of a router that is reached so. Over the second one anybody on the way can read the password.
const (
	Secure = "https"
	Plain  = "http"
)

// Addressed reports whether a machine is named as one that is reached so.
func Addressed(at string) bool {
	return strings.HasPrefix(at, Secure+"://") || strings.HasPrefix(at, Plain+"://")
}

// Wanted says how such a router is named.
const Wanted = "write https://USER@HOST of a router with RouterOS, https://HOST of one with OPNsense; " +
	"a port may follow"

// Destination is a router as the user names it: one without a user has OPNsense, whose API has keys instead.
type Destination struct {
	Scheme, User, Host string
	Port               int // 0 = the scheme's own
}

// OPNsense reports whether it is a router with OPNsense.
func (d Destination) OPNsense() bool { return d.User == "" }

// Parse reads "https://USER@HOST[:PORT]" of RouterOS, or "https://HOST[:PORT]" of OPNsense, or http. A
// password or key has no place in it: command lines are stored.
func Parse(text string) (d Destination, err error) {
	wrong := func(format string, args ...any) (Destination, error) {
		shown := text
		if scheme, rest, ok := strings.Cut(text, "://"); ok {
			if at := strings.LastIndexByte(rest, '@'); at >= 0 { // a password must not be shown
				shown = scheme + "://…" + rest[at:]
			}
		}
		return Destination{}, check.WithHint(fmt.Errorf("%q is no router: %s", check.Plain(shown),
			fmt.Sprintf(format, args...)), Wanted)
	}
	u, err := url.Parse(text)
	if err != nil || !Addressed(text) {
		return wrong("it cannot be read")
	}
	d = Destination{Scheme: u.Scheme, User: u.User.Username(), Host: u.Hostname()}
	_, secret := u.User.Password()
	if p := u.Port(); p != "" {
		d.Port, err = strconv.Atoi(p)
	}
	switch {
	case secret:
		return wrong("a password does not belong there; set %s, or name a file: password_file in the lab "+
			"file", host.RouterPassword)
	case d.User == "" && u.User != nil:
		return wrong("it names no user")
	case d.Host == "":
		return wrong("it names no host")
	case strings.ContainsFunc(d.User+d.Host, func(r rune) bool { return r <= ' ' || r > '~' }):
		return wrong("user and host are words of ASCII")
	case err != nil || d.Port < 0 || d.Port > 65535 || u.Port() != "" && d.Port == 0:
		return wrong("%q is no port", u.Port())
	case strings.Trim(u.Path, "/")+u.RawQuery+u.Fragment != "":
		return wrong("nothing follows the port")
	}
	return d, nil
}

// origin is the address without the user.
func (d Destination) origin() url.URL {
	at := d.Host
	if strings.ContainsRune(at, ':') {
		at = "[" + at + "]"
	}
	if d.Port > 0 {
		at += ":" + strconv.Itoa(d.Port)
	}
	return url.URL{Scheme: d.Scheme, Host: at}
}

func (d Destination) String() string {
	u := d.origin()
	if !d.OPNsense() {
		u.User = url.User(d.User)
	}
	return u.String()
}

// Options say how a router is reached.
type Options struct {
	Password host.Secret
	// Certificate is the only certificate that the router may have, as ParseCertificate reads it; "" = one
	// for its name from an issuer that this machine trusts.
	Certificate string
}

// fingerprintMark begins a certificate's fingerprint.
const fingerprintMark = "SHA256:"

// fingerprint names a certificate as RouterOS does in /certificate/print.
func fingerprint(certificate []byte) string {
	sum := sha256.Sum256(certificate)
	return fingerprintMark + hex.EncodeToString(sum[:])
}

// ParseCertificate reads how a certificate is named: "SHA256:" and the digest of its DER in hexadecimal
// digits, as RouterOS shows it, or with colons between, as openssl does.
func ParseCertificate(text string) (string, error) {
	digits, ok := strings.CutPrefix(text, fingerprintMark)
	sum, err := hex.DecodeString(strings.ReplaceAll(digits, ":", ""))
	if !ok || err != nil || len(sum) != sha256.Size {
		return "", check.WithHint(fmt.Errorf("%q is no fingerprint of a certificate", check.Plain(text)),
			"write SHA256: and the 64 digits that the router shows, RouterOS by /certificate/print detail")
	}
	return fingerprintMark + hex.EncodeToString(sum), nil
}

// errOther is of a router with another certificate than the one that was named.
var errOther = errors.New("the certificate is another than the one that was named")

// trust says which certificate is taken.
func trust(certificate string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if certificate == "" {
		return c, nil
	}
	want, err := ParseCertificate(certificate)
	if err != nil {
		return nil, err
	}
	c.InsecureSkipVerify = true // issuer and name say nothing of a certificate that is known itself
	c.VerifyConnection = func(s tls.ConnectionState) error {
		if got := fingerprint(s.PeerCertificates[0].Raw); got != want { // a server always has one
			return fmt.Errorf("%w: it is %s", errOther, got)
		}
		return nil
	}
	return c, nil
}

// Connection is to a router. It is safe for concurrent use.
type Connection struct {
	Destination
	password  host.Secret
	client    *http.Client
	forbidden sync.Map // questions that the key may not ask, and the errors
}

// Time and size that an answer may take. RouterOS ends a request after 60 seconds (manual, REST API).
const (
	mostTime   = 70 * time.Second
	mostAnswer = 32 << 20
	// OPNsense's top takes two seconds; no list that it is asked for has more than some hundred lines.
	opnTime, opnAnswer = 30 * time.Second, 4 << 20
	mostHeader         = 64 << 10
	dialTime           = 10 * time.Second
	// idleTime is after which a connection is not used again: the router may have closed it.
	idleTime = 4 * time.Second
	// A request that its client gives up can harm the router's answers to the next ones for some seconds
	// (github.com/tikoci/quickchr, test/lab/www-abort-damage): one under way is given this time.
	grace = 5 * time.Second
)

// Dial makes sure that the router runs scripts for that user, or answers that key.
func Dial(ctx context.Context, d Destination, o Options) (*Connection, error) {
	c, err := connection(d, o)
	if err == nil && d.OPNsense() {
		_, err = c.get(ctx, "diagnostics/system/system_information")
	} else if err == nil {
		var said string
		if said, err = c.execute(ctx, ""); errors.Is(err, errRefused) {
			err = check.WithHint(fmt.Errorf("its console says %q", shorten(said)),
				"RouterOS 7.17 or later is needed, and a user whose group has the policies rest-api, read, "+
					"write, test and policy")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", d, err)
	}
	return c, nil
}

func connection(d Destination, o Options) (*Connection, error) {
	config, err := trust(o.Certificate)
	if err != nil {
		return nil, err
	}
	return &Connection{Destination: d, password: o.Password, client: &http.Client{
		// It is a device at hand: no proxy is to see the password, and it has nothing to refer us to.
		Transport: &http.Transport{TLSClientConfig: config, TLSHandshakeTimeout: dialTime,
			DialContext: (&net.Dialer{Timeout: dialTime}).DialContext, IdleConnTimeout: idleTime,
			MaxConnsPerHost: 2, MaxResponseHeaderBytes: mostHeader, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

// Close ends the connections that wait for the next request.
func (c *Connection) Close() error {
	c.client.CloseIdleConnections()
	return nil
}

// limits are the longest time and size of an answer.
func (d Destination) limits() (time.Duration, int) {
	if d.OPNsense() {
		return opnTime, opnAnswer
	}
	return mostTime, mostAnswer
}

// patient is a context for one request, which outlives ctx by the time of grace.
func patient(ctx context.Context, most time.Duration) (context.Context, func()) {
	out, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	stop := context.AfterFunc(ctx, func() {
		_ = host.Pause(out, grace) // or until the request is over
		cancel()
	})
	return out, func() { stop(); cancel() }
}

// execute runs a script and returns what it printed. With errRefused this is what the console said in place
// of it. Another error is that of the connection.
func (c *Connection) execute(ctx context.Context, script string) (said string, err error) {
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	// What it prints first tells its answer from one to another request, see grace.
	tag := "chokepoint-" + rand.Text()
	var body bytes.Buffer
	e := json.NewEncoder(&body)
	e.SetEscapeHTML(false)
	err = e.Encode(map[string]string{"script": `:put "` + tag + `"; ` + script, "as-string": ""})
	if err != nil {
		return "", err
	}
	status, data, err := c.ask(ctx, http.MethodPost, "/rest/execute", &body)
	if err != nil {
		return "", err
	}
	return parseAnswer(tag, status, data)
}

// ask sends a request and returns what is answered to it.
func (c *Connection) ask(ctx context.Context, method, path string, body io.Reader) (status int, data []byte,
	err error) {
	most, longest := c.limits()
	ctx, over := patient(ctx, most)
	defer over()
	at := c.origin()
	at.Path = path
	q, err := http.NewRequestWithContext(ctx, method, at.String(), body)
	if err != nil {
		return 0, nil, err
	}
	if body != nil {
		q.Header.Set("Content-Type", "application/json")
	}
	_ = c.password.Use(func(b []byte) error {
		user, secret := c.User, string(b)
		if c.OPNsense() {
			user, secret, _ = strings.Cut(secret, ":")
		}
		q.SetBasicAuth(user, secret)
		return nil
	})
	answer, err := c.client.Do(q)
	if err != nil {
		return 0, nil, c.explain(err)
	}
	defer answer.Body.Close()
	data, err = io.ReadAll(io.LimitReader(answer.Body, int64(longest)+1))
	switch {
	case len(data) > longest:
		return 0, nil, fmt.Errorf("it answers more than %d MB", longest>>20)
	case err != nil:
		return 0, nil, c.explain(err)
	}
	return answer.StatusCode, data, nil
}

// explain says what to do about a request without an answer.
func (c *Connection) explain(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	if unknown, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		seen := "a certificate"
		if len(unknown.UnverifiedCertificates) > 0 {
			seen = fingerprint(unknown.UnverifiedCertificates[0].Raw)
		}
		shown := "/certificate/print detail on the router"
		if c.OPNsense() {
			shown = "openssl x509 -noout -fingerprint -sha256 -in " +
				"/usr/local/etc/lighttpd_webgui/cert.pem on the router"
		}
		return check.WithHint(fmt.Errorf("its certificate is not trusted: %s", shorten(unknown.Err.Error())),
			"if "+shown+" shows the fingerprint of "+seen+
				", name it by --router-certificate, or as certificate: in the lab file")
	}
	said := shorten(err.Error())
	switch {
	case errors.Is(err, errOther):
		return check.WithHint(errors.New(said),
			"find out why; only if the router has been given a new one, name that")
	case errors.Is(err, context.DeadlineExceeded):
		most, _ := c.limits()
		said = fmt.Sprintf("no answer within %s", most)
	case strings.Contains(said, "handshake failure"):
		return check.WithHint(errors.New(said), "has "+c.service()+" a certificate?")
	}
	return check.WithHint(fmt.Errorf("%w: %s", host.ErrUnreachable, said),
		"is "+c.service()+" enabled for this address?")
}

// service is what a router calls the one that answers, and where it is seen.
func (d Destination) service() string {
	switch {
	case d.OPNsense():
		return "its web interface (System, Settings, Administration)"
	case d.Scheme == Plain:
		return "its service www (/ip/service/print)"
	}
	return "its service www-ssl (/ip/service/print)"
}

// errRefused is of a script in whose place the console said something else.
var errRefused = errors.New("the console has refused it")

// Error is what the router answers in place of a result.
type Error struct {
	Status          int // of HTTP
	Message, Detail string
}

func (e *Error) Error() string {
	text := fmt.Sprintf("the router answers %d", e.Status)
	for _, more := range []string{e.Message, e.Detail} {
		if more != "" {
			text += ": " + more
		}
	}
	return text
}

// parseAnswer reads the answer to a script that prints a tag first.
func parseAnswer(tag string, status int, data []byte) (said string, err error) {
	switch status {
	case http.StatusOK:
		var a struct {
			Ret *string `json:"ret"`
		}
		if err := json.Unmarshal(data, &a); err != nil || a.Ret == nil {
			return "", fmt.Errorf(`it answers %q, want {"ret": …}`, shorten(string(data)))
		}
		text := strings.ReplaceAll(*a.Ret, "\r\n", "\n")
		if said, ours := strings.CutPrefix(strings.TrimLeft(text, "\n"), tag); ours {
			return strings.TrimPrefix(said, "\n"), nil
		}
		return shorten(text) + " (in place of an answer)", errRefused
	case http.StatusUnauthorized:
		return "", check.WithHint(&Error{Status: status, Message: "it does not take this user with this " +
			"password"}, "is it that of "+host.RouterPassword+", or in the lab file's password_file? The "+
			"user's group needs the policy rest-api")
	case http.StatusNotFound:
		return "", check.WithHint(fmt.Errorf("%w: %w", host.ErrUnsupported, &Error{Status: status,
			Message: "it has no REST API"}), "RouterOS 7.17 or later is needed; is this its service www-ssl?")
	}
	var a struct{ Message, Detail string }
	_ = json.Unmarshal(data, &a) // what is no JSON tells nothing more
	e := &Error{Status: status, Message: shorten(a.Message), Detail: shorten(a.Detail)}
	switch {
	case a.Detail == "Session closed":
		return "", check.WithHint(e, "RouterOS ends a request after 60 seconds: what takes longer needs ssh")
	case status/100 == 3:
		return "", check.WithHint(e, "it refers to another address, which is not given the password")
	}
	return "", e
}

// shorten is the beginning of what a router says, for one line.
func shorten(text string) string {
	const most = 300
	return strings.Join(strings.Fields(check.Plain(text[:min(len(text), most)])), " ")
}
