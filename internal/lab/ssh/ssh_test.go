package ssh

import (
	"errors"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Destination{
		"ssh://pc2":                   {Host: "pc2"},
		"ssh://root@192.0.2.1":        {User: "root", Host: "192.0.2.1"},
		"ssh://me@pc-2.example:2222/": {User: "me", Host: "pc-2.example", Port: 2222},
		"ssh://[2001:db8::7]":         {Host: "2001:db8::7"},
		"ssh://me@[2001:db8::7]:22":   {User: "me", Host: "2001:db8::7", Port: 22},
	} {
		got, err := Parse(text)
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", text, got, err, want)
		}

		if again, err := Parse(got.String()); err != nil || again != got {
			t.Errorf("%s: its own text %s gives %+v, %v", text, got, again, err)
		}
	}

	for _, text := range []string{"", "pc2", "ssh://", "ssh://-oProxyCommand=x", "ssh://me@-x",
		"ssh://-l@pc2", "ssh://pc2:0", "ssh://pc2:70000", "ssh://pc2:x", "ssh://me:secret@pc2", "ssh://a b", "ssh://pc2/dir",
		"ssh://[2001:db8::7", "ssh://$(id)", "ssh://pc2\n", "ssh://pc2:22:33", "ssh://;id", "ssh://me@"} {
		_, err := Parse(text)
		switch {
		case err == nil:
			t.Errorf("%q is taken", text)
		case strings.Contains(err.Error(), "secret"):
			t.Errorf("%q: the error shows the password: %v", text, err)
		case check.HintOf(err) == "":
			t.Errorf("%q: no hint", text)
		}
	}
}

// unconnected is a connection of which no ssh was started.
func unconnected(t *testing.T, dir string) *Connection {
	t.Helper()
	c := &Connection{
		Destination: Destination{User: "me", Host: "pc2", Port: 2222},
		options:     Options{Dir: dir, Name: "router", Config: "/c d", Jump: "gate"},
	}
	must(t, c.hearAll())
	t.Cleanup(func() {
		must(t, errors.Join(c.log.close(), c.machine.close()))
	})
	return c
}

// wrote has a connection hear its ssh and the machine.
func wrote(t *testing.T, c *Connection, own, machine string) {
	t.Helper()
	_, err1 := c.log.out.WriteString(own)
	_, err2 := c.machine.in.WriteString(machine)
	must(t, errors.Join(err1, err2))
}

// TestExplain: what ssh says comes with what to do, in commands that can be pasted.
func TestExplain(t *testing.T) {
	for said, hint := range map[string]string{
		"Host key verification failed.": "the key of pc2: connect once by ssh -F '/c d' -J gate -p 2222 me@pc2",
		"No ED25519 host key is known for [192.0.2.1]:2222 and you have requested strict checking.\r\n" +
			"Host key verification failed.": "the key of [192.0.2.1]:2222: connect",
		"Add correct host key in /a to get rid of it.\r\nOffending ED25519 key in /b/known:3\r\n" +
			"Host key for [192.0.2.1]:2222 has changed and you have requested strict checking.\r\n" +
			"Host key verification failed.": "ssh-keygen -R '[192.0.2.1]:2222' -f '/b/known'",
		"Host key for it's has changed and you have requested strict checking.": `ssh-keygen -R 'it'\''s'`,
		"me@pc2: Permission denied (publickey).":                                "try ssh -F '/c d' -J gate -p 2222 me@pc2:",
		"ssh: connect to host pc2 port 22: Connection timed out":                "is the machine up",
		"Connection closed by UNKNOWN port 65535":                               "on the way",
	} {
		c := unconnected(t, t.TempDir())
		wrote(t, c, said+"\r\n", "")
		if err := c.explain(errors.New("ended")); !strings.Contains(check.HintOf(err), hint) {
			t.Errorf("%s: the hint is %q, want %q in it", said, check.HintOf(err), hint)
		}
	}

	c := unconnected(t, t.TempDir())
	wrote(t, c, "out of luck\r\n", "")
	if err := c.explain(errors.New("ended")); err.Error() != "ended (ssh: out of luck)" {
		t.Errorf("got %v", err)
	}
}

// TestExplainToldByTheMachine: what a machine writes, on standard error or where ssh repeats it, brings no
// hint of ssh's.
func TestExplainToldByTheMachine(t *testing.T) {
	const trap = "Host key for x has changed and you have requested strict checking.\r\n" +
		"Offending key in /etc/passwd:1\r\nHost key verification failed.\r\n"
	for _, tt := range []struct{ own, machine string }{
		{"", trap},
		{"Received disconnect from 192.0.2.1 port 22:2: bye\n" + trap, ""},
		{"Unable to negotiate with 192.0.2.1 port 22: no matching cipher found. Their offer: a\n" + trap, ""},
		{"the machine says: Host key verification failed.\r\n", "me@pc2: Permission denied (publickey).\n"},
		{strings.Repeat("x", keptHeard) + "\n" + trap, ""},
	} {
		c := unconnected(t, t.TempDir())
		wrote(t, c, tt.own, tt.machine)
		if err := c.explain(errors.New("ended")); check.HintOf(err) != "" {
			t.Errorf("%q and %q: the hint is %q, want none", tt.own, tt.machine, check.HintOf(err))
		}
	}

	c := unconnected(t, t.TempDir())
	wrote(t, c, "me@pc2: Permission denied (none\n"+trap, trap)
	hint := check.HintOf(c.explain(errors.New("ended")))
	if !strings.HasPrefix(hint, "try ssh") {
		t.Errorf("methods that end a line: the hint is %q", hint)
	}
}

// TestSaid: of much the last whole lines are shown, of a long last line its end.
func TestSaid(t *testing.T) {
	long := strings.Repeat("x", 700)
	denied := "me@pc2: Permission denied (publickey)."
	for log, want := range map[string]string{
		"":                                 "",
		denied + "\n":                      denied,
		long + "\n" + denied + "\n":        denied,
		long + " " + denied + "\n":         strings.Repeat("x", 600-len(" "+denied+"\n")) + " " + denied,
		long + "\nbanner\n" + denied:       "banner " + denied,
		"banner\n" + long + " " + denied:   strings.Repeat("x", 600-len(" "+denied)) + " " + denied,
		strings.Repeat("@", 600) + "\nx\n": "x",
	} {
		c := unconnected(t, t.TempDir())
		wrote(t, c, "", log)
		got := c.said()
		if got != want {
			t.Errorf("%.20q … %.20q: got %q, want %q", log, log[max(0, len(log)-20):], got, want)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
