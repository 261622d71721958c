package bundle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// factors returns those of the cells of document.
func factors() *factor.Catalogue {
	return &factor.Catalogue{Factors: slices.Concat(factor.Base(factor.Options{
		Shapes:  []factor.Shape{{Name: "forward"}, {Name: "direct"}},
		Tunnels: []string{factor.NoTunnel, "wireguard"},
		Engines: []string{"native"},
	}), factor.Further(), []factor.Declaration{
		{Name: "rules", Parse: factor.Whole(0, 1e6)},
		{
			Name:  "sysctl:",
			Parse: factor.Whole(0, 9),
			Param: func(string) (factor.Declaration, bool) {
				return factor.Declaration{Parse: factor.Whole(0, 9)}, true
			},
		},
	})}
}

// document is that of a run of two cells on two machines.
func document() *analysis.Document {
	d := &analysis.Document{
		Format: record.Format,
		Run: analysis.RunHead{
			RunHead: record.RunHead{
				ID:      "20260102-030405-aaaa",
				Started: time.Date(2026, 1, 2, 4, 4, 5, 6, time.FixedZone("home", 3600)),
				Lab:     record.LabSSH,
				Status:  record.RunDone,
				Version: "v1.2.3",
			},
			Procedure: record.Procedure{Method: record.Method{
				Duration: time.Second,
				Runs:     2,
				Order:    "blocks",
			}},
			Plan: "quick",
		},
		Catalogue:   factors(),
		Conditions:  map[string]string{"ambient": "22 °C", "link": "1G"},
		Environment: []record.Environment{{Node: "router", Facts: map[string]string{"kernel": "6.6.1-anna"}}},
		Caveats:     []record.Caveat{{Kind: "few-runs", Text: "2 runs"}},
	}
	for i, tunnel := range []string{"none", "wireguard"} {
		f := record.Factors{"topology": "forward", "tunnel": tunnel, "protocol": "tcp", "streams": "4",
			"nat": "masquerade", "ip": "4", "direction": "up"}
		rate := 9e8 / float64(1+i)
		d.Cells = append(d.Cells, analysis.Cell{
			Cell: metrics.Cell{
				Factors: f,
				Label:   "as the plan says",
				Grade:   []string{evidence.GradeValid, evidence.GradeSuspect}[i],
				Reasons: []evidence.Reason{{
					Kind:  evidence.ReasonThrottled,
					Text:  "hot",
					Facts: []evidence.Evidence{{Node: "router"}},
				}},
				Metrics: map[string]statistics.Value{
					"goodput_bps": {
						Spread: statistics.Spread{
							Low:      rate * .9,
							High:     rate * 1.1,
							N:        2,
							Interval: statistics.IntervalRange,
						},
						Median: rate,
						Values: []float64{rate * .9, rate * 1.1},
					},
					"power_loaded_w": {
						Spread: statistics.Spread{
							Low:      8,
							High:     10,
							N:        2,
							Interval: statistics.IntervalRange,
						},
						Median: 9,
					},
				},
			},
			Runs: 2,
			Diagnosis: &diagnosis.Diagnosis{
				Class:      diagnosis.Rules()[0].Class,
				Text:       "busy",
				Confidence: .9,
				Causes:     []diagnosis.Cause{{Class: diagnosis.Rules()[0].Class, Node: "router"}},
			},
			Consistency: &analysis.Consistency{Word: "Good", Ratio: .01},
		})
		for block := 1; block <= 2; block++ {
			d.Trials = append(d.Trials, analysis.TrialView{
				Row: fmt.Sprintf("b%d-r%02d", block, i+1),
				Assignment: record.Assignment{
					Block:   block,
					Kind:    record.RowLoad,
					Factors: f,
				},
				TrialHead: record.TrialHead{
					ID:      fmt.Sprintf("b%d-r%02d.1", block, i+1),
					Failure: &record.Failure{},
				},
				Grade:   evidence.GradeValid,
				Metrics: map[string]float64{"goodput_bps": rate},
				Series: &analysis.Series{
					T:        []float64{0},
					Quantile: map[string][]float64{"loaded": {1e6, 2e6}},
				},
			})
		}
	}
	return d
}

func made(t *testing.T) (*Bundle, []byte) {
	t.Helper()
	b, err := New("Box", "OpenWrt 24.10.0", "", document())
	if err != nil {
		t.Fatal(err)
	}

	text, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}

	return b, text
}

// TestReadBack: a bundle is the same when it is read, and its bytes are the same each time.
func TestReadBack(t *testing.T) {
	b, text := made(t)
	again, err := Read("b.json", text, b.Document.Catalogue)
	if err != nil {
		t.Fatal(err)
	}

	diff := cmp.Diff(b, again)
	if diff != "" {
		t.Errorf("bundle read back (-made +read):\n%s", diff)
	}

	second, err := again.Encode()
	if err != nil || !bytes.Equal(text, second) || b.ID() != again.ID() {
		t.Errorf("encoded again: %v, other bytes or name", err)
	}

	kernel := b.Document.Environment[0].Facts["kernel"]
	if kernel != "6.6.1" {
		t.Errorf("kernel: got %q", kernel)
	}

	got := b.Document.Run.Started.Format(time.RFC3339Nano)
	if got != "2026-01-02T03:04:05Z" {
		t.Errorf("started: got %s", got)
	}
}

// TestMakersAreNoHosts: a maker whose name looks like a host's is given away, what only looks like it is not.
func TestMakersAreNoHosts(t *testing.T) {
	d := document()
	d.Environment[0].Facts["product"] = "GL.iNet GL-MT6000"
	b, err := New("GL.iNet MT6000, OpenWrt 24.10", "", "", d)
	if err != nil {
		t.Fatal(err)
	}

	got := b.Document.Environment[0].Facts["product"]
	if got != "GL.iNet GL-MT6000" {
		t.Errorf("product: got %q", got)
	}

	if _, err := New("GL.iNet of gl.inet.example", "", "", document()); err == nil {
		t.Error("the name of a host was given away")
	}
}

// TestFiguresStay: the numbers that a cause rests on are given away, without the words of the run, the parts
// of its nodes and what is not known to tell of nobody.
func TestFiguresStay(t *testing.T) {
	d := document()
	d.Cells[0].Diagnosis.Causes[0].Facts = []evidence.Evidence{
		{
			Metric:  "other_cores",
			Node:    "host",
			Element: "annas-player",
			Value:   new(1.25),
			Text:    "1.25 cores' worth of annas-player",
		},
		{Metric: "cpu_busy_ratio", Node: "annasbox", Value: new(.98), Baseline: new(.1)},
		{Metric: "goodput_bps", Value: new(9e8), Text: "of annas line"},
		{Metric: "annas_counter", Value: new(1.)}, {Metric: "drops", Text: "no number"},
	}
	b, err := New("Box", "", "", d)
	if err != nil {
		t.Fatal(err)
	}

	want := []evidence.Evidence{
		{Metric: "other_cores", Node: "host", Value: new(1.25), Text: "other cores 1.25"},
		{
			Metric:   "cpu_busy_ratio",
			Value:    new(.98),
			Baseline: new(.1),
			Text:     "cpu busy 98.0 % against 10.0 %",
		},
		{Metric: "goodput_bps", Value: new(9e8)}}
	diff := cmp.Diff(want, b.Document.Cells[0].Diagnosis.Causes[0].Facts)
	if diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}

	d.Cells[0].Diagnosis.Causes[0].Facts[0].Value = new(1e300)
	if _, err := New("Box", "", "", d); err == nil || !strings.Contains(err.Error(), "beyond all measures") {
		t.Errorf("a number of 10^300: got %v", err)
	}
}

// plant sets every text below a value, but for factors and for what New refuses otherwise, gives each list
// an element and each map of texts a name of its own.
func plant(v reflect.Value, secret string, depth int) (planted int) {
	if depth > 7 {
		return 0
	}

	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return plant(v.Elem(), secret, depth+1)
	case reflect.Slice:
		if v.IsNil() {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}

		for i := range v.Len() {
			planted += plant(v.Index(i), secret, depth+1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			refused := f.Name == "Lab" || f.Name == "Format" || f.Name == "ImportedFrom" ||
				f.Name == "ID" && v.Type().Name() == "RunHead"
			if f.IsExported() && f.Name != "Catalogue" && !refused {
				planted += plant(v.Field(i), secret, depth+1)
			}
		}
	case reflect.Map:
		if v.Type() == reflect.TypeFor[record.Factors]() || v.Type().Key().Kind() != reflect.String {
			return 0
		}

		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}

		one := reflect.New(v.Type().Elem()).Elem()
		planted += 1 + plant(one, secret, depth+1)
		v.SetMapIndex(reflect.ValueOf(secret), one)
		if v.Type().Elem().Kind() == reflect.String && strings.ContainsAny(secret, ".:@/") {
			for _, name := range append(facts[:], conditions[:]...) { // what is listed, with another's text
				v.SetMapIndex(reflect.ValueOf(name), reflect.ValueOf(secret))
			}
		}
	case reflect.String:
		v.SetString(secret)
		planted++
	}
	return planted
}

// TestNothingOfTheAuthor plants each kind of secret and identity into every text of a document, and finds
// none in the bundle.
func TestNothingOfTheAuthor(t *testing.T) {
	for _, secret := range []string{"annasbox", "192.0.2.7", "2001:db8::7", "02:00:5e:10:00:01",
		"anna@gateway.example", "gateway.example.net", "/srv/anna/plans/mine.yaml", `D:\\anna\plans`,
		"cGxhbnRlZCBrZXkgcGxhbnRlZCBrZXkgcGxhbnRlZCE="} {
		d := document()
		n := plant(reflect.ValueOf(d).Elem(), secret, 0)
		if n < 150 {
			t.Fatalf("%d texts planted, want 150 or more", n)
		}

		b, err := New("Box", "", "", d)
		if err != nil {
			t.Errorf("%s: %v", secret, err)
			continue
		}

		text, err := b.Encode()
		if err != nil {
			t.Fatal(err)
		}

		quoted, _ := json.Marshal(secret)
		at := bytes.Index(text, bytes.Trim(quoted, `"`))
		if at >= 0 {
			t.Errorf("%s is in the bundle: %s", secret, text[max(0, at-80):at+40])
		}
	}
}

func says(err error, want string) bool { return err != nil && strings.Contains(err.Error(), want) }

// TestRefused: what cannot be given away, and files that are no bundle. Each says where.
func TestRefused(t *testing.T) {
	for _, tt := range []struct{ device, firmware, note, want string }{
		{"", "", "", "device is missing"},
		{"Box of 192.0.2.7", "", "", `device "Box of 192.0.2.7" holds an address`},
		{"Box", "anna@box", "", "firmware \"anna@box\" holds the name of a user or host"},
		{"Box", "", "see /srv/anna", `note "see /srv/anna" holds a path`},
		{"Box", "", "at gw.example.net", "holds the name of a host or file"},
		{"Box", "", "psk cGxhbnRlZCBrZXkgcGxhbnRlZCBrZXkgcGxhbnRl", "holds a key"},
		{strings.Repeat("b ", 40), "", "", "device is not a line of at most 60 bytes"},
		{"Box\n", "", "", "device is not a line"},
	} {
		if _, err := New(tt.device, tt.firmware, tt.note, document()); !says(err, tt.want) {
			t.Errorf("%q, %q, %q: got %v, want %q", tt.device, tt.firmware, tt.note, err, tt.want)
		}
	}

	empty := document()
	empty.Cells = empty.Cells[:0]
	foreign := document()
	foreign.Run.Lab = record.LabImported
	foreign.Run.ImportedFrom = []string{"iperf3 3.18"}
	if _, err := New("Box", "", "", foreign); !says(err, "was imported from iperf3 3.18") {
		t.Errorf("an imported run: got %v, want it refused", err)
	}

	if _, err := New("Box", "", "", empty); !says(err, "no rate of a router") {
		t.Errorf("empty run: got %v", err)
	}

	level := document()
	level.Cells[0].Factors["tunnel"] = "192.0.2.7"
	if _, err := New("Box", "", "", level); !says(err, "cells[0]: factor tunnel") {
		t.Errorf("level: got %v", err)
	}

	_, good := made(t)
	for _, tt := range []struct{ old, new, want string }{
		{`"device": "Box"`, `"owner": "anna"`, `b.json: line 3: unknown field "owner"`},
		{`"device": "Box"`, `"device": 7`, "b.json: line 3: device: want a text, got a number"},
		{`bundle/1"`, `bundle/2"`, `its format is "chokepoint-bundle/2"`},
		{`"device": "Box",`, `"device": "Box"`, "b.json: line 4: invalid character"},
		{`"median": 450000000`, `"median": 1`, "cells[1]: goodput_bps: median 1 of 2 is not within"},
		{`"low": 405000000`, `"low": -1`, "cells[1]: goodput_bps: -1 to 4.95"},
		{`"goodput_bps": 450000000`, `"goodput_bps": 1e300`, "trials[2]: a value is beyond all measures"},
		{`"wireguard"`, `"none"`, "there twice"},
		{`"topology"`, `"hostname"`, `there is no factor "hostname"`},
		{`"lab": "ssh",` + "\n   ", `"lab": "home",` + "\n   ", "is none of chokepoint"},
		{`"document": {`, `"document": null, "x": {`, `unknown field "x"`},
	} {
		text := bytes.ReplaceAll(good, []byte(tt.old), []byte(tt.new))
		if bytes.Equal(text, good) {
			t.Errorf("%s is not in the bundle", tt.old)
		}

		if _, err := Read("b.json", text, factors()); !says(err, tt.want) {
			t.Errorf("%s: got %v, want %q", tt.new, err, tt.want)
		}
	}

	if _, err := Read("b.json", make([]byte, MaxSize+1), factors()); !says(err, "bytes are more than") {
		t.Errorf("large file: got %v", err)
	}

	if _, err := Read("b.json", append(good, good...), factors()); err == nil {
		t.Error("two bundles in a file were read as one")
	}
}

// TestResultsOfOtherLevels: cells that differ in what has no place of its own in a result state it.
func TestResultsOfOtherLevels(t *testing.T) {
	d := document()
	d.Cells[0].Factors["rules"] = "1000"
	d.Cells[1].Factors["nat"] = "off"
	own := Results(d)
	if own[0].Condition == own[1].Condition || !strings.Contains(own[0].Condition, "1000") {
		t.Errorf("conditions %q and %q, want the rules named", own[0].Condition, own[1].Condition)
	}

	if own[0].Firewall != "NAT" || own[1].Firewall != "" {
		t.Errorf("firewalls %q and %q", own[0].Firewall, own[1].Firewall)
	}
}

// TestNamesAreCheckd: the name of a factor may tell as much as its level, and a level is written as this
// program writes it.
func TestNamesAreCheckd(t *testing.T) {
	for _, tt := range []struct{ name, level, want string }{
		{"sysctl:net.ipv4.conf.enx001122334455.rp_filter", "1", "its name may hold an address"},
		{"sysctl:net.ipv4.conf.office.rp_filter", "1", "the name of a network device"},
		{"sysctl:net/ipv4/neigh/jana.5/gc_thresh", "1", "the name of a network device"},
		{"sysctl:net.ipv6.conf.02:00:5e:10:00:01.mtu", "1", "an address"},
		{"rules", "enx001122334455", "may be an address"},
		{"tunnel", "WireGuard", `factor tunnel: level "WireGuard" is not`},
		{"rules", "many", `factor rules: level "many" is not`},
		{"offload", "wire\x1b[2J", "factor offload: level"},
		{"sysctl:net.ipv4.conf.all.rp_filter", "1", ""},
		{"sysctl:net.ipv4.conf.eth0.rp_filter", "1", ""},
		{"sysctl:net/ipv4/conf/eth0.5/rp_filter", "1", ""},
		{"sysctl:net.ipv4.tcp_rmem", "1", ""},
	} {
		d := document()
		d.Cells[0].Factors[tt.name] = tt.level
		_, err := New("Box", "", "", d)
		if tt.want == "" && err != nil || tt.want != "" && !says(err, tt.want) {
			t.Errorf("%s=%s: got %v, want %q", tt.name, tt.level, err, tt.want)
		}
	}
}

// TestJoin: own results stand beside the published ones, with their conditions, under the name of the
// catalogue.
func TestJoin(t *testing.T) {
	published, err := catalogue.Published()
	if err != nil {
		t.Fatal(err)
	}

	d := document()
	b, err := New("bpi-r4", "OpenWrt", "", d)
	if err != nil {
		t.Fatal(err)
	}

	c := Join(published, []*Bundle{b})
	n := len(c.Devices) - len(published.Devices)
	if n != 0 {
		t.Errorf("%d devices more, want none", n)
	}

	own := c.Filtered(catalogue.Filter{Source: b.ID()})
	if len(own) != 2 || own[0].Device != "BPI-R4" || own[1].Row != 2 || own[0].Firewall != "NAT" ||
		*own[1].GoodputBps != 4.5e8 || Sound(own[1]) || !Sound(own[0]) ||
		own[0].Conditions() != "2026, up, OpenWrt, firewall NAT" {
		t.Errorf("own results: %+v", own)
	}

	powers := c.Powers[len(published.Powers):]
	if len(powers) != 2 || powers[1].Watts() != "8 to 10 W" {
		t.Errorf("powers: %+v", powers)
	}
}

// TestJoinOfALab: what a lab measured in place of a device is listed under its name, and says nothing of it.
func TestJoinOfALab(t *testing.T) {
	d := document()
	d.Run.Lab = record.LabLocal
	d.Environment[0].Facts["cpu_model"] = "some processor"
	b, err := New("Box", "", "", d)
	if err != nil {
		t.Fatal(err)
	}

	c := Join(&catalogue.Catalogue{}, []*Bundle{b})
	if len(c.Results) != 2 || Sound(c.Results[0]) || c.Results[0].Lab != "local" ||
		!strings.Contains(c.Results[0].Condition, "lab local") {
		t.Errorf("results: %+v", c.Results)
	}

	if len(c.Powers) != 0 || c.Devices[0].SoC != "" {
		t.Errorf("powers %+v, devices %+v", c.Powers, c.Devices)
	}
}

func FuzzRead(f *testing.F) {
	b, err := New("Box", "", "", document())
	if err != nil {
		f.Fatal(err)
	}

	text, err := b.Encode()
	if err != nil {
		f.Fatal(err)
	}

	f.Add(text)
	f.Add([]byte(`{"format":"chokepoint-bundle/1","device":"a","document":{"cells":[{}]}}`))
	published, err := catalogue.Published()
	if err != nil {
		f.Fatal(err)
	}

	f.Fuzz(func(t *testing.T, content []byte) {
		b, err := Read("f.json", content, factors())
		if err != nil {
			return
		}

		text, err := b.Encode()
		if err != nil {
			t.Fatal(err)
		}

		again, err := Read("f.json", text, factors())
		if err != nil {
			t.Fatalf("what was read is not read again: %v", err)
		}

		if again.ID() != b.ID() {
			t.Error("read again it has another name")
		}

		Join(published, []*Bundle{b})
	})
}

// TestCaveatsKeepTheirContent: what a run says of itself is given away in the words of this program; a name,
// an address or a path in it is not, whoever wrote it.
func TestCaveatsKeepTheirContent(t *testing.T) {
	for _, tt := range []struct{ kind, text, want string }{
		{"cut", "2 repetitions instead of 6", "2 repetitions instead of 6"},
		{"cut", "windows of 3s instead of 60s", "windows of 3s instead of 60s"},
		{"lab-note", "as an ordinary user, in a user namespace: no softirq placement (RPS, XPS), no real-time " +
			"priority, socket buffers limited by rmem_max and wmem_max, no BPF",
			"as an ordinary user, in a user namespace: no softirq placement (RPS, XPS), no real-time " +
				"priority, socket buffers limited by rmem_max and wmem_max, no BPF"},
		{"lab-note", "real machines, reached over ssh; what is set on them is put back",
			"real machines, reached over ssh; what is set on them is put back"},
		{"few-runs", "fewer than 6 runs: no confidence interval",
			"fewer than 6 runs: no confidence interval"},
		{"emulated", "an emulated router's absolute speed means nothing; only its ratios and counters count",
			"an emulated router's absolute speed means nothing; only its ratios and counters count"},
		{"lab-note", "a guest of annas-laptop, user anna, /srv/annas/disk.img, 10.1.2.3, enx00e04c680001",
			"a guest of … user …"},
		{"cut", "annas kitchen", "the plan was shortened to fit into the time of --for"},
		{"unheard-of", "2 runs", ""},
	} {
		d := document()
		d.Caveats = []record.Caveat{{Kind: tt.kind, Text: tt.text}}
		d.Cells[0].Caveats, d.Trials[0].Caveats = d.Caveats, d.Caveats
		b, err := New("Box", "", "", d)
		if err != nil {
			t.Fatal(err)
		}

		text, err := b.Encode()
		if err != nil {
			t.Fatal(err)
		}

		if b, err = Read("b.json", text, factors()); err != nil {
			t.Fatal(err)
		}

		got := ""
		for i, all := range [][]record.Caveat{b.Document.Caveats, b.Document.Cells[0].Caveats,
			b.Document.Trials[0].Caveats} {
			if len(all) > 0 && (i == 0 || all[0].Text == got) {
				got = all[0].Text
			} else if len(all) != 0 || got != "" {
				t.Errorf("%s: %+v beside %q", tt.kind, all, got)
			}
		}

		if got != tt.want {
			t.Errorf("%s: got  %s\nwant %s", tt.text, got, tt.want)
		}
	}
}

// TestEmulatedStandsBesideEachNumber: results and speeds of an emulated router say so, those of a lab of real
// machines do not.
func TestEmulatedStandsBesideEachNumber(t *testing.T) {
	for _, tt := range []struct{ lab, kind, want string }{{"vm:riscv64", "emulated", "vm:riscv64, emulated"},
		{"vm", "emulated", "vm, emulated"}, {"vm", "shared-cores", "vm"}, {"ssh", "few-runs", ""}} {
		d := document()
		d.Run.Lab = tt.lab
		d.Caveats = []record.Caveat{{Kind: tt.kind, Text: "x"}}
		b, err := New("Box", "", "", d)
		if err != nil {
			t.Fatal(err)
		}

		for _, r := range Results(b.Document) {
			if r.Lab != tt.want || b.InPlace() != tt.want {
				t.Errorf("lab %s, %s: a result says %q, the bundle %q, want %q", tt.lab, tt.kind, r.Lab,
					b.InPlace(), tt.want)
			}
		}
	}
}
