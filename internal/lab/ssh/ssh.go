// Package ssh connects to other machines with the user's OpenSSH client, and thereby uses the user's
// configuration, ssh agents, hardware keys and jump hosts. All sessions with a machine share one connection.
// The package also installs and starts the agent of chokepoint on the machine.
package ssh

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// Scheme is the prefix of the addresses of machines that are reached over ssh.
const Scheme = "ssh://"

// Destination identifies a machine. Host may be an alias that the user's ssh configuration defines.
type Destination struct {
	User string
	Host string
	Port int // 0 means the port in the ssh configuration
}

// Parse parses "ssh://[USER@]HOST[:PORT]". It rejects parts that ssh could mistake for an option. It also
// rejects passwords, because command lines are stored.
func Parse(text string) (d Destination, err error) {
	rest, ok := strings.CutPrefix(text, Scheme)
	wrong := func(format string, args ...any) (Destination, error) {
		return Destination{}, check.WithHint(fmt.Errorf("%q is not a machine: %s", check.Plain(text),
			fmt.Sprintf(format, args...)), "write ssh://HOST, ssh://USER@HOST or ssh://USER@HOST:PORT")
	}
	if !ok {
		return wrong("it does not begin with %s", Scheme)
	}

	rest = strings.TrimSuffix(rest, "/")
	i := strings.LastIndexByte(rest, '@')
	if i >= 0 {
		if d.User, rest = rest[:i], rest[i+1:]; strings.ContainsRune(d.User, ':') {
			text = Scheme + "USER:…@" + rest // keep the password out of the error
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

// wordLike reports whether text is a plausible user name or host name.
func wordLike(text string) bool { return text != "" && text[0] != '-' && host.Plain(text, "._-%") }

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

// Options determine how to connect to a machine.
type Options struct {
	Dir       string // private directory for the socket of the connection and the log of ssh
	Name      string // file name of the socket; ".log" is appended for the log
	Config    string // configuration file that hints mention; "" means the user's configuration
	Copy      string // copy of Config created by CopyConfig
	Identity  string // private key file; "" means ssh's default
	Jump      string // jump hosts, as for ssh -J; "" means those in the configuration
	AcceptNew bool   // whether to accept and store the host key of an unknown machine
}

// Facts are properties of the machine and of the connection, as reported by the machine.
type Facts struct {
	System string // output of uname -s, such as "Linux", "FreeBSD" or "Darwin"; or RouterOS
	Arch   string // output of uname -m, or architecture-name of RouterOS
	Root   bool   // whether the user is root
	Sudo   bool   // whether the user can become root without a password
	// Local is the machine's address in the connection, and Remote is ours. Both are invalid if sshd on the
	// machine does not report them.
	Local, Remote netip.Addr
}

// Connection is a connection to a machine. No method except Close may be called concurrently with other
// methods.
type Connection struct {
	Destination
	Facts

	options Options
	master  *host.Child
	held    chan struct{} // closed when a master without a session exits; nil if it has one
	prints  bool          // whether the login shell prints text before each command; see begins

	log     *heard // ssh's own log
	machine *heard // standard error of ssh, which contains output of the machine or a proxy command

	mu      sync.Mutex
	flooded bool // whether the connection was killed because too many bytes were received
}

// hello is a script that prints facts about the machine and then waits until its input ends, so that the
// connection stays open. Output of the login shell may precede its first line.
const hello = `echo; echo chokepoint-hello
uname -s; uname -m; id -u
if sudo -n true >/dev/null 2>&1; then echo sudo; else echo none; fi
echo "connection $SSH_CONNECTION"; echo chokepoint-ready
exec cat >/dev/null
`

// dialTime is the time limit for connecting and for receiving all facts about the machine.
const dialTime = time.Minute

// Dial connects to a machine. It never prompts the user. If ssh would have to prompt, Dial returns an error
// that contains a hint.
func Dial(ctx context.Context, d Destination, o Options) (*Connection, error) {
	return dialWithin(ctx, d, o, dialTime)
}

func dialWithin(ctx context.Context, d Destination, o Options, within time.Duration) (c *Connection,
	err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("connect to %s: %w", d, err)
		}
	}()
	c = &Connection{Destination: d, options: o}
	if err := c.hearAll(); err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeoutCause(ctx, within, check.WithHint(fmt.Errorf("%w: no answer within %s",
		host.ErrUnreachable, within), "does "+c.byHand()+" show a prompt?"))
	defer cancel()
	if err := c.dial(ctx); err != nil {
		return nil, errors.Join(err, c.log.close(), c.machine.close())
	}

	return c, nil
}

func (c *Connection) dial(ctx context.Context) error {
	master, err := c.start("-M", "exec /bin/sh -s")
	if err != nil {
		return err
	}

	c.carry(master)
	defer context.AfterFunc(ctx, func() { master.Kill() })()
	_, err = io.WriteString(master, hello)
	var heard strings.Builder
	wrong := c.listen(bufio.NewReader(io.TeeReader(io.LimitReader(master, maxHello), &heard)))
	if err = errors.Join(err, wrong); err == nil {
		return nil
	}

	master.Close()
	if ctx.Err() == nil && onConsole(heard.String()+c.said()) {
		if err = c.dialConsole(ctx); err == nil {
			return nil
		}
	}

	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	flood := c.flood()
	if flood != nil {
		return flood
	}

	return c.explain(err)
}

// maxHello is the maximum size of the login shell's output in bytes.
const maxHello = 256 << 10

// listen parses the output of hello.
func (c *Connection) listen(r *bufio.Reader) error {
	var lines []string
	var before strings.Builder // lines that precede the marker
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

	c.prints = before.String() != "\n" // the script hello itself prints an empty line
	c.System = lines[0]
	c.Arch = lines[1]
	c.Root = lines[2] == "0"
	c.Sudo = lines[3] == "sudo"
	f := strings.Fields(lines[4])
	if len(f) == 5 { // the fields are "connection", remote address and port, local address and port
		c.Remote, c.Local = addr(f[1]), addr(f[3])
	}

	return nil
}

// addr parses an address. If text is not an address, it returns the zero Addr.
func addr(text string) netip.Addr {
	a, _ := netip.ParseAddr(text)
	return a.Unmap().WithZone("")
}

// byHand returns the ssh command with which the user can connect. It is used in hints.
func (c *Connection) byHand() string {
	words := []string{"ssh"}
	for _, w := range c.way(c.options.Config) {
		words = append(words, host.ShellWord(w))
	}
	return strings.Join(words, " ")
}

// diagnoses maps lines in ssh's own log to hints. The patterns match only complete lines, because text from
// the machine may be part of a line. In hints, $ssh stands for Connection.byHand, $forget for the command
// that removes the changed key, and $name for the name of the unknown key.
var diagnoses = []struct {
	line func() *regexp.Regexp
	hint string
}{
	{check.Pattern(`^Host key for \S+ has changed and you have requested strict checking\.`),
		"its key is another than before: find out why, and only then $forget"},
	{check.Pattern(`^Host key verification failed\.$`), "nothing here knows the key of $name: connect once by " +
		"$ssh and compare it, or trust it at first sight with --accept-new"},
	{check.Pattern(`^\S+: Permission denied \(`),
		"try $ssh: chokepoint uses the same keys and agent, and asks for no password"},
	{check.Pattern(`^ssh: Could not resolve hostname `), "give a name or an address that $ssh finds"},
	{check.Pattern(`^ssh: connect to host .*: Connection refused$`),
		"is sshd running there, and on that port?"},
	{check.Pattern(`^ssh: connect to host .*: No route to host$`), "is the machine up, and on this network?"},
	{check.Pattern(`^(ssh: connect to host .*|Connection (to|with) .*) timed out$`),
		"is the machine up, and does a firewall let ssh through?"},
	{check.Pattern(`^Connection closed by UNKNOWN port `),
		"a machine or a command on the way did not let it through: $ssh shows why"},
}

// quotes matches lines in ssh's log that contain text from the machine. The machine may also forge all lines
// after such a line, because ssh does not escape newlines in that text.
var quotes = check.Pattern(
	`^(Received disconnect from|Unable to negotiate with|Bad remote protocol version|\S+: Permission denied \()`)

// explain adds the messages of ssh and a hint to err. It never uses text from the machine to select a hint.
func (c *Connection) explain(err error) error {
	own := c.log.text()
	if len(own) >= keptHeard { // a dropped line may have contained text from the machine; see quotes
		own = ""
	}

	var said []string // complete lines that ssh itself has written
	for line := range strings.Lines(own) {
		line = strings.TrimSpace(line)
		if said = append(said, line); quotes().MatchString(line) {
			break
		}
	}

	text := strings.Join(said, " ")
	fill := strings.NewReplacer("$ssh", c.byHand(), "$forget", forget(text), "$name",
		cmp.Or(keptAs(text, notKnown), c.Host))
	for _, d := range diagnoses {
		if slices.ContainsFunc(said, d.line().MatchString) {
			return check.WithHint(errors.New(c.words()), fill.Replace(d.hint))
		}
	}

	words := c.words()
	if words != "" {
		err = fmt.Errorf("%w (ssh: %s)", err, words)
	}

	return err
}

// These texts follow the name of a host key in messages of ssh (sshconnect.c, check_host_key). The name is
// the HostKeyAlias or HostName of any machine on the path.
const (
	hasChanged = " has changed and you have requested"
	notKnown   = " and you have requested strict checking"
)

// keptAs returns the name of a host key in ssh's log. The name is the word that precedes the given text. If
// the log does not contain the text, keptAs returns "".
func keptAs(said, then string) string {
	end := max(strings.Index(said, then), 0)
	return said[strings.LastIndexByte(said[:end], ' ')+1 : end]
}

// forget returns an ssh-keygen command that removes the changed key from the file that ssh reports.
func forget(said string) string {
	command := "ssh-keygen -R " + host.Quote(keptAs(said, hasChanged))
	_, place, _ := strings.Cut(said[max(strings.LastIndex(said, " key in "), 0):], " key in ")
	place, _, _ = strings.Cut(place, " ") // the form is FILE:LINE
	i := strings.LastIndexByte(place, ':')
	if i > 0 {
		command += " -f " + host.Quote(place[:i])
	}

	return command
}

// sshOptions are for all sessions. The connection ends if the machine has not responded for
// ServerAliveInterval × ServerAliveCountMax seconds.
const sshOptions = "BatchMode=yes LogLevel=ERROR ConnectTimeout=15 ServerAliveInterval=5 " +
	"ServerAliveCountMax=3 ControlPersist=no RemoteCommand=none RequestTTY=no EscapeChar=none " +
	"ForwardAgent=no ForwardX11=no ClearAllForwardings=yes PermitLocalCommand=no"

// start runs ssh with a command for the machine and an additional option (how). The ssh process is killed if
// this program exits.
func (c *Connection) start(how, command string) (*host.Child, error) {
	if err := c.flood(); err != nil {
		return nil, err
	}

	args, dir := c.args(how, command)
	child, err := host.Spawn{Program: "ssh", Args: args, Stderr: c.machine.in, Bound: true, Dir: dir}.Start()
	if errors.Is(err, host.ErrUnsupported) {
		err = check.WithHint(err, "install openssh-client (Debian, Ubuntu)")
	}

	return child, err
}

// logFile returns the path of the named pipe for ssh's own log.
func (c *Connection) logFile() string { return filepath.Join(c.options.Dir, c.options.Name+".log") }

// maxSocket is the maximum length of the socket's path in bytes. Operating systems allow at least 104 bytes
// (unix(4), unix(7)), and ssh appends up to 18 bytes while it creates the socket.
const maxSocket = 104 - 18

// args returns the arguments and the working directory of ssh. The directory is usually "", which means the
// current one, so that relative paths in the user's configuration work. It is the directory of the socket if
// the path of the socket is too long or contains characters that ssh expands.
func (c *Connection) args(how, command string) (args []string, dir string) {
	keys := "yes"
	if c.options.AcceptNew {
		keys = "accept-new"
	}

	socket := filepath.Join(c.options.Dir, c.options.Name)
	if len(socket) > maxSocket || strings.ContainsAny(socket, "%$") || !filepath.IsAbs(socket) {
		socket = c.options.Name
		dir = c.options.Dir
	}

	options := sshOptions + " StrictHostKeyChecking=" + keys
	if c.options.Identity != "" {
		options += " IdentitiesOnly=yes"
	}

	args = []string{how, "-T", "-S", socket, "-E", socket + ".log"}
	for o := range strings.FieldsSeq(options) {
		args = append(args, "-o", o)
	}

	way := c.way(c.options.Copy)
	args = append(append(args, way[:len(way)-1]...), "--", way[len(way)-1])
	if command != "" {
		args = append(args, command)
	}

	return args, dir
}

// way returns the arguments that a user would also pass to ssh: options, including the given configuration,
// and the destination.
func (c *Connection) way(config string) (words []string) {
	for _, o := range [][2]string{{"-F", config}, {"-i", c.options.Identity},
		{"-J", c.options.Jump}, {"-p", strings.TrimPrefix(strconv.Itoa(c.Port), "0")}} {
		if o[1] != "" {
			words = append(words, o[0], o[1])
		}
	}
	return append(words, strings.TrimPrefix(c.User+"@", "@")+c.Host)
}

// Open starts a command on the machine in a separate session. The command must have the same meaning in all
// login shells, including csh, so it may contain only plain words and text in single quotes.
func (c *Connection) Open(command string) (*session, error) {
	child, err := c.start("-oControlMaster=no", c.marked(command))
	if err != nil {
		return nil, err
	}
	return &session{child, c, c.own(child)}, nil
}

// do runs a command on the machine, and returns its output. The command reads its standard input from in.
func (c *Connection) do(ctx context.Context, within time.Duration, command string, in io.Reader) (string,
	error) {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("%w: no answer of %s within %s",
		host.ErrUnreachable, c, within))
	defer cancel()
	child, err := c.Open(command)
	if err != nil {
		return "", err
	}
	defer context.AfterFunc(ctx, func() { child.Kill() })()
	_, sendErr := io.Copy(child, in)
	child.HangUp()
	out, readErr := io.ReadAll(io.LimitReader(child, maxHello+1))
	if len(out) > maxHello {
		readErr = fmt.Errorf("it prints more than %d kB", maxHello>>10)
		child.Kill()
	}

	err = child.Wait()
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case len(out) > maxHello:
		return "", readErr
	case err != nil:
		return string(out), fmt.Errorf("%w: %s", err, c.words())
	}

	return string(out), errors.Join(sendErr, readErr)
}

// These are the time limits for a script and for copying a program to the machine.
const (
	runTime = time.Minute
	putTime = 10 * time.Minute
)

// Run runs a script on the machine with the POSIX shell, and returns its output.
func (c *Connection) Run(ctx context.Context, script string) (string, error) {
	return c.do(ctx, runTime, "exec /bin/sh -s", strings.NewReader(script))
}

// Close ends the connection and thereby all sessions.
func (c *Connection) Close() error {
	if c.held != nil { // the console connection has no input to close
		c.master.Kill()
		<-c.held
	}

	err := c.master.Close()
	_, exited := host.ExitCode(err)
	if exited { // ssh exits after its input is closed or the network fails
		err = nil
	}

	return errors.Join(err, c.log.close(), c.machine.close())
}
