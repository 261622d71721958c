package ssh

import (
	"errors"
	"os"
	"path/filepath"
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

// TestExplain: what ssh says comes with what to do.
func TestExplain(t *testing.T) {
	c := &Connection{Destination: Destination{User: "me", Host: "pc2", Port: 2222},
		options: Options{Config: "/c", Jump: "gate"}}
	for said, hint := range map[string]string{
		"Host key verification failed.": "the key of pc2: connect once by ssh -F /c -J gate -p 2222 me@pc2",
		"No ED25519 host key is known for [192.0.2.1]:2222 and you have requested strict checking. " +
			"Host key verification failed.": "the key of [192.0.2.1]:2222: connect",
		"Add correct host key in /a to get rid of it. Offending ED25519 key in /b/known:3 remove with: x " +
			"Host key for [192.0.2.1]:2222 has changed and you have requested strict checking. " +
			"Host key verification failed.": "ssh-keygen -R '[192.0.2.1]:2222' -f '/b/known'",
		"Host key for it's has changed and you have requested …": `ssh-keygen -R 'it'\''s'`,
		"me@pc2: Permission denied (publickey).":                 "try ssh -F /c -J gate -p 2222 me@pc2:",
		"connect to host pc2 port 22: Connection timed out":      "is the machine up",
	} {
		if err := c.explain(errors.New("ended"), said); !strings.Contains(check.HintOf(err), hint) {
			t.Errorf("%s: the hint is %q, want %q in it", said, check.HintOf(err), hint)
		}
	}
	if err := c.explain(errors.New("ended"), "out of luck"); err.Error() != "ended (ssh: out of luck)" {
		t.Errorf("got %v", err)
	}
}

// TestTrusted: a configuration that others can change may name commands, and is not used.
func TestTrusted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	if err := trusted(file); err == nil {
		t.Error("a file that is not there is trusted")
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := trusted(file); err != nil {
		t.Errorf("one of our own: %v", err)
	}
	if err := os.Chmod(file, 0o622); err != nil {
		t.Fatal(err)
	}
	if err := trusted(file); err == nil || check.HintOf(err) == "" {
		t.Errorf("one that others can change: got %v, want a hint", err)
	}
}

// TestSaid: of a long log the last whole lines are kept, of a long last line its end.
func TestSaid(t *testing.T) {
	c := &Connection{log: filepath.Join(t.TempDir(), "log")}
	long, denied := strings.Repeat("x", 700), "me@pc2: Permission denied (publickey)."
	for log, want := range map[string]string{
		"":                                 "",
		denied + "\n":                      denied,
		long + "\n" + denied + "\n":        denied,
		long + " " + denied + "\n":         strings.Repeat("x", 600-len(" "+denied+"\n")) + " " + denied,
		long + "\nbanner\n" + denied:       "banner " + denied,
		"banner\n" + long + " " + denied:   strings.Repeat("x", 600-len(" "+denied)) + " " + denied,
		strings.Repeat("@", 600) + "\nx\n": "x",
	} {
		if err := os.WriteFile(c.log, []byte(log), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := c.said(); got != want {
			t.Errorf("%.20q … %.20q: got %q, want %q", log, log[max(0, len(log)-20):], got, want)
		}
	}
}
