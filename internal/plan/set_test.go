package plan_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/google/go-cmp/cmp"
)

func itoa(n int) string { return strconv.Itoa(n) }

const setPlan = `name: set
method: {runs: 3}
matrix:
  streams: [1, 2]
include:
  - {protocol: udp, packet_size: 64}
require:
  - goodput >= 1M
steps:
`

func TestSet(t *testing.T) {
	p, err := plan.Read("p.yaml", []byte(setPlan), words(), []string{
		"method.duration=5s", "method.runs=2", "matrix.streams=1, 8", "matrix.ip=6",
		"matrix.sysctl:net.ipv4.tcp_rmem@client=4096 131072", "include.0.packet_size=64,512",
		"include.1.direction=down",
		"conditions.ambient.left=22 °C", "conditions.note=a=b", "measure.verify=false", "method.seed=7",
		"require.1=loss <= 1 % where protocol=udp", "exclude.0.packet_size=512", "steps.0.when=end",
		"steps.0.prompt=Off, then Enter",
	})
	if err != nil {
		t.Fatal(err)
	}

	d := p.Design
	if d.Method.Duration != 5*time.Second || d.Method.Runs != 2 || d.Method.Seed != 7 || !p.SeedGiven ||
		d.Measure.Verify {
		t.Errorf("got method %+v, measure %+v", d.Method, d.Measure)
	}

	var got []string
	for _, c := range p.Cells() {
		got = append(got, c["streams"]+" "+c["ip"]+" "+c["packet_size"]+" "+c["direction"]+" "+
			c["sysctl:net.ipv4.tcp_rmem@client"])
	}

	want := []string{"1 6  up 4096 131072", "8 6  up 4096 131072", "1 4 64 up ", "1 4  down "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}

	if diff := cmp.Diff(map[string]string{"ambient.left": "22 °C", "note": "a=b"}, d.Conditions); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}

	if len(d.Requirements) != 2 || d.Requirements[1].Where["protocol"] != "udp" {
		t.Errorf("got require %v", d.Requirements)
	}

	if len(d.Steps) != 1 || d.Steps[0].Prompt != "Off, then Enter" {
		t.Errorf("got steps %v", d.Steps)
	}

	if len(d.Set) != 15 || d.Text != setPlan {
		t.Errorf("the design keeps %d sets and %d bytes of text, want both as given", len(d.Set), len(d.Text))
	}
}

// A place in a list of levels can be set, and a level can hold commas. A name that ends in a number stays a
// name where there is no such list.
func TestSetLevels(t *testing.T) {
	const sysctl = "sysctl:net.ipv4.ip_local_reserved_ports"
	const text = "matrix:\n  streams: [1, 2]\n  packet_size: 64\n  protocol: udp\ninclude:\n  - {streams: " +
		"[4, 5]}\n"
	for _, tc := range []struct {
		name, factor string
		sets, want   []string
	}{
		{"one level of a list", "streams", []string{"matrix.streams.0=8", "exclude.0.protocol=tcp"},
			[]string{"8", "2"}},
		{"one behind it", "streams", []string{"matrix.streams.2=8", "exclude.0.protocol=tcp"},
			[]string{"1", "2", "8"}},
		{"of an entry of include", "streams", []string{"include.0.streams.1=9"}, []string{"1", "2", "4",
			"9"}},
		{"a level with a comma", sysctl, []string{"matrix." + sysctl + `="0,1"`, "exclude.0.protocol=tcp",
			"matrix.streams=1"}, []string{"0,1"}},
		{"two of them", sysctl, []string{"matrix." + sysctl + `="0,1", "2,3"`, "exclude.0.protocol=tcp",
			"matrix.streams=1"}, []string{"0,1", "2,3"}},
		{"in a place", sysctl, []string{"matrix." + sysctl + "=0,1", "matrix." + sysctl + ".1=0,3",
			"exclude.0.protocol=tcp", "matrix.streams=1"},
			[]string{"0", "0,3"}},
	} {
		p, err := plan.Read("p.yaml", []byte(text), words(), tc.sets)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}

		var got []string
		for _, c := range p.Cells() {
			got = append(got, c[tc.factor])
		}

		diff := cmp.Diff(tc.want, got)
		if diff != "" {
			t.Errorf("%s: levels (-want +got):\n%s", tc.name, diff)
		}
	}
}

// A plan may have adaptive and be overridden in part.
func TestSetInsideAdaptive(t *testing.T) {
	p, err := plan.Read("p.yaml", []byte("matrix: {ip: 4}\n"), words(), []string{"method.adaptive.max=12"})
	if err != nil {
		t.Fatal(err)
	}

	a := p.Design.Method.Adaptive
	if a == nil || a.Max != 12 || p.Design.Method.Runs != 12 {
		t.Errorf("got %+v", p.Design.Method)
	}
}

func TestBadSets(t *testing.T) {
	for _, tc := range []struct{ set, want, hint string }{
		{"", "--set : there is no path=value", "write, for example, --set method.duration=5s"},
		{"method", "--set method: there is no path=value", ""},
		{"=5", "--set =5: there is no path=value", ""},
		{"method..runs=1", "--set method..runs: the path has an empty part", ""},
		{"method.runs=0", `--set method.runs: runs: "0" is not a whole number from 1 to 1000`, ""},
		{"method.runs=", "--set method.runs: runs has no value", ""},
		{"method.runz=1", `--set method.runz: method has no key "runz"`, "did you mean runs?"},
		{"methd.runs=1", `--set methd.runs: the plan has no key "methd"`, "did you mean method?"},
		{"method=5s", "--set method: method must be a map of keys, not a single value", ""},
		{"name.x=1", `--set name.x: name is a single value and has no part "x"`, ""},
		{"matrix.streams=1,010", `--set matrix.streams: streams: "010" is not a whole number from 1 to 10000`,
			""},
		{"matrix.streams=1,,2", "--set matrix.streams: entry 2 of streams is empty", ""},
		{"matrix.steams=1", `--set matrix.steams: unknown factor "steams"`, "did you mean streams?"},
		{"matrix.duration=5s", `--set matrix.duration: unknown factor "duration"`,
			"duration belongs under method: method.duration"},
		{"matrix.verify=true", `--set matrix.verify: unknown factor "verify"`,
			"verify belongs under measure: measure.verify"},
		{"matrix.durration=5s", `--set matrix.durration: unknown factor "durration"`,
			"did you mean method.duration?"},
		{"matrix.tunnel=wiregard",
			`--set matrix.tunnel: tunnel: "wiregard" is not one of none, wireguard, wireguard-kernel, wireguard-userspace, openvpn, openvpn-chacha20-poly1305, openvpn-tcp, openvpn-tcp-chacha20-poly1305`,
			"did you mean wireguard?"},
		{"include.5.ip=4", `--set include.5.ip: include is a list of 1: "5" is no place in it`,
			"places count from 0; 1 appends"},
		{"include.x.ip=4", `--set include.x.ip: include is a list of 1: "x" is no place in it`, ""},
		{"matrix.streams.5=4", `--set matrix.streams.5: matrix.streams is a list of 2: "5" is no place in it`,
			"places count from 0; 2 appends"},
		{`matrix.streams="1,4`,
			`--set matrix.streams: streams: "\"1,4" is not a whole number from 1 to 10000`, ""},
		{"require.0=fast", `--set require.0: "fast" is not a threshold`, ""},
		{"name=a\x00", "--set name: control character U+0000", ""},
		{"name=\xff", "--set name: byte 0xff is not UTF-8", ""},
	} {
		p, err := plan.Read("p.yaml", []byte(setPlan[:len(setPlan)-len("steps:\n")]), words(),
			[]string{tc.set})
		if p != nil || err == nil {
			t.Errorf("%q: got %v, %v, want an error", tc.set, p, err)
			continue
		}

		got := err.Error()
		if got != tc.want {
			t.Errorf("%q: got  %s\nwant %s", tc.set, got, tc.want)
		}

		h := err.(*plan.Error).Hint()
		if tc.hint != "" && h != tc.hint {
			t.Errorf("%q: hint: got %q, want %q", tc.set, h, tc.hint)
		}
	}
}

// Thresholds can be set as one, or as a list in brackets.
func TestSetRequire(t *testing.T) {
	for set, want := range map[string][]string{
		"require=goodput >= 100M where nat=off, streams=1": {"goodput >= 100M where nat=off, streams=1"},
		"require=[goodput >= 100M]":                        {"goodput >= 100M"},
		`require=["goodput >= 1M where nat=off, streams=1", loss <= 1 %]`: {
			"goodput >= 1M where nat=off, streams=1", "loss <= 1 %"},
	} {
		p, err := plan.Read("p.yaml", []byte("matrix: {streams: 1}\n"), words(), []string{set})
		if err != nil {
			t.Errorf("%s: %v", set, err)
			continue
		}

		var got []string
		for _, r := range p.Design.Requirements {
			got = append(got, r.Text)
		}

		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", set, diff)
		}
	}
}
