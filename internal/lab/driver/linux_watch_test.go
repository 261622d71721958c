package driver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// sampling starts the shell's loop on this machine, which keeps 2 to 4 samples and takes so many in silence.
func sampling(t *testing.T, still string) *shellWatch {
	t.Helper()
	w := &shellWatch{sampled: linuxSampling(), watching: watching{host: host.Local()}}
	must(t, w.begin(t.Context(), w.start, "1", "2", still, t.Name()))
	t.Cleanup(func() { _ = w.end(0) })
	return w
}

// running are the processes whose command lines have the folder of the samples, as awk's, or the test's name,
// as those of the session and the loop. One that its parent has not awaited has none.
func (w *shellWatch) running(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	all, err := filepath.Glob("/proc/[0-9]*")
	must(t, err)
	for _, p := range all {
		line, _ := os.ReadFile(filepath.Join(p, "cmdline")) // it may have ended
		words := string(line)
		if strings.Contains(words, w.dir+"/") ||
			strings.Contains(words, "\x00"+t.Name()+"\x00") {
			found[filepath.Base(p)] = words
		}
	}

	return found
}

// goes waits until the loop, its awk and its folder are gone, and all but so many of the processes.
func (w *shellWatch) goes(t *testing.T, within time.Duration, but int) {
	t.Helper()
	if !waitFor(within, func() bool { return missing(w.dir) && len(w.running(t)) <= but }) {
		t.Fatalf("after %v: folder gone %v, processes %q; want neither", within, missing(w.dir), w.running(t))
	}
}

// TestSamplingEndsWithItsController, of which only its end of the session's input tells.
func TestSamplingEndsWithItsController(t *testing.T) {
	t.Parallel()
	w := sampling(t, "100")
	if !waitFor(5*time.Second, func() bool { return len(w.running(t)) >= 3 }) {
		t.Fatalf("got processes %q, want a session, a loop and awk", w.running(t))
	}

	w.input[1].Close()
	w.goes(t, 5*time.Second, 0)
}

// TestSamplingEndsWithAwk: who loses the other half does not go on, nor does it leave anything.
func TestSamplingEndsWithAwk(t *testing.T) {
	t.Parallel()
	w := sampling(t, "100")
	pid, err := strconv.Atoi(w.pid)
	must(t, err)
	if p, err := os.FindProcess(pid); err != nil || p.Kill() != nil {
		t.Fatalf("awk, process %d, cannot be killed: %v", pid, err)
	}

	w.goes(t, 5*time.Second, 1)
}

// programs makes a folder with nothing but links to these programs, each "name" or "name=program", and false
// where one is not here.
func programs(t *testing.T, links ...string) (dir string, all bool) {
	t.Helper()
	dir = t.TempDir()
	for _, link := range links {
		name, program, other := strings.Cut(link, "=")
		if !other {
			program = name
		}

		for _, place := range []string{"/usr/bin", "/bin", "/usr/sbin", "/sbin"} {
			path := filepath.Join(place, program)
			if !missing(path) {
				must(t, os.Symlink(path, filepath.Join(dir, name)))
				break
			}
		}

		if missing(filepath.Join(dir, name)) {
			return dir, false
		}
	}

	return dir, true
}

// TestSamplingByEveryShell that is here, and every awk: a shell that cannot wait by itself hands over to one
// that can, and only where there is none a program is started for each sample.
func TestSamplingByEveryShell(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	cores := get(t, "/proc/net/softnet_stat")
	type started struct {
		*shellWatch
		links []string
		path  string
		from  int64
	}
	var all []started
	for _, links := range [][]string{{"sh=dash", "awk=mawk", "sleep"}, {"sh=dash", "awk=busybox", "busybox"},
		{"sh=dash", "awk=gawk", "bash"}, {"sh=bash", "awk=mawk"}, {"sh=busybox", "awk=busybox"},
		{"sh=busybox", "awk=gawk"}} {
		path, here := programs(t, append(links, "mkdir", "rm", "mv", "cat")...)
		if !here {
			t.Logf("note: not all of %v are here", links)
			continue
		}

		t.Setenv("PATH", path)
		from := host.Monotonic()
		w, err := Linux{}.Watch(ctx, host.Local(), time.Second)
		if err != nil {
			t.Fatalf("%v: %v", links, err)
		}

		all = append(all, started{w.(*shellWatch), links, path, from})
	}

	if len(all) == 0 {
		t.Fatal("there is no shell and awk here")
	}

	time.Sleep(2500 * time.Millisecond)
	for _, w := range all {
		t.Setenv("PATH", w.path)
		data, err := w.Collect(ctx, w.from, host.Monotonic())
		if err != nil {
			t.Fatalf("%v: %v", w.links, err)
		}

		// The first, those after one second and two, and that of now; a slow machine has one more or less.
		n := len(w.samples)
		if n < 3 || n > 6 {
			t.Errorf("%v: %d samples, want one a second", w.links, n)
		}

		for _, s := range data.Samples {
			if s.Table == nil && s.Probe != "conntrack" && s.Probe != wireguardProbe {
				t.Errorf("%v: %s: %s", w.links, s.Probe, s.Unavailable)
			}
		}

		if len(data.Cost) != 1 || data.Cost[0].Reads < 1 {
			t.Errorf("%v: cost %+v, want one", w.links, data.Cost)
		}

		for _, s := range w.samples {
			got := s.files["net/softnet_stat"]
			if strings.Count(got, "\n") != strings.Count(cores, "\n") {
				t.Errorf("%v: %q, want as many lines as %q", w.links, got, cores)
			}
		}

		if err := w.Close(ctx); err != nil {
			t.Errorf("%v: %v", w.links, err)
		}

		w.goes(t, 5*time.Second, 0)
	}
}

// TestSamplingEndsInSilence: it goes on while somebody keeps in touch, and not for much longer; nor does its
// session, once it hears something again.
func TestSamplingEndsInSilence(t *testing.T) {
	apart.Long(t, "takes longer than a package has")
	w := sampling(t, "3")
	for begun := time.Now(); time.Since(begun) < 6*time.Second; time.Sleep(500 * time.Millisecond) {
		must(t, w.Keep(t.Context()))
	}

	if missing(w.dir) {
		t.Fatal("it has ended although somebody kept in touch")
	}

	out, err := shell(t.Context(), w.host, w.fetch, w.dir)
	// With that of now; awk may be one behind.
	n := len(w.parse(out))
	if err != nil || n < 2 || n > 6 {
		t.Errorf("%d samples, %v, want the last 2 to 4, and one", n, err)
	}

	w.goes(t, 15*time.Second, 1)
	if err := w.Keep(t.Context()); err != nil {
		t.Errorf("the session's input: %v", err)
	}

	<-w.ended
	if err := w.Keep(t.Context()); err == nil {
		t.Error("once the session has ended: got no error")
	}
}

// TestNoSampleIsLostBetween the commands that hand samples over: after whichever the loop begins a new file.
func TestNoSampleIsLostBetween(t *testing.T) {
	const loop = `dir=$1; at=$2; n=0; take() { :; }
step() { command "$@"; r=$?; n=$((n+1))
[ $n -ne "$at" ] || command mv -f "$dir/samples" "$dir/older" 2>/dev/null; return $r; }
mv() { step mv "$@"; }; cat() { step cat "$@"; }; rm() { step rm "$@"; }
`
	for at := 1; at <= 6; at++ {
		dir := t.TempDir()
		put(t, filepath.Join(dir, "older"), "first\n")
		put(t, filepath.Join(dir, "samples"), "second\n")
		for _, want := range []string{"first\nsecond\n@\n", "@\n"} {
			got, err := shell(t.Context(), host.Local(), loop+fetchScript, dir, strconv.Itoa(at))
			if err != nil || got != want {
				t.Errorf("after command %d: got %q, %v, want %q", at, got, err, want)
			}
		}

		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("after command %d: %d files left, %v, want none", at, len(left), err)
		}
	}
}

// TestNoSampling says why there is none, and leaves no process.
func TestNoSampling(t *testing.T) {
	noAwk, here := programs(t, "sh", "mkdir", "rm", "sleep")
	if !here {
		t.Fatal("there is no shell here")
	}

	for _, tt := range []struct{ path, script, want string }{
		{os.Getenv("PATH"), `echo "no folder can be written" >&2; exit 69`, "no folder can be written"},
		{noAwk, linuxSampling().start, "there is no awk"},
	} {
		t.Setenv("PATH", tt.path)
		w := &shellWatch{watching: watching{host: host.Local()}}
		err := w.begin(t.Context(), tt.script, "1", "300", "3", t.Name())
		want := "unsupported\nit says \"" + tt.want + "\", want a folder and a process"
		if err == nil ||
			err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}

		w.dir = filepath.Join(t.TempDir(), "none")
		w.goes(t, time.Second, 0)
	}
}

// Heard is a host that keeps all that its commands print.
type Heard struct {
	host.Host
	All *bytes.Buffer
}

func (h Heard) Start(ctx context.Context, c host.Command) (host.Process, error) {
	p, err := h.Host.Start(ctx, c)
	return overheard{p, h.All}, err
}

type overheard struct {
	host.Process
	all *bytes.Buffer
}

func (p overheard) Stdout() io.Reader { return io.TeeReader(p.Process.Stdout(), p.all) }

// TestPeers: what WireGuard's peers have moved is read at both ends of a time, by every shell, and neither a
// key nor an address of theirs leaves the router.
func TestPeers(t *testing.T) {
	r := playBSD(t)
	dump := func(rx int) {
		t.Helper()
		lines := [][]any{{"wg0", "PRIVATE=", "PUBLIC=", 51820, "off"},
			{"wg0", "PEER0=", "SHARED0=", "198.51.100.10:51820", "10.66.0.2/32,10.66.0.3/32",
				time.Now().Unix() - 83, rx, 92, 25},
			{"wg0", "PEER1=", "(none)", "(none)", "(none)", 0, 0, 148, "off"},
			{"x\x1b[31m", "PEER2=", "(none)", "(none)", "(none)", 0, 1, 2, "off"},
			{"wg1", "PRIVATE1=", "PUBLIC1=", 0, "off"},
			{"wg1", "PEER3=", "(none)", "[2001:db8::1]:1", "::/0", time.Now().Unix() + 1e6, "x", 7, "off"}}
		text := ""
		for _, line := range lines {
			text += strings.ReplaceAll(fmt.Sprintln(line...), " ", "\t")
		}

		r.put("wg", text)
	}
	for _, d := range []Sampling{FreeBSD{}, Linux{}, OpenWrt{}} {
		dump(180)
		h := Heard{host.Local(), &bytes.Buffer{}}
		w, err := d.Watch(context.WithoutCancel(t.Context()), h, time.Second)
		must(t, err)
		from := host.Monotonic()
		dump(1180)
		time.Sleep(200 * time.Millisecond) // much longer than what the clocks are related by
		got, err := w.Collect(t.Context(), from, host.Monotonic())
		must(t, errors.Join(err, w.Close(t.Context())))
		i := slices.IndexFunc(got.Samples, func(s record.Samples) bool { return s.Probe == wireguardProbe })
		peers := got.Samples[i].Table
		if peers == nil {
			t.Fatalf("%T: got %+v, want a table", d, got.Samples[i])
		}

		declared(t, got.Samples[i])
		for column, want := range map[string][]float64{"wg0.peer0/rx_bytes": {180, 1180},
			"wg0.peer0/tx_bytes": {92, 92}, "wg0.peer1/rx_bytes": {0, 0}, "wg0.peer1/tx_bytes": {148, 148},
			"wg0.peer1/handshake_age_ns": nil, "wg1.peer0/tx_bytes": {7, 7}, "wg1.peer0/rx_bytes": nil,
			"wg1.peer0/handshake_age_ns": nil} {
			same(t, want, peers.Column(column), "%T: %s", d, column)
		}

		age := peers.Column("wg0.peer0/handshake_age_ns")
		if len(age) != 2 || age[0] < 83e9 || age[1] > 99e9 {
			t.Errorf("%T: handshakes %v ns ago, want 83 s", d, age)
		}

		for _, secret := range []string{"PRIVATE", "SHARED", "PEER", "PUBLIC", "198.51.100.10", "10.66.0.2"} {
			if strings.Contains(h.All.String(), secret) {
				t.Errorf("%T: %s has left the router", d, secret)
			}
		}

		if !strings.Contains(h.All.String(), "wg0 1 - 0 148\n") {
			t.Errorf("%T: the router has told %q", d, h.All)
		}
	}
}
