package ssh

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// TestParseResource: recorded texts of routers, see testdata/ntc-templates/NOTICE.
func TestParseResource(t *testing.T) {
	for file, arch := range map[string]string{"1": "mipsbe", "2": "mipsbe", "3": "x86_64", "4": "arm64"} {
		b, err := os.ReadFile("testdata/ntc-templates/system_resource_print_" + file + ".raw")
		must(t, err)
		got := parseResource(string(b))
		if got != (Facts{System: RouterOS, Arch: arch}) {
			t.Errorf("%s: got %+v, want %s", file, got, arch)
		}
	}

	for _, text := range []string{"", "platform: MikroTik", "version: 7.20", "bad command name"} {
		got := parseResource(text)
		if got != (Facts{}) {
			t.Errorf("%q: got %+v, want nothing", text, got)
		}
	}
}

func FuzzParseResource(f *testing.F) {
	f.Add("platform: MikroTik\nversion: 7.20\narchitecture-name: arm64\x1b[2J")
	f.Fuzz(func(t *testing.T, text string) {
		got := parseResource(text)
		if got.System != RouterOS && got != (Facts{}) ||
			strings.ContainsAny(got.Arch, "\x1b\n") {
			t.Errorf("%q: got %+v", text, got)
		}

		onConsole(text)
	})
}

func TestOnConsole(t *testing.T) {
	for said, want := range map[string]bool{
		"bad command name exec (line 1 column 1)\r\n":    true,
		"expected command name (line 1 column 6)":        true,
		"expected end of command (line 1 column 12)":     true,
		"syntax error (line 1 column 6)":                 true,
		"sh: 1: Syntax error: \"(\" unexpected":          false,
		"chokepoint-hello\nLinux\nx86_64\n0\nnone\n":     false,
		"exec: bad command name, says a motd (line one)": false,
	} {
		got := onConsole(said)
		if got != want {
			t.Errorf("%q: got %v, want %v", said, got, want)
		}
	}
}

// fakeSSH is an OpenSSH client whose other end is RouterOS' console: it refuses what a shell would run,
// answers /system/resource/print, and has a connection that other sessions share for as long as it lives. It
// writes down where it was started.
const fakeSSH = `#!/bin/sh
for last; do :; done
pwd >>"$PLACES"
case "$*" in
*"exec /bin/sh -s") echo "bad command name exec (line 1 column 1)"; exit 1;;
-MN*) trap 'rm -f "$4"' EXIT; trap exit TERM; : >"$4"; while :; do sleep 0.1; done;;
*) [ -e "$4" ] || { echo "a session of its own" >&2; exit 255; }
	case $last in
	/system/resource/print) cat "$RESOURCE"; exit 1;;
	*) printf '%s\n' "$last";;
	esac;;
esac
`

// TestDialConsole: a machine with RouterOS' console is known by its refusal, and takes commands as they are.
// ssh runs where this program does, from where paths of its configuration may be; but beside a socket whose
// path has no room in its address.
func TestDialConsole(t *testing.T) {
	dir := t.TempDir()
	for name, dir := range map[string]string{"here": dir, "long": dir + "/" + strings.Repeat("x", maxSocket),
		"expanded": dir + "/%h"} {
		t.Run(name, func(t *testing.T) {
			must(t, os.MkdirAll(dir, 0o700))
			dialConsole(t, dir, name == "here")
		})
	}
}

func dialConsole(t *testing.T, dir string, here bool) {
	bin := t.TempDir()
	must(t, os.WriteFile(filepath.Join(bin, "ssh"), []byte(fakeSSH), 0o700))
	resource, err := filepath.Abs(filepath.Join("testdata", "ntc-templates", "system_resource_print_4.raw"))
	must(t, err)
	work := t.TempDir()
	places := filepath.Join(bin, "places")
	t.Chdir(work)
	if !here {
		work = dir
	}

	t.Setenv("PLACES", places)
	t.Setenv("RESOURCE", resource)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	c, err := Dial(t.Context(), Destination{Host: "router"}, Options{Dir: dir, Name: "router"})
	must(t, err)
	if c.System != RouterOS || c.Arch != "arm64" {
		t.Errorf("got %+v, want RouterOS on arm64", c.Facts)
	}

	const line = `:put "it's $x" ; /x {y}`
	out, err := host.Run(t.Context(), c.Commands(), host.Command{Path: line})
	if err != nil || string(out) != line+"\n" {
		t.Errorf("a command arrives as %q, %v, want %q", out, err, line)
	}

	for _, shell := range []host.Command{{Path: "sh", Args: []string{"-c", "id"}},
		{Path: "x", Env: []string{"A=1"}}} {
		if p, err := c.Commands().Start(t.Context(), shell); err == nil {
			b, _ := io.ReadAll(p.Stdout())
			t.Errorf("%v was started: %q", shell, b)
		}
	}

	begun := time.Now()
	if err := c.Close(); err != nil || time.Since(begun) > 3*time.Second {
		t.Errorf("close: %v after %v", err, time.Since(begun))
	}

	b, err := os.ReadFile(places)
	want := strings.Repeat(work+"\n", 4)
	if err != nil || string(b) != want {
		t.Errorf("ssh ran in\n%s%v, want\n%s", b, err, want)
	}
}
