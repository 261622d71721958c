package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"strings"
	"testing"
)

func events(t *testing.T, list ...testEvent) io.Reader {
	t.Helper()
	var b strings.Builder
	for _, e := range list {
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	return strings.NewReader(b.String())
}

func TestJudge(t *testing.T) {
	allowed, err := readAllowances(strings.NewReader(
		"# comment\n\ninternal/lab/kernel | TestQdisc/.* | the kernel has no | depends on the kernel's " +
			"build\n"))
	if err != nil {
		t.Fatal(err)
	}
	skip := func(pkg, test, reason string) []testEvent {
		return []testEvent{
			{Action: "pass", Package: pkg, Test: "TestOther"},
			{Action: "output", Package: pkg, Test: test, Output: "    x_test.go:3: " + reason + "\n"},
			{Action: "skip", Package: pkg, Test: test},
			{Action: "pass", Package: pkg},
		}
	}
	tests := []struct {
		name   string
		events []testEvent
		want   string // passed failed skipped
		fault  string
	}{
		{"pass", []testEvent{{Action: "pass", Package: "p", Test: "TestA"}, {Action: "pass", Package: "p"}},
			"1 0 0", ""},
		{"fail", []testEvent{{Action: "fail", Package: "p", Test: "TestA"}, {Action: "fail", Package: "p"}},
			"0 1 0", "p TestA failed"},
		{"does not build", []testEvent{{Action: "pass", Package: "q", Test: "TestB"},
			{Action: "pass", Package: "q"}, {Action: "fail", Package: "p"}}, "1 1 0", "p failed"},
		{"nothing ran", nil, "0 0 0", "no test was run"},
		{"listed skip", skip("m/internal/lab/kernel", "TestQdisc/cake", "skip: the kernel has no cake"),
			"1 0 1", ""},
		{"skip for another reason", skip("m/internal/lab/kernel", "TestQdisc/cake", "skip: no time"), "1 1 0",
			"no time"},
		{"skip of another test", skip("m/internal/lab/kernel", "TestLink", "skip: the kernel has no veth"),
			"1 1 0", "TestLink"},
		{"skip in another package", skip("m/internal/lab", "TestQdisc/cake", "skip: the kernel has no cake"),
			"1 1 0", "m/internal/lab"},
		{"skip without a type", skip("m/internal/lab/kernel", "TestQdisc/cake", "the kernel has no cake"),
			"1 1 0", `("")`},
		{"package without tests", []testEvent{{Action: "pass", Package: "q", Test: "TestB"},
			{Action: "pass", Package: "q"}, {Action: "skip", Package: "p"}}, "1 0 0", ""},
		{"ends before a package has", []testEvent{{Action: "pass", Package: "q", Test: "TestB"},
			{Action: "pass", Package: "q"}, {Action: "start", Package: "p"}},
			"1 1 0", "p did not end"},
		{"ends after a package's word", []testEvent{{Action: "pass", Package: "q", Test: "TestB"},
			{Action: "pass", Package: "q"}, {Action: "output", Package: "p", Output: "x"}},
			"1 1 0", "p did not end"},
		{"ends between two tests", []testEvent{{Action: "pass", Package: "p", Test: "TestA"}}, "1 1 0",
			"p did not end"},
		{"ends within a test", []testEvent{{Action: "start", Package: "p"}, {Action: "run", Package: "p",
			Test: "TestA"}, {Action: "run", Package: "p", Test: "TestA/b"},
			{Action: "pass", Package: "p", Test: "TestA/b"}, {Action: "pass", Package: "p"}}, "1 1 0",
			"p TestA did not end"},
		{"all ends", []testEvent{{Action: "start", Package: "p"}, {Action: "run", Package: "p",
			Test: "TestA"}, {Action: "output", Package: "p", Test: "TestA", Output: "x"},
			{Action: "pass", Package: "p", Test: "TestA"}, {Action: "output", Package: "p", Output: "ok"},
			{Action: "pass", Package: "p"}}, "1 0 0", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, err := judge(events(t, tt.events...), allowed, false, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(o.passed, o.failed, o.skipped); got != tt.want {
				t.Errorf("counts: got %s, want %s", got, tt.want)
			}
			if text := fmt.Sprint(o.faults.err()); tt.fault == "" && len(o.faults) > 0 ||
				!strings.Contains(text, tt.fault) {
				t.Errorf("faults: got %v, want %q in it", text, tt.fault)
			}
		})
	}
}

// TestJudgePassesOnTheLog: what tests log stands at the beginning of a line, as CI looks for notes there.
func TestJudgePassesOnTheLog(t *testing.T) {
	for logs, want := range map[bool]string{true: "note: x\n", false: ""} {
		var talk strings.Builder
		in := events(t, testEvent{Action: "output", Package: "p", Test: "TestA/b", Output: "    note: x\n"})
		if _, err := judge(in, nil, logs, &talk); err != nil || talk.String() != want {
			t.Errorf("got %q and %v, want %q", talk.String(), err, want)
		}
	}
}

func TestReadAllowancesRejects(t *testing.T) {
	for _, line := range []string{"pkg TestA", "pkg | ( | r | w", "| TestA | r | w", "pkg | TestA | | w",
		"pkg | TestA | r |"} {
		if got, err := readAllowances(strings.NewReader(line)); err == nil {
			t.Errorf("allowances of %q: got %v, want an error", line, got)
		}
	}
}

// goodDocument is what a run of quick must come to.
func goodDocument() document {
	doc := document{Format: "chokepoint/1"}
	doc.Run.ID, doc.Run.Plan, doc.Run.Lab, doc.Run.Status = "r1", "quick", "local", "done"
	doc.Run.Seed, doc.Run.Command = "8472", "chokepoint run"
	metric := func(x float64) value {
		return value{Median: 2 * x, Low: x, High: 3 * x, N: 3, Values: []float64{x, 3 * x, 2 * x},
			Interval: "range"}
	}
	for i, w := range quick {
		c := cell{Label: fmt.Sprint("cell ", i), Grade: "valid", Runs: 3, Factors: maps.Clone(w),
			Metrics: map[string]value{
				"rtt_idle_p50_ns": metric(20e3), "rtt_loaded_p99_ns": metric(900e3),
			}}
		maps.Copy(c.Factors, map[string]string{"offload": "wire", "ip": "4", "topology": "forward"})
		c.Ceiling.Kind, c.Ceiling.HeaderEfficiency = "none: virtual link", .95
		if w["protocol"] == "udp" {
			c.Metrics["packet_rate_pps"], c.Metrics["loss_ratio"] = metric(200e3), metric(.01)
		} else {
			c.Metrics["goodput_bps"] = metric(3e8)
		}
		doc.Cells = append(doc.Cells, c)
	}
	return doc
}

func TestCheckQuick(t *testing.T) {
	change := func(name string, f func(v *value)) func(*document) {
		return func(d *document) {
			v := d.Cells[0].Metrics[name]
			f(&v)
			d.Cells[0].Metrics[name] = v
		}
	}
	tests := []struct {
		name  string
		spoil func(d *document)
		want  string
	}{
		{"as it must be", func(*document) {}, ""},
		{"a cell is missing", func(d *document) { d.Cells = d.Cells[1:] }, "cells: got 9, want 10"},
		{"another cell in its place", func(d *document) { d.Cells[4].Factors["tunnel"] = "none" },
			"want exactly one"},
		{"failed cell", func(d *document) { d.Cells[3].Grade = "failed" }, `grade "failed"`},
		{"suspect for no reason", func(d *document) { d.Cells[3].Grade = "suspect" }, "without a reason"},
		{"two runs", func(d *document) { d.Cells[3].Runs = 2 }, "2 runs"},
		{"no loss", func(d *document) { delete(d.Cells[9].Metrics, "loss_ratio") }, "no loss_ratio"},
		{"no loaded latency", func(d *document) { delete(d.Cells[9].Metrics, "rtt_loaded_p99_ns") },
			"no rtt_loaded_p99_ns"},
		{"no idle latency", func(d *document) { delete(d.Cells[2].Metrics, "rtt_idle_p50_ns") },
			"no rtt_idle_p50_ns"},
		{"interval of two", change("goodput_bps", func(v *value) { v.N = 2 }), "n=2"},
		{"another interval", change("goodput_bps", func(v *value) { v.Interval = "order-statistic" }),
			"order-statistic"},
		{"median made up", change("goodput_bps", func(v *value) { v.Median++ }), "does not follow"},
		{"range made up", change("rtt_loaded_p99_ns", func(v *value) { v.High++ }), "does not follow"},
		{"zero latency", change("rtt_idle_p50_ns", func(v *value) {
			*v = value{N: 3, Values: []float64{0, 0,
				0}, Interval: "range"}
		}), "outside of"},
		{"percentile of all probes", change("rtt_loaded_p99_ns", func(v *value) {
			v.Interval,
				v.Values = "pooled", nil
		}), ""},
		{"the same out of order", change("rtt_loaded_p99_ns", func(v *value) {
			v.Interval, v.Low = "pooled",
				v.High
		}), "want it ordered"},
		{"goodput cannot be pooled", change("goodput_bps", func(v *value) { v.Interval = "pooled" }),
			"pooled"},
		{"super packets", func(d *document) { d.Cells[1].Factors["offload"] = "super" }, `offload "super"`},
		{"a ceiling on a virtual link", func(d *document) { d.Cells[1].Ceiling.Kind = "nic 1G" }, "nic 1G"},
		{"no seed", func(d *document) { d.Run.Seed = "" }, `seed ""`},
		{"unfinished", func(d *document) { d.Run.Status = "running" }, `"running"], want`},
		{"another lab", func(d *document) { d.Run.Lab = "vm" }, `"vm" "done"], want`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			doc := goodDocument()
			tt.spoil(&doc)
			f := checkQuick(doc, "local", false)
			if got := fmt.Sprint(f.err()); tt.want == "" && len(f) > 0 || !strings.Contains(got, tt.want) &&
				tt.want != "" {
				t.Errorf("faults: got %v, want %q in it", got, tt.want)
			}
		})
	}
}

// TestCheckQuickOfAFloodedRouter: only where most of the load was lost, and only if that was said to happen,
// may the latency under it be missing.
func TestCheckQuickOfAFloodedRouter(t *testing.T) {
	for _, tt := range []struct {
		flooded bool
		loss    float64
		faults  int
	}{{true, .8, 0}, {true, .4, 1}, {false, .8, 1}} {
		doc := goodDocument()
		m := doc.Cells[9].Metrics
		delete(m, "rtt_loaded_p99_ns")
		m["loss_ratio"] = value{Median: tt.loss, Low: tt.loss, High: tt.loss, N: 3,
			Values: []float64{tt.loss, tt.loss, tt.loss}, Interval: "range"}
		if f := checkQuick(doc, "local", tt.flooded); len(f) != tt.faults {
			t.Errorf("%+v: got %v, want so many faults", tt, f)
		}
	}
}

func TestCheckObserving(t *testing.T) {
	doc := goodDocument()
	doc.Observing.FastRatio, doc.Observing.CoreRatio, doc.Observing.ChargedRatio = .004, .0075, .0079
	doc.Observing.Probes = map[string]float64{"cpu": .001}
	if f := checkObserving(doc); len(f) != 0 {
		t.Errorf("faults: got %v, want none", f)
	}
	for name, spoil := range map[string]func(d *document){
		"fast sources": func(d *document) { d.Observing.FastRatio = .006 },
		"everything":   func(d *document) { d.Observing.ChargedRatio = .0081 },
		"less charged": func(d *document) { d.Observing.ChargedRatio = .007 },
		"no figures":   func(d *document) { d.Observing.Probes = nil },
		"nothing read": func(d *document) { d.Observing.FastRatio = 0 },
	} {
		bad := doc
		spoil(&bad)
		if f := checkObserving(bad); len(f) != 1 {
			t.Errorf("%s: got faults %v, want one", name, f)
		}
	}
}

func TestCheckReport(t *testing.T) {
	doc := goodDocument()
	doc.Cells[0].Reasons = []struct{ Kind, Text string }{{"drift", `rate fell by 5 % & more`}}
	page := "<p>run r1, seed 8472</p><p>rate fell by 5 % &amp; more</p><a href=\"https://example.org\">x</a>"
	for _, c := range doc.Cells {
		page += "<td>" + c.Label + "</td>"
	}
	tests := []struct{ name, page, want string }{
		{"as it must be", page, ""},
		{"a cell is missing", strings.Replace(page, "<td>cell 5</td>", "", 1), `lacks cell "cell 5"`},
		{"a reason is missing", strings.Replace(page, "&amp; more", "", 1), "lacks the reason"},
		{"a script from elsewhere", page + `<script src="https://cdn.example/x.js">`, "from elsewhere"},
		{"a style from elsewhere", page + `<link rel=stylesheet href=//cdn.example/x.css>`, "from elsewhere"},
		{"another seed", strings.Replace(page, "seed 8472", "seed", 1), `lacks "8472"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := checkReport(doc, tt.page)
			if got := fmt.Sprint(f.err()); tt.want == "" && len(f) > 0 || !strings.Contains(got, tt.want) &&
				tt.want != "" {
				t.Errorf("faults: got %v, want %q in it", got, tt.want)
			}
		})
	}
}

func TestShellLines(t *testing.T) {
	text := "# A\n```sh\nchokepoint list   # what there is\necho 'a # b'\n```\n```text\nchokepoint " +
		"destroy\n```\n```\nbare\n```\n"
	got := strings.Join(shellLines(text), "|")
	if want := "chokepoint list|echo 'a # b'"; got != want {
		t.Errorf("lines: got %q, want %q", got, want)
	}
}

func TestSearches(t *testing.T) {
	of := func(values ...float64) document {
		return document{Cells: []cell{{Label: "a cell",
			Metrics: map[string]value{"throughput_ndr_pps": {Median: 100, N: len(values), Values: values}}}}}
	}
	for _, tt := range []struct {
		name string
		doc  document
		most float64
		want string
	}{
		{"close", of(99, 100, 101), .03, ""},
		{"apart", of(97, 100, 101), .03, "lie 4.00 % apart"},
		{"only printed", of(50, 100, 101), 0, ""},
		{"too few", of(100, 100), .03, "2 values where 3 are wanted"},
		{"none", document{Cells: []cell{{Metrics: map[string]value{"goodput_bps": {}}}}}, .03,
			"no cell has throughput_ndr_pps"},
	} {
		got := strings.Join(checkSearches(tt.doc, []string{"throughput_ndr_pps"}, 3, tt.most, io.Discard),
			"\n")
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestStalledMachineFailsAStage: allowed skips of a machine that is too slow to time anything are bounded.
func TestStalledMachineFailsAStage(t *testing.T) {
	allowed := []allowance{{"p", regexp.MustCompile(".*"), "a vCPU was stalled"}}
	for n, want := range map[int]int{maxStalled: 0, maxStalled + 1: 1} {
		list := []testEvent{{Action: "pass", Package: "p", Test: "TestOther"}}
		for i := range n {
			test := fmt.Sprint("Test", i)
			list = append(list, testEvent{Action: "output", Package: "p", Test: test,
				Output: "    x_test.go:3: skip: a vCPU was stalled too often in 6 trials\n"},
				testEvent{Action: "skip", Package: "p", Test: test})
		}
		list = append(list, testEvent{Action: "pass", Package: "p"})
		o, err := judge(events(t, list...), allowed, false, io.Discard)
		if err != nil || o.failed != want {
			t.Errorf("%d skips: got %d failed (%v, %v), want %d", n, o.failed, o.faults.err(), err, want)
		}
	}
}
