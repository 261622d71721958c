package lab

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// plant writes the journal of an owner that is gone, with right checksums.
func plant(t *testing.T, dir, boot, labs string, entries ...string) (path string) {
	t.Helper()
	host, err := os.Hostname()
	must(t, err)
	if boot == "" {
		b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		must(t, err)
		boot = strings.TrimSpace(string(b))
	}

	text := ""
	for _, l := range append([]string{fmt.Sprintf(`{"head":{"journal":2,"owner":"gone","host":%q,"boot":%q,"labs":%q}}`,
		host, boot, labs)}, entries...) {
		text += fmt.Sprintf("%08x %s\n", crc32.ChecksumIEEE([]byte(l)), l)
	}

	path = filepath.Join(dir, "journal", "gone.jsonl")
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestRestoreTouchesNothingButItsOwn, whatever a journal that looks right names.
func TestRestoreTouchesNothingButItsOwn(t *testing.T) {
	dir := t.TempDir()
	foreign := exec.Command("sleep", "60")
	must(t, foreign.Start())
	t.Cleanup(func() { foreign.Process.Kill(); foreign.Wait() })
	theirs := filepath.Join(dir, "theirs")
	labs := filepath.Join(dir, "labs")
	for _, d := range []string{theirs, filepath.Join(labs, "Not.Ours")} {
		must(t, os.MkdirAll(filepath.Join(d, "deep"), 0o700))
	}

	must(t, os.Symlink(theirs, filepath.Join(labs, "a")))
	path := plant(t, dir, "", "", fmt.Sprintf(`{"entry":{"seq":1,"kind":"lab","lab":"a","pid":%d,"born":%d}}`,
		foreign.Process.Pid, bornAt(foreign.Process.Pid)))
	r, err := Restore(t.Context(), filepath.Dir(path), "", nil, labs)
	if err != nil || len(r.Undone) != 1 {
		t.Errorf("restore: got %+v, %v, want the lab taken down", r, err)
	}

	if err := foreign.Process.Signal(unix.Signal(0)); err != nil || bornAt(foreign.Process.Pid) == 0 {
		t.Errorf("the foreign process: %v, want it alive", err)
	}

	for _, d := range []string{theirs + "/deep", labs + "/Not.Ours/deep"} {
		if _, err := os.Stat(d); err != nil {
			t.Errorf("foreign directory: %v", err)
		}
	}
}

// TestRestoreKeepsWhatItCouldNotUndo, and forgets what ended with an earlier boot.
func TestRestoreKeepsWhatItCouldNotUndo(t *testing.T) {
	other := func(knob, place, before string) string {
		return fmt.Sprintf(`{"entry":{"seq":1,"kind":"setting","lab":"a","node":"host","knob":%q,"place":%s,`+
			`"before":%q}}`, knob, place, before)
	}
	setting := func(place string) string {
		return `{"entry":{"seq":1,"kind":"setting","lab":"a","node":"host","knob":"cpu_quota","place":` + place +
			`,"before":"off"}}`
	}
	tests := []struct {
		name, boot, entry, want string
	}{
		{"a place in no lab", "", setting(`{"node":"host","lab":"/etc"}`), "its place is not in lab a"},
		{"a place that names no lab", "", setting(`{"node":"host"}`), "its place is not in lab a"},
		{"a kernel setting of the machine", "", other("sysctl:", `{"node":"host"}`,
			"net.ipv4.conf.lo.log_martians=1"), "is not set by it"},
		{"a queue of the machine", "", other("queue", `{"node":"host","port":"lo"}`, "noqueue"),
			"is not set by it"},
		{"address translation of the machine", "", other("nat", `{"node":"host"}`, "off"), "is not set by it"},
		{"a place at another node", "", setting(`{"node":"router"}`), "its place is not in lab a"},
		{"a place that says too much", "", setting(`{"node":"host","run":"rm"}`), "unknown field"},
		{"of an earlier boot", "before", setting(`{"node":"host","lab":"/etc"}`), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := plant(t, dir, tt.boot, "", tt.entry)
			r, err := Restore(t.Context(), filepath.Dir(path), "", nil, filepath.Join(dir, "labs"))
			_, gone := os.Stat(path)
			if tt.want == "" && (err != nil || gone == nil || len(r.Undone) != 1 ||
				!strings.HasPrefix(r.Undone[0], "forgot ")) {
				t.Errorf("got %+v, %v, want it forgotten", r, err)
			}

			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || gone != nil) {
				t.Errorf("got %v, journal %v; want %q and the journal kept", err, gone, tt.want)
			}
		})
	}
}

// TestRestoreKeepsPlaceOfChangedMachines: a labgrid place is released after all settings, or not at all. A
// script plays labgrid-client.
func TestRestoreKeepsPlaceOfChangedMachines(t *testing.T) {
	const holder = "pc3.chokepoint-gone/paul"
	const place = `{"entry":{"seq":1,"kind":"place","lab":"gone-place","labgrid":{"name":"board-7"},` +
		`"holder":"` + holder + `"}}`
	const setting = `{"entry":{"seq":2,"kind":"setting","lab":"a","node":%q,"knob":"cpu_quota",` +
		`"place":{"node":"host"},"before":"off"}}`
	client, err := os.ReadFile("labgrid/testdata/labgrid-client")
	must(t, err)
	for _, tt := range []struct{ name, node, left string }{
		{"a setting that cannot be undone", "host", holder},
		{"a setting whose lab is gone", "router", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, os.WriteFile(filepath.Join(dir, "labgrid-client"), client, 0o700))
			must(t, os.WriteFile(filepath.Join(dir, "acquired"), []byte(holder), 0o600))
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			t.Setenv("PLAYED", dir)
			path := plant(t, dir, "", "", place, fmt.Sprintf(setting, tt.node))
			r, err := Restore(t.Context(), filepath.Dir(path), "", nil, filepath.Join(dir, "labs"))
			acquired, _ := os.ReadFile(filepath.Join(dir, "acquired"))
			if string(acquired) != tt.left {
				t.Errorf("got %+v, %v; board-7 is held by %q, want %q", r, err, acquired, tt.left)
			}

			text := ""
			if b, err := os.ReadFile(path); err == nil {
				text = string(b)
			}

			if kept := tt.left != ""; kept != (err != nil) || kept != strings.Contains(text, place) ||
				strings.Contains(text, "undone") {
				t.Errorf("got %v, and journal %s", err, text)
			}

			if tt.left != "" && !strings.Contains(check.HintOf(err), "labgrid-client -p PLACE release") {
				t.Errorf("got %v, hint %q, want how to release it by hand", err, check.HintOf(err))
			}
		})
	}
}

// TestRestoreFindsLabsOfAnotherLogin: a run of a job had its labs elsewhere. Where this user cannot have had
// them nothing is undone, and the journal stays.
func TestRestoreFindsLabsOfAnotherLogin(t *testing.T) {
	dir := t.TempDir()
	entry := `{"entry":{"seq":1,"kind":"lab","lab":"a"}}`
	theirs := filepath.Join(dir, "job", "chokepoint", "labs")
	must(t, os.MkdirAll(filepath.Join(theirs, "a"), 0o700))
	path := plant(t, dir, "", theirs, entry)
	_, err := Restore(t.Context(), filepath.Dir(path), "", nil, dir+"/labs")
	want := "XDG_RUNTIME_DIR=" + dir + "/job"
	if err == nil || !strings.Contains(check.HintOf(err), want) {
		t.Errorf("elsewhere: got %v, hint %q, want a hint with %s", err, check.HintOf(err), want)
	}

	for _, kept := range []string{path, theirs + "/a"} {
		if _, err := os.Stat(kept); err != nil {
			t.Errorf("elsewhere: %v, want it kept", err)
		}
	}

	r, err := Restore(t.Context(), filepath.Dir(path), "", nil, dir+"/labs", theirs)
	if err != nil || len(r.Undone) != 1 {
		t.Errorf("where labs may be: got %+v, %v, want the lab taken down", r, err)
	}

	for _, gone := range []string{path, theirs + "/a"} {
		if _, err := os.Stat(gone); err == nil {
			t.Errorf("%s is still there", gone)
		}
	}
}

// TestRestoreOnAFullDisk: what was undone need not be noted once nothing is left.
func TestRestoreOnAFullDisk(t *testing.T) {
	if !apart.Process(t) {
		return
	}

	dir := t.TempDir()
	path := plant(t, dir, "", "", `{"entry":{"seq":1,"kind":"lab","lab":"a"}}`,
		`{"entry":{"seq":2,"kind":"lab","lab":"b"}}`)
	info, err := os.Stat(path)
	must(t, err)
	var before unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &before))
	full := before
	full.Cur = uint64(info.Size())
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &full))
	r, err := Restore(t.Context(), filepath.Dir(path), "", nil, dir+"/labs")
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &before))
	_, left := os.Stat(path)
	if err != nil || len(r.Undone) != 2 || left == nil {
		t.Errorf("got %+v, %v, journal %v; want both undone and the journal gone", r, err, left)
	}
}

// TestRestoresAndStartsAtOnce: the directory of a lab that starts is neither taken for a dead one's nor
// missed because the empty folder above is removed meanwhile.
func TestRestoresAndStartsAtOnce(t *testing.T) {
	dir := t.TempDir()
	labs := filepath.Join(dir, "run", "labs")
	stop := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}

			if _, err := Restore(t.Context(), dir+"/journal", "", nil, labs); err != nil {
				ended <- err
				return
			}

			os.Remove(labs)
			os.Remove(filepath.Dir(labs))
		}
	}()
	for i := range 400 {
		name := fmt.Sprintf("lab-%d", i)
		held, err := makeDir(labs, filepath.Join(labs, name))
		if err != nil {
			t.Errorf("make the directory of lab %d: %v", i, err)
			break
		}

		j, err := journal.Create(dir+"/journal", name, "")
		if err == nil {
			_, err = j.Add(journal.Entry{Kind: journal.KindLab, Lab: name})
		}

		if err != nil {
			t.Errorf("journal of lab %d: %v", i, err)
			break
		}

		if _, err := os.Stat(dir + "/journal/" + name + ".jsonl"); err != nil {
			t.Errorf("journal of lab %d, which lives: %v", i, err)
		}

		os.RemoveAll(filepath.Join(labs, name))
		held.Close()
		j.Done(1)
		j.Close()
	}

	close(stop)
	if err := <-ended; err != nil {
		t.Errorf("restore: %v", err)
	}
}

// TestRestoreForgetsNoMachine: what could not be put back on a real machine is tried again and again, also
// after where it is was noted as done with. Until it is, the guard that may undo it is left there.
func TestRestoreForgetsNoMachine(t *testing.T) {
	entries := []string{
		`{"entry":{"seq":1,"kind":"machines","lab":"a","machines":{"router":{"at":"ssh://-none"}}}}`,
		`{"entry":{"seq":2,"kind":"guard","lab":"a","node":"router","driver":"linux",` +
			`"guard":"/run/chokepoint-guard-x"}}`,
		`{"entry":{"seq":3,"kind":"setting","lab":"a","node":"router","driver":"linux","knob":"link_mtu",` +
			`"place":{"node":"router","port":"lo"},"before":"1500","after":"1400"}}`,
	}
	none := func(context.Context, string) (string, error) { return "", errors.New("none") }
	for _, more := range [][]string{nil, {`{"undone":1}`}} {
		dir := t.TempDir()
		path := plant(t, dir, "", "", append(slices.Clone(entries), more...)...)
		for range 3 {
			r, err := Restore(t.Context(), filepath.Dir(path), "", none, dir+"/labs")
			if !errors.Is(err, ErrDirty) || len(r.Undone) != 0 ||
				!strings.Contains(err.Error(), `put back link_mtu on router (ssh://-none)`) ||
				strings.Contains(err.Error(), "guard") {
				t.Errorf("%d lines more: got %+v, %v, want that the setting failed alone", len(more), r, err)
			}

			_, gone := os.Stat(path)
			if gone != nil {
				t.Fatalf("%d lines more: %v, want the journal kept", len(more), gone)
			}
		}
	}
}

// playSSH is a program ssh that runs what it is given here, each command in a network namespace of its own.
func playSSH(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	script := "#!/bin/sh\nfor last; do :; done\nexec unshare -n sh -c \"$last\"\n"
	must(t, os.WriteFile(filepath.Join(dir, "ssh"), []byte(script), 0o700))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// TestRestoreOfManyMachines: the client that an agent has set and the router that a driver has are each
// reached as before, in whichever order they were set. The guard of the router is dismissed when all that was
// set there is put back or left to others, not while something has failed. What was put back is told, also of
// a setting that others have changed elsewhere.
func TestRestoreOfManyMachines(t *testing.T) {
	apart.Needs(t, "ip", "tc")
	playSSH(t)
	client := `"kind":"setting","lab":"a","node":"client","knob":"queue",` +
		`"place":{"node":"client","ports":["lo","d0"],"wan":"lo"},"before":"noqueue","after":"pfifo limit 50"`
	router := func(before, after string) string {
		return `"kind":"setting","lab":"a","node":"router","driver":"linux","knob":"sysctl:` + ttl +
			`","place":{"node":"router"},"before":"` + ttl + "=" + before + `","after":"` + ttl + "=" + after +
			`"`
	}
	const fails = `"kind":"setting","lab":"a","node":"router","driver":"linux","knob":"link_mtu",` +
		`"place":{"node":"router","port":"none"},"before":"1500","after":"1400"`
	const told = "put back queue=noqueue on client (local)"
	tests := []struct {
		name          string
		before, after []string // settings, before the guard was started and afterwards
		lan           string   // the queue of the client's second device
		undone, err   string
		dismissed     bool
	}{
		{"the client last", nil, []string{router("64", "33"), client}, "pfifo limit 50", told, "", true},
		{"the router last", nil, []string{client, router("64", "33")}, "pfifo limit 50", told, "", true},
		{"others at the client", nil, []string{router("64", "33"), client}, "pfifo limit 77",
			"put back queue=noqueue of lo on client (local)", "queue of d0 is pfifo limit 77", true},
		{"others at the router", nil, []string{router("33", "44")}, "", "", errOthers.Error(), true},
		{"what fails at the router", nil, []string{router("64", "33"), fails}, "", "already as before: sysctl:" +
			ttl, "put back link_mtu on router", false},
		{"what fails is older than its guard", []string{fails}, nil, "", "", "put back link_mtu on router", false},
	}
	for _, tt := range tests {
		apart.Network(t, func(ctx context.Context) error {
			h := host.Local()
			dir := t.TempDir()
			if _, err := host.Run(ctx, h, host.Command{
				Path: "ip",
				Args: strings.Fields("link add d0 type veth peer name d1"),
			}); err != nil {
				return err
			}

			if err := errors.Join(setQueue(ctx, h, "lo", "pfifo limit 50"),
				setQueue(ctx, h, "d0", tt.lan)); err != nil {
				return err
			}

			guard := filepath.Join(dir, "chokepoint-guard-x")
			if err := os.Mkdir(guard, 0o700); err != nil {
				return err
			}

			entries := append([]string{`"kind":"machines","lab":"a","machines":{"client":{"at":"local"},` +
				`"router":{"at":"ssh://there","driver":"linux"}}`}, tt.before...)
			entries = append(append(entries, `"kind":"guard","lab":"a","node":"router","driver":"linux",`+
				`"guard":"`+guard+`"`), tt.after...)
			for i, e := range entries {
				entries[i] = fmt.Sprintf(`{"entry":{"seq":%d,%s}}`, i+1, e)
			}

			path := plant(t, dir, "", "", entries...)
			none := func(context.Context, string) (string, error) { return "", errors.New("none") }
			r, err := Restore(ctx, filepath.Dir(path), "", none, dir+"/labs")
			if tt.err == "" && err != nil || tt.err != "" && (err == nil ||
				!strings.Contains(withoutHandles(err), tt.err)) {
				t.Errorf("%s: got %v, want %q", tt.name, err, tt.err)
			}

			all := strings.Join(r.Undone, "\n")
			if !strings.Contains(all, tt.undone) {
				t.Errorf("%s: undone %q, want %q", tt.name, r.Undone, tt.undone)
			}

			_, gone := os.Stat(guard)
			if (gone != nil) != tt.dismissed {
				t.Errorf("%s: the guard: %v, want it dismissed %v", tt.name, gone, tt.dismissed)
			}

			return nil
		})
	}
}

const ttl = "net.ipv4.ip_default_ttl"

// TestPutBackByADriver: settings that a driver has made are put back by it, those of families, too, and then
// its guard is dismissed; nothing is while another controller's guard is at work.
func TestPutBackByADriver(t *testing.T) {
	apart.Network(t, func(ctx context.Context) error {
		const name = "net.ipv4.ip_default_ttl"
		h := host.Local()
		guard, err := driver.Linux{}.Guard(ctx, h, "", nil, time.Minute)
		if err != nil {
			return err
		}
		defer os.RemoveAll(guard)
		setting := record.Setting{Knob: "sysctl:" + name, Node: "router", Value: name + "=33"}
		if err := (driver.Linux{}).Apply(ctx, h, setting); err != nil {
			return err
		}

		o := reached(t, &Node{Name: "router", Host: h, Driver: driver.Linux{}})
		e := journal.Entry{
			Kind:   journal.KindSetting,
			Lab:    "a",
			Node:   "router",
			Driver: "linux",
			Knob:   setting.Knob,
			Place:  []byte(`{"node":"router"}`),
			Before: name + "=64",
			After:  setting.Value,
		}
		left := journal.Entry{
			Kind:   journal.KindGuard,
			Lab:    "a",
			Node:   "client",
			Driver: "linux",
			Guard:  guard,
		}
		o.of.Entries = append(o.of.Entries, left) // another node's
		if text, err := o.putBack(ctx, e); text != "" || err == nil ||
			!strings.Contains(err.Error(), guard) || check.HintOf(err) == "" || errors.Is(err, errOthers) {
			t.Errorf("put back beside another controller: got %q, %v, want it refused for %s, with a hint",
				text, err, guard)
		}

		if now, err := (driver.Linux{}).Read(ctx, h, setting); err != nil || now != setting.Value {
			t.Errorf("beside another controller: got %q, %v, want it as it was", now, err)
		}

		left.Node = "router"
		o.of.Entries = append(o.of.Entries, left)
		if text, err := o.putBack(ctx, e); err != nil ||
			!strings.HasPrefix(text, "put back "+setting.Knob+"=64 on ") {
			t.Errorf("put back: got %q, %v", text, err)
		}

		if now, err := (driver.Linux{}).Read(ctx, h, setting); err != nil || now != name+"=64" {
			t.Errorf("afterwards: got %q, %v, want what was before", now, err)
		}

		must(t, o.dismiss(ctx, left))
		if _, err := os.Stat(guard); !os.IsNotExist(err) {
			t.Errorf("the guard: %v, want it gone", err)
		}

		return nil
	})
}

// reached is a lab of real machines of an owner who is gone, whose router is reached already.
func reached(t *testing.T, router *Node) *remotes {
	t.Helper()
	l := newForward(t, record.LabSSH, Parts{})
	l.nodes["router"] = router
	machines := &record.Machines{Router: record.Machine{At: "local"}}
	return &remotes{
		labs: map[string]*Lab{"a": l},
		of: &journal.Stale{Entries: []journal.Entry{
			{Seq: 1, Kind: journal.KindMachines, Lab: "a", Machines: machines}}},
	}
}
