// Package ssh reaches other machines by the user's own OpenSSH client: with its configuration, agents,
// hardware keys and jump hosts, over one connection to each machine that all sessions share. It puts
// chokepoint's agent there and starts it. It knows nothing of labs.
package ssh

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// Scheme marks a machine that is reached so.
const Scheme = "ssh://"

// Destination is a machine as the user names it. Host may be a name of the user's ssh configuration.
type Destination struct {
	User string
	Host string
	Port int // 0 = the one of the configuration
}

// Parse reads "ssh://[USER@]HOST[:PORT]". Nothing in it can be taken for an option of ssh, and a password
// has no place: command lines are stored.
func Parse(text string) (d Destination, err error) {
	rest, ok := strings.CutPrefix(text, Scheme)
	wrong := func(format string, args ...any) (Destination, error) {
		return Destination{}, check.WithHint(fmt.Errorf("%q is no machine: %s", check.Plain(text),
			fmt.Sprintf(format, args...)), "write ssh://HOST, ssh://USER@HOST or ssh://USER@HOST:PORT")
	}
	if !ok {
		return wrong("it does not begin with %s", Scheme)
	}
	rest = strings.TrimSuffix(rest, "/")
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		if d.User, rest = rest[:i], rest[i+1:]; strings.ContainsRune(d.User, ':') {
			text = Scheme + "USER:…@" + rest // it must not be shown
			return wrong("a password does not belong there; ssh asks its agent, or use a key")
		}
		if !wordLike(d.User) {
			return wrong("%q is no user", d.User)
		}
	}
	d.Host = rest
	switch inner, after, bracketed := strings.Cut(strings.TrimPrefix(rest, "["), "]"); {
	case strings.HasPrefix(rest, "[") && bracketed:
		d.Host, rest = inner, after
	default:
		var port string
		d.Host, port, bracketed = strings.Cut(rest, ":")
		if rest = ""; bracketed {
			rest = ":" + port
		}
	}
	if rest != "" {
		port, ok := strings.CutPrefix(rest, ":")
		if d.Port, err = strconv.Atoi(port); !ok || err != nil || d.Port < 1 || d.Port > 65535 {
			return wrong("%q is no port", strings.TrimPrefix(rest, ":"))
		}
	}
	if !wordLike(strings.ReplaceAll(d.Host, ":", "")) {
		return wrong("%q is no host", d.Host)
	}
	return d, nil
}

// wordLike is what users and hosts are made of.
func wordLike(text string) bool {
	return text != "" && text[0] != '-' && !strings.ContainsFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("._-%", r))
	})
}

func (d Destination) String() string {
	text := d.Host
	if strings.ContainsRune(text, ':') {
		text = "[" + text + "]"
	}
	if d.User != "" {
		text = d.User + "@" + text
	}
	if d.Port > 0 {
		text += ":" + strconv.Itoa(d.Port)
	}
	return Scheme + text
}

// Options say how machines are reached.
type Options struct {
	Dir       string // of ours alone: the connection's socket and what ssh says
	Name      string // of the files there
	Config    string // file instead of the user's configuration, "" = that
	Identity  string // file of the private key, "" = what ssh does by itself
	Jump      string // machines on the way, as after ssh's option -J; "" = the configuration's
	AcceptNew bool   // the host key of a machine that is not known is taken and remembered
}

// Facts are what a machine says of itself, and of the connection.
type Facts struct {
	System string // as uname -s: "Linux", "FreeBSD", "Darwin"; or RouterOS
	Arch   string // as uname -m, or RouterOS' architecture-name
	Root   bool   // the user is root
	Sudo   bool   // or becomes it without a question
	// Local is where the machine was reached, Remote from where; not valid where its sshd does not say.
	Local, Remote netip.Addr
}

// Connection is one to a machine. It is not safe for concurrent use, but for Close.
type Connection struct {
	Destination
	Facts

	options Options
	master  *host.Child
	held    chan struct{} // closed when a master without a session has ended; nil of one with a session
	log     string        // file with what ssh and the machine said on standard error
	prints  bool          // the login shell prints something before each command, see begins
}

// hello prints what the machine is and then waits: the connection stays for as long as its input does. A
// login shell's own words come before the first line.
const hello = `echo; echo chokepoint-hello
uname -s; uname -m; id -u
if sudo -n true >/dev/null 2>&1; then echo sudo; else echo none; fi
echo "connection $SSH_CONNECTION"; echo chokepoint-ready
exec cat >/dev/null
`

// Dial connects. It asks nothing of the user: what it would have to ask is an error that says what to do.
func Dial(ctx context.Context, d Destination, o Options) (c *Connection, err error) {
	c = &Connection{Destination: d, options: o, log: filepath.Join(o.Dir, o.Name+".log")}
	defer func() {
		if err != nil {
			err = fmt.Errorf("connect to %s: %w", d, err)
		}
	}()
	if err := trusted(o.Config); err != nil {
		return nil, err
	}
	if err := os.WriteFile(c.log, nil, 0o600); err != nil {
		return nil, err
	}
	c.master, err = c.start("-M", "exec /bin/sh -s")
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { c.master.Kill() })()
	_, err = io.WriteString(c.master, hello)
	var heard strings.Builder
	wrong := c.listen(bufio.NewReader(io.TeeReader(io.LimitReader(c.master, mostHello), &heard)))
	if err = errors.Join(err, wrong); err == nil {
		return c, nil
	}
	c.master.Close()
	if ctx.Err() == nil && onConsole(heard.String()+c.said()) {
		if err = c.dialConsole(ctx); err == nil {
			return c, nil
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, c.explain(err, c.said())
}

// trusted refuses a configuration that others can change: it may name commands.
func trusted(config string) error {
	if config == "" {
		return nil
	}
	i, err := os.Stat(config)
	if err != nil {
		return fmt.Errorf("read ssh's configuration: %w", err)
	}
	by, ok := i.Sys().(*syscall.Stat_t)
	if i.Mode().Perm()&0o022 != 0 || !ok || by.Uid != 0 && int(by.Uid) != os.Geteuid() {
		return check.WithHint(fmt.Errorf("others can change ssh's configuration %s", config),
			"chown it to yourself, and chmod go-w it")
	}
	return nil
}

// mostHello bounds what a login shell may say.
const mostHello = 256 << 10

// listen reads the answers to hello.
func (c *Connection) listen(r *bufio.Reader) error {
	var lines []string
	var before strings.Builder // the line with the mark
	for begun := false; ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return errors.New("it ended before it ran a script: that user has no POSIX shell there, or ssh " +
				"no connection")
		}
		text := strings.TrimSpace(line)
		if text == "chokepoint-ready" {
			break
		}
		switch {
		case begun:
			lines = append(lines, check.Plain(text))
		case text == "chokepoint-hello":
			begun = true
		default:
			before.WriteString(line)
		}
	}
	if len(lines) != 5 {
		return fmt.Errorf("the machine says %q of itself", strings.Join(lines, " "))
	}
	c.prints = before.String() != "\n" // which is hello's own
	c.System, c.Arch, c.Root, c.Sudo = lines[0], lines[1], lines[2] == "0", lines[3] == "sudo"
	if f := strings.Fields(lines[4]); len(f) == 5 { // the word, remote address and port, local ones
		c.Remote, c.Local = addr(f[1]), addr(f[3])
	}
	return nil
}

// addr is not valid where the text is none.
func addr(text string) netip.Addr {
	a, _ := netip.ParseAddr(text)
	return a.Unmap().WithZone("")
}

// explain says what to do about what ssh said.
func (c *Connection) explain(err error, said string) error {
	by := "ssh " + strings.Join(c.way(), " ")
	for _, known := range []struct{ text, hint string }{
		{hasChanged, "its key is another than before: find out why, and only then " + forget(said)},
		{"Host key verification failed", "nothing here knows the key of " + cmp.Or(keptAs(said, notKnown),
			c.Host) + ": connect once by " + by + " and compare it, or trust it at first sight with " +
			"--accept-new"},
		{"Permission denied", "try " + by + ": chokepoint uses the same keys and agent, and asks for no " +
			"password"},
		{"Could not resolve hostname", "give a name or an address that " + by + " finds"},
		{"Connection refused", "is sshd running there, and on that port?"},
		{"No route to host", "is the machine up, and on this network?"},
		{"timed out", "is the machine up, and does a firewall let ssh through?"},
	} {
		if strings.Contains(said, known.text) {
			return check.WithHint(errors.New(said), known.hint)
		}
	}
	if said != "" {
		err = fmt.Errorf("%w (ssh: %s)", err, said)
	}
	return err
}

// What ssh says behind the name under which it keeps a host key (sshconnect.c, check_host_key): that is the
// HostKeyAlias or else the HostName, of whichever machine on the way.
const (
	hasChanged = " has changed and you have requested"
	notKnown   = " and you have requested strict checking"
)

// keptAs is the name before one of those, "" where ssh does not say that.
func keptAs(said, then string) string {
	end := max(strings.Index(said, then), 0)
	return said[strings.LastIndexByte(said[:end], ' ')+1 : end]
}

// forget is the command that removes a key which has changed from the file that ssh names.
func forget(said string) string {
	command := "ssh-keygen -R " + host.Quote(keptAs(said, hasChanged))
	_, place, _ := strings.Cut(said[max(strings.LastIndex(said, " key in "), 0):], " key in ")
	place, _, _ = strings.Cut(place, " ") // FILE:LINE
	if i := strings.LastIndexByte(place, ':'); i > 0 {
		command += " -f " + host.Quote(place[:i])
	}
	return command
}

// said is the end of what came on standard error, in one line.
func (c *Connection) said() string {
	const most = 600
	b, _ := os.ReadFile(c.log) // then nothing is known
	if len(b) > most {
		b = b[len(b)-most:]
		if _, whole, _ := bytes.Cut(b, []byte("\n")); len(whole) > 0 { // from a whole line on
			b = whole
		}
	}
	words := slices.DeleteFunc(strings.Fields(check.Plain(string(b))),
		func(w string) bool { return strings.Trim(w, "@") == "" }) // the frame of ssh's gravest warning
	return strings.Join(words, " ")
}

// The connection ends when the machine has not answered for aliveEvery × aliveTries.
const (
	aliveEvery = 5 * time.Second
	aliveTries = 3
)

// start starts ssh with a command of the machine's. Bound: it goes with this program however that ends.
func (c *Connection) start(how, command string) (*host.Child, error) {
	log, err := os.OpenFile(c.log, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	args, dir := c.args(how, command)
	child, err := host.Spawn{Program: "ssh", Args: args, Stderr: log, Bound: true, Dir: dir}.Start()
	if errors.Is(err, host.ErrUnsupported) {
		err = check.WithHint(err, "install openssh-client (Debian, Ubuntu)")
	}
	return child, err
}

// mostSocket is how long a socket's path may be: systems have room for 104 bytes or more (unix(4), unix(7)),
// of which ssh takes 18 while it makes one.
const mostSocket = 104 - 18

// args are those of ssh, and where it runs: here, "", where relative paths of the user's configuration are
// from; but beside a socket whose path is too long, or would be expanded.
func (c *Connection) args(how, command string) (args []string, dir string) {
	keys := "yes"
	if c.options.AcceptNew {
		keys = "accept-new"
	}
	socket := filepath.Join(c.options.Dir, c.options.Name)
	if len(socket) > mostSocket || strings.ContainsAny(socket, "%$") || !filepath.IsAbs(socket) {
		socket, dir = c.options.Name, c.options.Dir
	}
	args = []string{how, "-T", "-S", socket}
	for _, o := range []string{"BatchMode=yes", "StrictHostKeyChecking=" + keys, "LogLevel=ERROR",
		"ConnectTimeout=15", fmt.Sprintf("ServerAliveInterval=%d", aliveEvery/time.Second),
		fmt.Sprintf("ServerAliveCountMax=%d", aliveTries), "ControlPersist=no", "RemoteCommand=none",
		"RequestTTY=no", "EscapeChar=none", "ForwardAgent=no", "ForwardX11=no", "ClearAllForwardings=yes",
		"PermitLocalCommand=no"} {
		args = append(args, "-o", o)
	}
	if c.options.Identity != "" {
		args = append(args, "-o", "IdentitiesOnly=yes")
	}
	way := c.way()
	args = append(append(args, way[:len(way)-1]...), "--", way[len(way)-1])
	if command != "" {
		args = append(args, command)
	}
	return args, dir
}

// way is how a user would connect, too: options, and last the destination.
func (c *Connection) way() (words []string) {
	for _, o := range [][2]string{{"-F", c.options.Config}, {"-i", c.options.Identity},
		{"-J", c.options.Jump}, {"-p", strings.TrimPrefix(strconv.Itoa(c.Port), "0")}} {
		if o[1] != "" {
			words = append(words, o[0], o[1])
		}
	}
	return append(words, strings.TrimPrefix(c.User+"@", "@")+c.Host)
}

// Open starts a command there in a session of the connection. The command is one that every login shell, csh
// too, reads alike: words, and text in single quotes.
func (c *Connection) Open(command string) (*session, error) {
	child, err := c.start("-oControlMaster=no", c.marked(command))
	if err != nil {
		return nil, err
	}
	return &session{child, c.own(child)}, nil
}

// do runs a command there with an input, and returns the first part of what it prints.
func (c *Connection) do(ctx context.Context, command string, in io.Reader) (string, error) {
	child, err := c.Open(command)
	if err != nil {
		return "", err
	}
	defer context.AfterFunc(ctx, func() { child.Kill() })()
	_, sendErr := io.Copy(child, in)
	child.HangUp()
	out, readErr := io.ReadAll(io.LimitReader(child, mostHello))
	err = child.Wait()
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return string(out), fmt.Errorf("%w: %s", err, c.said())
	}
	return string(out), errors.Join(sendErr, readErr)
}

// Run runs a script there by the POSIX shell, and returns what it prints.
func (c *Connection) Run(ctx context.Context, script string) (string, error) {
	return c.do(ctx, "exec /bin/sh -s", strings.NewReader(script))
}

// Close ends the connection, and with it all sessions.
func (c *Connection) Close() error {
	if c.held != nil { // it does not end with its input
		c.master.Kill()
		<-c.held
	}
	err := c.master.Close()
	if _, exited := host.ExitCode(err); exited { // of what ended with its input, or with the network
		return nil
	}
	return err
}
