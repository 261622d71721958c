package plan_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/google/go-cmp/cmp"
)

// badFiles lists plans that must be refused, with the exact message and, where it matters, the hint.
var badFiles = []struct{ name, text, want, hint string }{
	// The file as such.
	{"empty", "", "1:1: the plan is empty", "chokepoint plan list names the built-in plans"},
	{"blank", " \n\n", "1:1: the plan is empty", ""},
	{"comment only", "# nothing\n", "1:1: the plan is empty", ""},
	{"null document", "---\n", "1:1: the plan is empty", ""},
	{"latin-1", "name: caf\xe9\n", "1:10: byte 0xe9 is not UTF-8", "save the file as UTF-8"},
	{"utf-16", "\xff\xfen\x00a\x00", "1:1: byte 0xff is not UTF-8", ""},
	{"nul", "name: a\x00\n", "1:8: control character U+0000", ""},
	{"too large", "# " + strings.Repeat("x", 1<<20),
		"1:1: the file has 1048578 bytes, a plan has at most 1048576", ""},
	{"second document", "matrix: {ip: 4}\n---\nmatrix: {ip: 6}\n", "2:1: a second document starts here",
		"a file holds one plan; remove the line --- or split the file"},
	{"broken second document", "matrix: {ip: 4}\n---\n{\n",
		"4:1: not YAML: while parsing a flow node: did not find expected node content", ""},
	{"anchor", "matrix:\n  streams: &s [1]\n", "2:12: an anchor (&s) is not allowed",
		"write the value out where it is needed"},
	{"alias", "name: *s\n", "1:7: an alias (*) is not allowed",
		"write the value out; a text that starts with * needs quotes"},
	{"star without quotes", "name: * 2 * * *\n", "1:8: an alias (*) is not allowed",
		"write the value out; a text that starts with * needs quotes"},
	{"alias of itself", "a: &a [*a]\n", "1:4: an anchor (&a) is not allowed", ""},
	{"merge key", "<<: {name: x}\n", "1:1: a merge key (<<) is not allowed", "write the keys out"},
	{"tag", "name: !!binary aGk=\n", "1:7: a tag (!!binary) is not allowed",
		"remove it; each value is read by its key"},
	{"own tag", "name: !x y\n", "1:7: a tag (!x) is not allowed", ""},
	{"key that is a list", "? [a]\n: 1\n", "1:3: a key must be one word", ""},
	{"deep", "matrix: " + strings.Repeat("[", 20) + strings.Repeat("]", 20),
		"1:18: nested more than 10 levels deep", ""},
	{"very deep", strings.Repeat("[", 100000),
		"1:10001: not YAML: while increasing flow level: exceeded max depth of 10000", ""},
	{"unclosed", "matrix: {ip: [4\n", "2:1: not YAML: while parsing a flow sequence: did not find expected " +
		"',' or ']'", ""},
	{"tab", "matrix:\n\tip: 4\n", "2:1: a tab in front of the first word",
		"YAML wants spaces, not tabs"},
	{"tab after spaces", "matrix:\n  ip: 4\n \tstreams: 4\n", "3:2: a tab in front of the first word", ""},
	{"two colons", "name: a: b\n", "1:8: not YAML: mapping values are not allowed in this context", ""},

	// Shape.
	{"list", "- a\n", "1:1: the plan must be a map of keys, not a list", `write "key: value" lines`},
	{"scalar", "hello\n", "1:1: the plan must be a map of keys, not a single value", ""},
	{"a family", "matrix: {sysctl@router: 1}\n", `1:10: unknown factor "sysctl@router"`,
		"write sysctl:NAME, such as sysctl:net.core.rmem_max"},
	{"unknown key", "matirx: {ip: 4}\n", `1:1: the plan has no key "matirx"`, "did you mean matrix?"},
	{"unrelated key", "zzzzzzzz: 1\n", `1:1: the plan has no key "zzzzzzzz"`,
		"keys: name, description, device, notes, method, matrix, include, exclude, baseline, measure, " +
			"require, conditions, steps, experiment"},
	{"factor at the top", "streams: 4\n", `1:1: the plan has no key "streams"`,
		"streams belongs under matrix"},
	{"baseline", "baseline: none\n", `1:11: baseline must be a map of keys, not a single value`, ""},
	{"baseline in no cell", "matrix: {streams: 4}\nbaseline: {tunnel: wireguard}\n",
		"2:11: no cell has the baseline's levels", "remove it to see the cells with chokepoint run --dry-run"},
	{"level of the baseline", "matrix: {streams: 4}\nbaseline: {tunnel: wiregard}\n",
		`2:20: tunnel: "wiregard" is not one of none, wireguard, wireguard-kernel, wireguard-userspace, ` +
			`openvpn, openvpn-chacha20-poly1305, openvpn-tcp, openvpn-tcp-chacha20-poly1305`,
		"did you mean wireguard?"},
	{"duplicate key", "name: a\nmatrix: {ip: 4}\nname: b\n", `3:1: the plan has the key "name" twice`,
		"keep one of them"},
	{"duplicate factor", "matrix:\n  ip: 4\n  \"ip\": 6\n", `3:3: matrix has the key "ip" twice`, ""},
	{"no value", "name:\nmatrix: {ip: 4}\n", "1:1: name has no value", "give it a value or remove the key"},
	{"null", "matrix: {ip: null}\n", "1:10: ip has no value", ""},
	{"name", "name: a b\nmatrix: {ip: 4}\n", `1:7: "a b" is not a name for a plan`, ""},
	{"name as list", "name: [a]\nmatrix: {ip: 4}\n", "1:7: name must be a single value, not a list", ""},
	{"empty description", "description: \"\"\nmatrix: {ip: 4}\n", "1:14: description is empty", ""},
	{"escape in description", "description: \"a\\e[31m\"\nmatrix: {ip: 4}\n",
		"1:14: description contains a control character", ""},

	// Method.
	{"method", "method: 5s\n", "1:9: method must be a map of keys, not a single value", ""},
	{"method key", "method: {runz: 3}\n", `1:10: method has no key "runz"`, "did you mean runs?"},
	{"duration without unit", "method: {duration: 60}\n",
		`1:20: duration: "60" is not a duration from 100ms to 15m`, "add the unit, such as 60s"},
	{"duration too short", "method: {duration: 1ms}\n",
		`1:20: duration: "1ms" is not a duration from 100ms to 15m`, ""},
	{"negative", "method: {warmup: -1s}\n", `1:18: warmup: "-1s" is not a duration from 0s to 1m`, ""},
	{"runs 0", "method: {runs: 0}\n", `1:16: runs: "0" is not a whole number from 1 to 1000`, ""},
	{"runs octal", "method: {runs: 010}\n", `1:16: runs: "010" is not a whole number from 1 to 1000`, ""},
	{"runs fraction", "method: {runs: 2.5}\n", `1:16: runs: "2.5" is not a whole number from 1 to 1000`, ""},
	{"runs underscore", "method: {runs: 1_0}\n", `1:16: runs: "1_0" is not a whole number from 1 to 1000`,
		""},
	{"runs and adaptive", "method:\n  runs: 3\n  adaptive: {max: 9}\n",
		"2:9: runs and adaptive both set the number of repetitions",
		"keep runs for a fixed number, or adaptive.min and adaptive.max"},
	{"adaptive max", "method: {adaptive: {min: 9, max: 8}}\n",
		"1:34: adaptive.max (8) is less than adaptive.min (9)", ""},
	{"until", "method: {adaptive: {until: 2 %}}\n",
		`1:28: until: "2 %" is not "interval <= X %" with X from 0.1 to 100`, ""},
	{"until 0", "method: {adaptive: {until: interval <= 0 %}}\n",
		`1:28: until: "interval <= 0 %" is not "interval <= X %" with X from 0.1 to 100`, ""},
	{"order", "method: {order: block}\n", `1:17: order: "block" is not one of blocks, listed, alternated`,
		"did you mean blocks?"},
	{"seed", "method: {seed: 0x1}\n",
		`1:16: seed: "0x1" is not a whole number from 0 to 18446744073709551615`, ""},

	// Cells.
	{"no cells", "name: a\n", "1:1: the plan has no cell",
		"add matrix or include, such as matrix: {streams: [1, 4]}"},
	{"empty matrix", "matrix: {}\n", "1:9: matrix names no factor", ""},
	{"unknown factor", "matrix: {steams: 4}\n", `1:10: unknown factor "steams"`, "did you mean streams?"},
	{"unknown place", "matrix: {queue@nowhere: noqueue}\n",
		`1:10: queue@nowhere: no lab has a place "nowhere"`,
		"places here: client, client.lan, router, router.lan, router.wan, server, server.wan"},
	{"place misspelled", "matrix: {queue@router.wam: noqueue, topology: [site-to-site, forward]}\n",
		`1:10: queue@router.wam: no lab has a place "router.wam"`, "did you mean router.wan? places here: " +
			"client, client.lan, router, router.lan, router.wan, server, server.wan, router-a, " +
			"router-a.lan, router-a.wan, router-b, router-b.wan, router-b.lan, server.lan"},
	{"place of another topology", "matrix: {topology: site-to-site}\ninclude: [{queue@router.wan: noqueue, " +
		"topology: site-to-site}]\n",
		`2:12: queue@router.wan: no topology of the plan has a place "router.wan"`,
		"did you mean router-a.wan? places here: client, client.lan, router-a, router-a.lan, router-a.wan, " +
			"router-b, router-b.wan, router-b.lan, server, server.lan"},
	{"factor without place", "matrix: {streams@router: 4}\n", "1:10: streams cannot be set at a place",
		"write streams"},
	{"exclude that matches nothing", "matrix: {ip: [4, 6]}\nexclude:\n  - {ip: 6, streams: 4}\n",
		"3:5: this entry of exclude matches nothing", "remove it to see the cells with chokepoint run --dry-run"},
	{"unknown level", "matrix:\n  tunnel: [none, wiregard]\n",
		`2:18: tunnel: "wiregard" is not one of none, wireguard, wireguard-kernel, wireguard-userspace, openvpn, openvpn-chacha20-poly1305, openvpn-tcp, openvpn-tcp-chacha20-poly1305`,
		"did you mean wireguard?"},
	{"list in one text", "matrix: {streams: \"1, 2\"}\n",
		`1:19: streams: "1, 2" is not a whole number from 1 to 10000`, "write a list: streams: [1, 2]"},
	{"list of what is none", "matrix: {streams: \"1, x\"}\n",
		`1:19: streams: "1, x" is not a whole number from 1 to 10000`, ""},
	{"level as map", "matrix: {ip: {a: 4}}\n", "1:14: ip must be a single value, not a map", ""},
	{"list in list", "matrix: {ip: [[4]]}\n", "1:15: ip must be a single value, not a list", ""},
	{"no level", "matrix: {ip: []}\n", "1:14: ip has no level", ""},
	{"null level", "matrix: {ip: [4, ]}\nmethod: {}\ninclude: [{ip: [~]}]\n", "3:17: entry 1 of ip is empty",
		""},
	{"level twice", "matrix: {rate: [1G, 1000M]}\n", "1:21: rate has the level 1G twice", ""},
	{"octal level", "matrix: {streams: 010}\n", `1:19: streams: "010" is not a whole number from 1 to 10000`,
		""},
	{"mtu too small", "matrix: {mtu: 575}\n", `1:15: mtu: "575" is not a whole number from 576 to 65535`, ""},
	{"mtu too large", "matrix: {mtu: 65536}\n", `1:15: mtu: "65536" is not a whole number from 576 to 65535`,
		""},
	{"error of a knob", "matrix: {broken: 1}\n", "1:18: broken: never right", ""},
	{"both sizes", "matrix:\n  packet_size: 64\n  frame_size: 82\n",
		"3:3: packet_size and frame_size say the same thing",
		"give one of them; frame_size is packet_size + 18 bytes of Ethernet"},
	{"both sizes in include", "include:\n  - {frame_size: 82, packet_size: 64}\n",
		"2:22: frame_size and packet_size say the same thing", ""},
	{"include as map", "include: {ip: 4}\n", "1:10: include must be a list, not a map",
		`start each entry with "- "`},
	{"empty entry", "include:\n  -\n", "2:4: entry 1 of include is empty", ""},
	{"exclude everything", "matrix: {ip: 4}\nexclude: [{ip: 4}]\n", "1:1: no cell is left: all are excluded",
		"remove an entry of exclude"},
	{"nothing can exist", "matrix: {ip: 6, nat: forward}\n", "1:1: no cell is left: all are impossible",
		"the first reason: NAT66 is off: ports are forwarded with IPv4 only"},
	{"too many cells", "matrix:\n" + manyLevels("streams", 200) + manyLevels("mtu", 200),
		"2:3: the plan has more than 10000 cells", ""},
	{"too many trials", "method: {runs: 1000}\nmatrix:\n" + manyLevels("streams", 200),
		"1:1: the plan has 200000 trials, at most 50000 are allowed", ""},

	// The rest.
	{"measure", "measure: {latency_idle: never}\n",
		`1:25: latency_idle: "never" is not one of block, trial, off`, "allowed: block, trial, off"},
	{"yaml 1.1 truth", "measure: {verify: yes}\n", `1:19: verify: "yes" is not one of true, false, all`, ""},
	{"threshold", "require: [fast]\n", `1:11: "fast" is not a threshold`,
		"write, for example, goodput >= 300M where nat=masquerade, streams=1"},
	{"threshold metric", "require: [speed > 3]\n", `1:11: unknown metric "speed"`, ""},
	{"threshold unit", "require: [goodput > 5ms]\n", `1:11: "5ms" is not a value of goodput_bps`,
		"write a bit rate, such as 300M"},
	{"threshold factor", "require: [goodput > 5M where steams=1]\n", `1:11: unknown factor "steams"`,
		"did you mean streams?"},
	{"threshold level", "require: [goodput > 5M where nat=masq]\n",
		`1:11: nat: "masq" is not one of off, masquerade, forward`, ""},
	{"threshold where", "require: [goodput > 5M where nat]\n", `1:11: "nat" is not factor=level`, ""},
	{"threshold without cell", "matrix: {ip: 4}\nrequire:\n  - goodput > 5M where ip=6\n",
		`3:5: no cell matches the threshold "goodput > 5M where ip=6"`,
		"remove it to see the cells with chokepoint run --dry-run"},
	{"validity", "require: {validity: suspect}\n", `1:21: validity: "suspect" cannot be required`,
		"write validity: valid, or as an entry of the list validity = valid where nat=off"},
	{"validity in words", "require: [validity = good]\n", `1:11: validity: "good" cannot be required`, ""},
	{"validity where", "matrix: {ip: 4}\nrequire: [\"validity = valid where ip=6\"]\n",
		`2:11: no cell matches the threshold "validity = valid where ip=6"`, ""},
	{"requirement key", "require: {validty: valid}\n", `1:11: require has no key "validty"`, ""},
	{"conditions", "conditions: [a]\n", "1:13: conditions must be a map of keys, not a list", ""},
	{"watts", "conditions: {watts: a lot}\n", `1:21: condition watts: "a lot" is not a power in watts`,
		"write, for example, watts: 6.1"},
	{"no watts", "conditions: {watts: 0 W}\n", `1:21: condition watts: "0 W" is not a power in watts`, ""},
	{"condition", "conditions: {a: {b: c}}\n", "1:17: condition a must be a single value, not a map", ""},
	{"step", "steps: [{when: always, prompt: x}]\n", `1:16: when: "always" is not one of start, block, end`,
		""},
	{"step without prompt", "steps:\n  - when: start\n", "2:5: the step has no prompt", ""},
	{"step without when", "steps:\n  - prompt: hello\n", "2:5: the step does not say when", ""},
}

func manyLevels(factor string, n int) string {
	var b strings.Builder
	b.WriteString("  " + factor + ": [1000")
	for i := 1; i < n; i++ {
		b.WriteString(", " + itoa(1000-i))
	}

	return b.String() + "]\n"
}

func TestBadFiles(t *testing.T) {
	for _, tc := range badFiles {
		t.Run(tc.name, func(t *testing.T) {
			p, err := plan.Read("p.yaml", []byte(tc.text), words(), nil)
			if p != nil || err == nil {
				t.Fatalf("got %v, %v, want an error", p, err)
			}

			var e *plan.Error
			if !errors.As(err, &e) {
				t.Fatalf("got %T, want a *plan.Error", err)
			}

			got, want := err.Error(), "p.yaml:"+tc.want
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}

			if tc.hint != "" && e.Hint() != tc.hint {
				t.Errorf("hint: got %q, want %q", e.Hint(), tc.hint)
			}
		})
	}
}

// TestAllErrors: every mistake is reported once, as far as it does not follow from others.
func TestAllErrors(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		sets, want []string
	}{
		{"everywhere", `method: {runz: 3, duration: 5, adaptive: {min: x, max: 2}}
matrix: {ip: [4, 5, 7], steams: 4, queue@router-a.wam: noqueue}
include: [{ip: 8}, 3]
measure: {verify: yes}
require: [speed > 3, goodput > fast]
steps: [{when: start}, {when: never, prompt: x}]
frob: 1
`, nil, []string{"1:10: method has", "1:29: duration: ", "1:48: min: ", "2:18: ip: ", "2:21: ip: ",
			"2:25: unknown factor", "2:36: queue@router-a.wam: ", "3:16: ip: ", "3:20: include must",
			"4:19: verify: ", "5:11: unknown metric", "5:22: ", "6:9: the step has", "6:31: when: ",
			"7:1: the plan has"}},
		{"cells beside the rest", `matrix: {ip: 4}
exclude: [{ip: 6}, {streams: 4}]
measure: {verify: yes}
`, nil, []string{"2:11: this entry", "2:20: this entry", "3:19: verify: "}},
		{"use", `matrix: {ip: [4, 6]}
exclude: [{ip: 6}, {streams: 4}]
baseline: {ip: 6}
require: [goodput > 1M where streams=9]
`, nil, []string{"2:20: this entry", "3:11: no cell has the baseline", "4:11: no cell matches"}},
		{"thresholds beside a wrong matrix", `require:
- goodput > 1M where streams=9
- goodput > 1M where direction=down
- goodput > 1M where streams=4, tunnel=wireguard
- speed > 1M where strems=1, ip=5
matrix: {streams: [1, 4], tunnel: [wiregard], ip: [4, x]}
`, nil, []string{"2:3: no cell matches", "3:3: no cell matches", "5:3: unknown metric", "5:3: unknown factor",
			"5:3: ip: ", "6:36: tunnel: ", "6:55: ip: "}},
		{"thresholds that a misspelled key may meet", `matrix: {stream: 9}
includ: [{direction: down}]
require: [goodput > 1M where streams=9, goodput > 1M where direction=down]
`, nil, []string{"1:10: unknown factor", "2:1: the plan has no key"}},
		{"thresholds beside a misspelled key", `matrix: {streams: 4}
descripton: x
require: [goodput > 1M where streams=9]
`, nil, []string{"2:1: the plan has no key", "3:11: no cell matches"}},
		{"a search beside the rest", `method: {search: {max_added_delay: 5ms}}
measure: {latency_loaded: false}
matrix: {ip: 5, protocol: udp}
steps: [{when: never}]
`, nil, []string{"1:18: a search by added delay", "3:14: ip: ", "4:16: when: "}},
		{"sets", "matrix: {ip: 4}\n", []string{"method", "name=a b", "matrix.streams=x"},
			[]string{": there is no path=value", ": streams: ", ": \"a b\" is not a name"}},
		{"form", "name: !!str a\ndescription: &x b\nmatrix: {ip: *x, streams: z}\nnotes: [*x]\n", nil,
			[]string{"1:7: a tag", "2:14: an anchor", "3:14: an alias", "3:27: streams: ", "4:9: an alias"}},
		{"many", "matrix: {ip: [" + strings.Repeat("x,", 100) + "4]}\n", nil,
			append(slices.Repeat([]string{"1:"}, 20), "and 80 more errors")},
	} {
		_, err := plan.Read("p", []byte(tc.text), words(), tc.sets)
		if err == nil {
			t.Fatalf("%s: got no error", tc.name)
		}

		got := strings.Split(err.Error(), "\n")
		for i, want := range tc.want {
			if i >= len(got) || !strings.Contains(got[i], want) {
				t.Errorf("%s: got %q, want %q there", tc.name, got[min(i, len(got)-1)], want)
			}
		}

		if len(got) != len(tc.want) {
			t.Errorf("%s: got %d errors, want %d:\n%s", tc.name, len(got), len(tc.want), err)
		}
	}
}

// The keys of method and measure are named in hints; the lists must be those that are read.
func TestHintsNameEveryKey(t *testing.T) {
	for _, home := range []string{"method", "measure"} {
		_, err := plan.Read("p.yaml", []byte(home+": {qqqqqqqqq: 1}\n"), words(), nil)
		list, ok := strings.CutPrefix(err.(*plan.Error).Hint(), "keys: ")
		if !ok {
			t.Fatalf("%s: got hint %q, want the list of keys", home, err.(*plan.Error).Hint())
		}

		for _, key := range strings.Split(list, ", ") {
			_, err := plan.Read("p.yaml", []byte(key+": 1\n"), words(), nil)
			got, want := err.(*plan.Error).Hint(), key+" belongs under "+home
			if got != want {
				t.Errorf("hint for %s at the top: got %q, want %q", key, got, want)
			}
		}
	}
}

// TestAConditionMayBeAnyText: the one of the link bounds what can arrive where it is a rate, and is a
// condition like others where it is not.
func TestAConditionMayBeAnyText(t *testing.T) {
	for _, text := range []string{"1G", "DSL, about 50 Mbit/s", "0"} {
		p, err := plan.Read("test.yaml", []byte("matrix: {streams: 1}\nconditions: {link: \""+text+"\"}\n"),
			words(), nil)
		if err != nil || p.Design.Conditions[record.LinkCondition] != text {
			t.Fatalf("link %q: got %v, want it kept", text, err)
		}

		notes := p.Notes()
		if (len(notes) > 0) != (text != "1G") {
			t.Errorf("link %q: got notes %q, want one where it is no rate", text, notes)
		}
	}
}

func TestDefaults(t *testing.T) {
	p, err := plan.Read("dir/my plan.yaml", []byte("matrix: {ip: 4}\n"), words(), nil)
	if err != nil {
		t.Fatal(err)
	}

	want := record.Design{
		Procedure: record.Procedure{
			Method: record.Method{
				Duration: 10 * time.Second,
				Warmup:   time.Second,
				Cooldown: 500 * time.Millisecond,
				Idle:     2 * time.Second,
				Runs:     6,
				Order:    "blocks",
			},
			Measure: record.Measure{
				LatencyIdle:   "block",
				LatencyLoaded: true,
				Probe:         "echo",
				ProbeInterval: 10 * time.Millisecond,
				ProbeSpacing:  "isochronous",
				Verify:        true,
				Telemetry:     true,
			},
			Loads: []string{"congestion", "direction", "engine",
				"protocol", "streams"},
		},
		Name:     "plan",
		Source:   "dir/my plan.yaml",
		Text:     "matrix: {ip: 4}\n",
		Factors:  []record.FactorLevels{{Name: "ip", Levels: []string{"4"}}},
		Cells:    []record.Factors{plainCell},
		Hard:     []string{"topology"},
		Baseline: plainCell,
	}
	p.Design.Catalogue = nil
	diff := cmp.Diff(want, p.Design)
	if diff != "" {
		t.Errorf("design (-want +got):\n%s", diff)
	}

	if p.SeedGiven {
		t.Error("the seed was not given")
	}
}

// plainCell returns the cell that has every default.
var plainCell = factors("topology", "forward", "tunnel", "none", "ip", "4", "nat", "off", "offload", "wire",
	"protocol", "tcp", "streams", "1", "direction", "up", "congestion", "cubic", "engine", "native")

func TestRequire(t *testing.T) {
	for _, tc := range []struct {
		text, metric, op string
		value            float64
	}{
		{"goodput >= 300M", "goodput_bps", ">=", 300e6},
		{"goodput_bps>1.5 Gbit/s", "goodput_bps", ">", 1.5e9},
		{"pps >= 250k", "packet_rate_pps", ">=", 250e3},
		{"loss <= 0.1 %", "loss_ratio", "<=", 0.001},
		{"loss_ratio < 0.001", "loss_ratio", "<", 0.001},
		{"retransmits < 10", "retransmits", "<", 10},
		{"rtt_idle_p50 <= 500us", "rtt_idle_p50_ns", "<=", 500e3},
		{"rtt_loaded_p99 <= 5 ms", "rtt_loaded_p99_ns", "<=", 5e6},
		{"host_busiest_core_ratio <= 90%", "host_busiest_core_ratio", "<=", 0.9},
	} {
		p, err := plan.Read("p.yaml", []byte("matrix: {ip: 4}\nrequire:\n  - "+tc.text+"\n"), words(), nil)
		if err != nil {
			t.Errorf("%s: %v", tc.text, err)
			continue
		}

		want := []record.Requirement{{Text: tc.text, Metric: tc.metric, Op: tc.op, Value: tc.value}}
		diff := cmp.Diff(want, p.Design.Requirements)
		if diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.text, diff)
		}
	}
}

// TestRequireValidity: a plan may require valid cells, in each form of YAML that comes to mind, and by --set.
func TestRequireValidity(t *testing.T) {
	want := []record.Requirement{{Text: "validity = valid", Metric: record.Validity, Op: "="}}
	for _, text := range []string{"require: {validity: valid}\n", "require:\n  - validity: valid\n",
		"require: [validity = valid]\n"} {
		p := read(t, "matrix: {ip: 4}\n"+text)
		if diff := cmp.Diff(want, p.Design.Requirements); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}

	p, err := plan.Read("p.yaml", []byte("matrix: {ip: 4}\n"), words(), []string{"require.validity=valid"})
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(want, p.Design.Requirements); diff != "" {
		t.Errorf("--set (-want +got):\n%s", diff)
	}

	p = read(t, "matrix: {ip: [4, 6]}\nrequire: [goodput > 1M, validity = valid where ip=6]\n")
	if got := p.Design.Requirements[1].Where["ip"]; got != "6" {
		t.Errorf("where ip=%s, want 6", got)
	}
}

func TestRequireKnowsMetrics(t *testing.T) {
	measured := words()
	measured.Metrics = []string{"goodput_bps", "rtt_idle_p50_ns", "retransmits"}
	for _, tc := range []struct{ text, metric, err string }{
		{"goodput > 1M", "goodput_bps", ""},
		{"rtt_idle_p50 < 1ms", "rtt_idle_p50_ns", ""},
		{"rtt_idle_p51 < 1ms", "", `p.yaml:2:11: unknown metric "rtt_idle_p51"`},
	} {
		p, err := plan.Read("p.yaml", []byte("matrix: {ip: 4}\nrequire: ["+tc.text+"]\n"), measured, nil)
		if err != nil {
			if err.Error() != tc.err {
				t.Errorf("%s: got %v, want %q", tc.text, err, tc.err)
			}
			continue
		}

		got := p.Design.Requirements[0].Metric
		if got != tc.metric || tc.err != "" {
			t.Errorf("%s: got metric %s, want %s%s", tc.text, got, tc.metric, tc.err)
		}
	}
}

// TestBaseline: a plan names what its cells are compared with; else it is the cell nearest to the factors'
// own baselines.
func TestBaseline(t *testing.T) {
	p := read(t, "matrix: {tunnel: [wireguard, none], nat: [masquerade, off]}\nbaseline: {tunnel: none}\n")
	if diff := cmp.Diff(factors("tunnel", "none"), p.Design.Baseline); diff != "" {
		t.Errorf("named (-want +got):\n%s", diff)
	}

	p = read(t, "matrix: {tunnel: [wireguard, none], nat: [masquerade, off]}\n")
	if diff := cmp.Diff(plainCell, p.Design.Baseline); diff != "" {
		t.Errorf("default (-want +got):\n%s", diff)
	}
}

// TestDeviceAndNotes: a plan says which router is under test, and what is to be kept with each run.
func TestDeviceAndNotes(t *testing.T) {
	p := read(t, "device: \"Box\\t1\"\nnotes: [fan off, \"at\\n21 °C\"]\nmatrix: {streams: [1, 2]}\n")
	got := append([]string{p.Design.Device}, p.Design.Notes...)
	if !slices.Equal(got, []string{"Box 1", "fan off", "at 21 °C"}) {
		t.Errorf("device and notes: got %q", got)
	}

	for text, want := range map[string]string{
		"device: [a]\n":       "device must be a single value",
		"device: \"a\\eb\"\n": "device contains a control character",
		"notes: one\n":        "notes must be a list",
		"notes: [" + strings.Repeat("a, ", 51) + "a]\n": "notes has more than 50 entries",
	} {
		_, err := plan.Read("p.yaml", []byte(text+"matrix: {streams: [1, 2]}\n"), words(), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q in it", text, err, want)
		}
	}
}
