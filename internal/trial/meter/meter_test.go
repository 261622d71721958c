package meter

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]record.Meter{
		"shelly://192.0.2.5":              {},
		" shelly://[2001:db8::5]:8080/1 ": {At: "shelly://[2001:db8::5]:8080/1"},
		"tasmota://plug.example":          {},
		"command:/usr/bin/watts --plug 3": {},
		"typed:idle=4.2,loaded=6.8 W":     {IdleW: 4.2, LoadedW: 6.8},
		"typed:loaded=6.8":                {LoadedW: 6.8},
	} {
		if want.At == "" {
			want.At = text
		}

		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%q: got %+v, %v, want %+v", text, got, err, want)
		}
	}

	for text, want := range map[string]string{
		"":                              "no meter",
		"192.0.2.5":                     "no meter",
		"http://192.0.2.5":              "no kind of meter",
		"shelly://":                     "no host",
		"shelly://:80":                  "no host",
		"shelly://a/b":                  "no number of a socket",
		"shelly://a/-1":                 "no number of a socket",
		"shelly://a?field=x":            "password_env or password_file",
		"shelly://a?password_file=here": "must begin with /",
		"shelly://admin:s3cret@a":       "does not belong there",
		"shelly://me:s3cret%zz@a":       "cannot be read",
		"shelly://a?password_env=":      "each with a value",
		"mqtt://broker/topic":           "no kind of meter",
		"command:":                      "no program",
		"command:a\x1b[2J":              "no meter",
		"typed:":                        "no power in watts",
		"typed:idle=4,idle=5":           "no power in watts",
		"typed:loaded=NaN":              "no power in watts",
		"typed:loaded=-3":               "no power in watts",
	} {
		_, err := Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) || check.HintOf(err) != Hint {
			t.Errorf("%q: got %v with hint %q, want %s with a hint", text, err, check.HintOf(err), want)
		}

		if err != nil && strings.Contains(strings.ToLower(err.Error()), "s3cret") {
			t.Errorf("%q: got %v, want no password in it", text, err)
		}
	}
}

func TestOpenWithoutPassword(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	for at, want := range map[string]string{
		"shelly://a?password_env=CHOKEPOINT_TEST_NOT_SET": "no variable CHOKEPOINT_TEST_NOT_SET",
		"shelly://a?password_file=/nonexistent":           "no such file",
		"shelly://a?password_file=" + empty:               "no first line",
		"nonsense":                                        "no meter",
	} {
		_, err := Open(record.Meter{At: at}, "router")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", at, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"shelly://192.0.2.5", "command:a b",
		"typed:idle=1"} {
		f.Add(text)
	}

	f.Fuzz(func(t *testing.T, text string) {
		m, err := Parse(text)
		if err == nil && (m.TypedIn() != strings.HasPrefix(m.At, "typed:") ||
			strings.ContainsFunc(m.At, check.Steers)) {
			t.Errorf("%q: got %+v", text, m)
		}
	})
}

func FuzzFieldOf(f *testing.F) {
	f.Add([]byte(gen1Meter), "power")
	f.Add([]byte(gen2Switch), "aenergy.total")
	f.Add([]byte(`{"a":[1,[2]],"b":"6.1 W","c":1e999}`), "a")
	f.Fuzz(func(t *testing.T, data []byte, path string) {
		text, err := fieldOf(data, path, 0)
		if err != nil {
			if strings.ContainsFunc(err.Error(), check.Steers) && !strings.ContainsFunc(path, check.Steers) {
				t.Errorf("error %q, want none that steers a terminal", err)
			}
			return
		}

		if w, err := watts(text); err == nil && !(w >= 0 && w <= maxWatts) || math.IsNaN(w) {
			t.Errorf("%q: got %v W", text, w)
		}
	})
}

// open returns the meter at an address.
func open(t *testing.T, at string) *Meter {
	t.Helper()
	m, err := Open(record.Meter{At: at}, "router")
	if err != nil {
		t.Fatal(err)
	}

	return m
}

// script writes a shell script and returns the meter that runs it.
func script(t *testing.T, text string) *Meter {
	t.Helper()
	file := filepath.Join(t.TempDir(), "watts.sh")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	m := open(t, "command:sh "+file)
	m.silence = 300 * time.Millisecond
	return m
}

func TestCommands(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, why string }{
		{"nothing", "exit 3", "printed no watts: exit status 3"},
		{"only an excuse", "echo 'no such \033[31mplug' >&2", `it says "no such [31mplug"`},
		{"words", "echo lots", `"lots" is no power in watts`},
		{"negative", "echo -5", `"-5" is no power`},
		{"not a number", "echo NaN", `"NaN" is no power`},
		{"endless", "echo Inf", `"Inf" is no power`},
		{"too much", "echo 1e7", `"1e7" is no power`},
		{"silence", "sleep 60", "printed no line for 300ms"},
		{"megabytes in a line", "head -c 4000000 /dev/zero | tr '\\0' 7; sleep 60", "printed no line for 300ms"},
		{"megabytes, and the end", "head -c 4000000 /dev/zero | tr '\\0' 7", "is no power"},
		{"it does not end", "exec >&-; sleep 60", "printed no watts"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := script(t, test.text)
			if !strings.Contains(test.why, "300ms") {
				m.silence = time.Minute
			}

			s := await(t, m, run(t, m), test.why)
			if s.Table != nil || !strings.Contains(s.Unavailable, test.why) {
				t.Errorf("got %+v, want no reading, and %q", s, test.why)
			}
		})
	}

	m := open(t, "command:chokepoint-no-such-program")
	await(t, m, run(t, m), "not installed")
}

// TestCommandDies: what it told stays; what it does not tell any more is missing, with the reason.
func TestCommandDies(t *testing.T) {
	t.Parallel()
	flag := filepath.Join(t.TempDir(), "ran")
	m := script(t, "test -e "+flag+" && { echo gone >&2; exit 1; }; touch "+flag+
		"; for i in 1 2 3 4 5; do echo 5.5 W; sleep 0.05; done")
	s := await(t, m, run(t, m), `it printed no watts; it says "gone"`)
	if s.Table == nil || len(s.Table.T) != 5 || s.Table.V[0][4] != 5.5 {
		t.Errorf("got %+v, want five readings of 5.5 W", s)
	}

	if s.Metrics[0].Doc != "power of router by "+m.meter.At+", as often as it prints, in steps of 0.1 W" {
		t.Errorf("said of it: %q", s.Metrics[0].Doc)
	}
}

// TestSamplesKeepTheOneBefore, which holds at the beginning of a trial, and forget what is earlier.
func TestSamplesKeepTheOneBefore(t *testing.T) {
	m := open(t, "shelly://192.0.2.5")
	for i := range int64(10) {
		m.take(i*1e9, "5", nil)
		m.take(i*1e9+1, "900", nil) // sooner after than any meter measures
	}

	s, failing := m.Samples(4.5e9, 7e9)
	if failing != nil || len(s.Table.T) != 4 || s.Table.T[0] != 4e9 || s.Table.T[3] != 7e9 ||
		s.Table.V[0][3] != 5 {
		t.Errorf("got %+v, %v, want those of 4 to 7 s", s.Table, failing)
	}

	if s, _ = m.Samples(0, 9e9); s.Table.T[0] != 4e9 {
		t.Errorf("got %v, want nothing before 4 s any more", s.Table.T)
	}
}
