package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// console is a machine's serial line as a terminal shows it: it echoes what is typed, and asks for what a
// getty asks for; then it is a real shell.
type console struct {
	before   string // what is shown until Enter is pressed
	user     string // "" = no login is needed
	password string
	prompt   string
	noise    string // shown after the prompt
}

func (c console) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	line := func(echo bool) string {
		text, err := in.ReadString('\r')
		if echo && err == nil {
			fmt.Fprintf(conn, "%s\r\n", strings.TrimSuffix(text, "\r"))
		}
		return strings.TrimSuffix(text, "\r")
	}
	if c.before != "" {
		io.WriteString(conn, c.before)
		if line(false); c.user == "" && c.prompt == "" {
			return
		}
	}

	for c.user != "" {
		if _, err := fmt.Fprintf(conn, "\r\n\x1b[1mmine\x1b[0m login: %s", c.noise); err != nil {
			return
		}

		c.noise = ""
		user := line(true)
		if user == "" {
			continue
		}

		password := ""
		if c.password != "" {
			io.WriteString(conn, "Password: ")
			password = line(false)
		}

		if user == c.user && password == c.password {
			break
		}

		io.WriteString(conn, "\r\nLogin incorrect\r\n")
	}

	c.shell(conn, in, line)
}

func (c console) shell(conn net.Conn, in *bufio.Reader, line func(bool) string) {
	sh := exec.Command("sh")
	keys, _ := sh.StdinPipe()
	sh.Stdout = crlf{conn}
	sh.Stderr = crlf{conn}
	if sh.Start() != nil {
		return
	}
	defer sh.Wait()
	defer keys.Close()
	io.WriteString(conn, c.prompt)
	for echo := true; ; {
		text := line(echo)
		echo = echo && !strings.Contains(text, "stty -echo")
		if _, err := fmt.Fprintln(keys, text); err != nil || text == "" && in.Buffered() == 0 &&
			closed(conn) {
			return
		}
	}
}

// closed reports whether nobody is at the other end of a pipe.
func closed(conn net.Conn) bool {
	_, err := conn.Write([]byte{0})
	return errors.Is(err, io.ErrClosedPipe)
}

// crlf ends lines as a terminal does.
type crlf struct{ w io.Writer }

func (c crlf) Write(b []byte) (int, error) {
	_, err := c.w.Write(bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n")))
	return len(b), err
}

func TestTerminal(t *testing.T) {
	tests := []struct {
		name     string
		console  console
		password string
		want     string // in the error of the login
	}{
		{"a shell at once", console{prompt: "# "}, "", ""},
		{"after Enter", console{
			before: "Please press Enter to activate this console.",
			prompt: "root@OpenWrt:/# ",
		}, "", ""},
		{"user without password", console{user: "root", prompt: "~ $ "}, "", ""},
		{"user and password", console{
			user:     "root",
			password: "a b",
			prompt:   "\x1b]0;root@mine\x07\x1b[32m# \x1b[0m",
		}, "a b", ""},
		{"a message over the prompt", console{
			user:   "root",
			prompt: "# ",
			noise:  "[   9.1] random: crng init done\r\n",
		}, "", ""},
		{"wrong password", console{user: "root", password: "right", prompt: "# "}, "wrong",
			"refuses user root"},
		{"no password", console{user: "root", password: "right", prompt: "# "}, "",
			"wants a password of user root"},
		{"another user", console{user: "admin", prompt: "# "}, "", "refuses user root"},
		{"a machine that ends", console{before: "[    0.1] booting"}, "", "log in on the serial console: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			near, far := net.Pipe()
			defer near.Close()
			go tt.console.serve(far)
			term := &terminal{conn: near, quiet: 40 * time.Millisecond}
			err := term.login(ctx, "root", tt.password)
			if tt.want != "" {
				expect.Error(t, "login", err, tt.want)
				return
			}

			if err != nil {
				t.Fatalf("login: %v; the console shows %q", err, term.shown())
			}

			said, err := term.run(ctx, "sh", "x='a  b'\nfor i in 1 2; do\necho \"$i $x\"\ndone\n")
			want := "1 a  b\n2 a  b"
			if err != nil || said != want {
				t.Errorf("run: got %q, %v, want %q", said, err, want)
			}

			_, err = term.run(ctx, "sh", "echo no room; exit 3")
			expect.Error(t, "run of what fails", err, "exit status 3: no room")
		})
	}
}

// TestTerminalOfAFlood: a console that writes without end is no login, and is not kept.
func TestTerminalOfAFlood(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		defer far.Close()
		for line := bytes.Repeat([]byte("x"), 4096); ; {
			if _, err := far.Write(line); err != nil {
				return
			}
		}
	}()
	term := &terminal{conn: near}
	if err := term.login(t.Context(), "root", ""); err == nil || len(term.said) > maxShown+4096 {
		t.Errorf("got %v, with %d bytes kept", err, len(term.said))
	}
}
