package labgrid

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func recorded(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var allowUnexported = cmp.AllowUnexported(place{}, reservation{})

func TestParsePlaces(t *testing.T) {
	tags := []string{"cp.client=ssh://root@10.99.0.2", "cp.wan-port=eth0", "device=openwrt-one"}
	const own = "pc3.chokepoint-20261201-025205-ab12/paul"
	want := []place{
		{name: "bare", acquired: own},
		{name: "board-7", tags: tags, reservation: "XXN6XAFL71"},
		{name: "board-8", tags: []string{"device=openwrt-one"}},
	}
	if diff := cmp.Diff(want, parsePlaces(recorded(t, "places.txt")), allowUnexported); diff != "" {
		t.Errorf("places (-want +got):\n%s", diff)
	}

	const power = "bench/power7/NetworkPowerPort/NetworkPowerPort"
	const serial = "bench/power7/NetworkSerialPort/NetworkSerialPort"
	want = []place{{name: "board-7", tags: tags, acquired: own, resources: []string{power, serial}}}
	got := parsePlaces(recorded(t, "show.txt"))
	if diff := cmp.Diff(want, got, allowUnexported); diff != "" {
		t.Errorf("show (-want +got):\n%s", diff)
	}

	if diff := cmp.Diff([]string{"NetworkPowerPort", "NetworkSerialPort"}, got[0].classes()); diff != "" {
		t.Errorf("classes (-want +got):\n%s", diff)
	}
}

// TestParseForeignText: a match that is renamed, an alias, a comment and a tag with a comma are part of a
// place; what labgrid prints before and behind it is not.
func TestParseForeignText(t *testing.T) {
	const out = `Selected role main from configuration file
Place 'a b':
  aliases: x
  comment: acquired: nobody
  tags: note=one, two, lab=x
  matches:
    bench/acquired: y/NetworkPowerPort -> main
  acquired: desk/anna
  acquired resources:
    bench/g/NetworkPowerPort/p -> main
  allowed: pc/paul
Acquired resource 'main' (bench/g/NetworkPowerPort/p):
  {'acquired': 'a b',
   'params': {'extra':
  acquired: somebody/else
`
	want := []place{{name: "a b", tags: []string{"note=one, two", "lab=x"}, acquired: "desk/anna",
		resources: []string{"bench/g/NetworkPowerPort/p"}}}
	if diff := cmp.Diff(want, parsePlaces(out), allowUnexported); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	if got := parsePlaces("labgrid-client: Error: place pattern nowhere matches nothing\n"); got != nil {
		t.Errorf("an error: got %v, want no place", got)
	}
}

func TestParseReservations(t *testing.T) {
	const own = "pc3.chokepoint-20261201-025205-ab12/paul"
	for file, want := range map[string][]reservation{
		"reserve.txt":      {{"XXN6XAFL71", "desk/anna", ""}},
		"reservations.txt": {{"XXN6XAFL71", "desk/anna", "board-7"}},
		"wait.txt":         {{"3J0QGWBNT0", own, ""}, {"3J0QGWBNT0", own, ""}, {"3J0QGWBNT0", own, "board-7"}},
	} {
		if diff := cmp.Diff(want, parseReservations(recorded(t, file)), allowUnexported); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}

func TestParseVersion(t *testing.T) {
	for out, want := range map[string]int{"26.0.1\n": 26, "warning: x\n25.0\n": 25, "24.0.3\n": 24,
		"25.1.dev14+g1234567\n": 25, "": 0, "usage: labgrid-client [-h]\n": 0, "26\n": 0} {
		version, major, ok := parseVersion(out)
		if major != want || ok != (want > 0) || ok && !strings.Contains(out, version) {
			t.Errorf("%q: got %q, %d, %v, want %d", out, version, major, ok, want)
		}
	}
}

// FuzzParse: whatever labgrid-client prints, no reader panics.
func FuzzParse(f *testing.F) {
	for _, file := range []string{"places.txt", "show.txt", "reserve.txt", "reservations.txt", "wait.txt"} {
		b, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			f.Fatal(err)
		}

		f.Add(string(b))
	}
	f.Fuzz(func(t *testing.T, out string) {
		for _, p := range parsePlaces(out) {
			p.classes()
			p.has(p.tags)
		}

		parseReservations(out)
		parseVersion(out)
	})
}
