package watch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// What Print writes of this machine is read back as it was sampled.
func TestPrintIsLineDelimitedJSON(t *testing.T) {
	root := tree(t, map[string]string{"proc/stat": "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 " +
		"10\nctxt 77\n"})
	var out bytes.Buffer
	if err := Print(context.Background(), &out, []probe.Probe{named(root, "cpu"), named(root, "pressure")},
		time.Millisecond, 2); err != nil {
		t.Fatal(err)
	}

	var kinds []string
	for _, l := range bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n")) {
		var v struct {
			Format, Probe, Scope, Unavailable string
			Values                            map[string]*float64
		}
		if err := json.Unmarshal(l, &v); err != nil {
			t.Fatalf("line %s: %v", l, err)
		}

		kinds = append(kinds, v.Format+v.Probe+"/"+v.Scope)
		if v.Probe == "pressure" && v.Unavailable == "" {
			t.Errorf("pressure: got no reason in %s", l)
		}

		if v.Probe != "cpu" {
			continue
		}

		if got := v.Values["cpu0/user_ns"]; got == nil || *got != 1e7 {
			t.Errorf("cpu0/user_ns: got %v, want 1e7 in %s", got, l)
		}

		if got, ok := v.Values["procs_running"]; got != nil || !ok {
			t.Errorf("procs_running: got %v, want null", got)
		}
	}

	want := []string{"chokepoint-probe/1/", "pressure/host", "cpu/host", "cpu/host"}
	d := cmp.Diff(kinds, want)
	if d != "" {
		t.Errorf("lines (-got +want):\n%s", d)
	}
}

func TestReadPrintedOfThisMachine(t *testing.T) {
	var b strings.Builder
	list := []probe.Probe{named(probe.Root{}, "cpu"), named(probe.Root{}, "netdev")}
	if err := Print(t.Context(), &b, list, 20*time.Millisecond, 4); err != nil {
		t.Fatal(err)
	}

	got, err := ReadPrinted(strings.NewReader(b.String()), nil)
	if err != nil {
		t.Fatal(err)
	}

	if got.At <= 0 || got.Realtime <= 0 || got.Cut || len(got.Samples) != 2 {
		t.Fatalf("got %+v, want both clocks and two probes", got)
	}

	for i, s := range got.Samples {
		if s.Probe != list[i].Name || s.Scope != list[i].Scope || len(s.Table.T) != 4 ||
			s.Table.T[0] < got.At {
			t.Errorf("got %s of %s with times %v after %d, want four samples of %s", s.Probe, s.Scope,
				s.Table.T, got.At, list[i].Name)
		}
	}

	v := got.Samples[0].Table.Column("cpu0/idle_ns")
	if len(v) != 4 || v[3] < v[0] {
		t.Errorf("cpu0/idle_ns: got %v, want a counter", v)
	}
}

const printedHead = `{"format":"chokepoint-probe/1","at_ns":5,"realtime_ns":1700000000000000000}` + "\n"

func TestReadPrinted(t *testing.T) {
	nan := math.NaN()
	text := printedHead + `{"at_ns":10,"probe":"cpu","scope":"host","values":{"cpu0/idle_ns":1}}
{"at_ns":11,"probe":"wireguard","scope":"node","unavailable":"no such device"}
{"at_ns":12,"probe":"kernellog","scope":"host","values":{"lines":1},"log":[{"at_ns":9,"severity":4,"text":"link down"}]}

{"at_ns":20,"probe":"cpu","scope":"host","values":{"cpu1/idle_ns":7,"cpu0/idle_ns":null}}
{"at_ns":21,"probe":"wireguard","scope":"node","values":{"peers":0}}
{"at_ns":30,"probe":"cpu","scope":"host","val`
	got, err := ReadPrinted(strings.NewReader(text), nil)
	want := &Printed{
		At:       5,
		Realtime: 17e17,
		Cut:      true,
		Values:   5,
		Log:      []record.LogLine{{At: 9, Severity: 4, Text: "link down"}},
		Samples: []record.Samples{
			{
				Probe: "cpu",
				Scope: "host",
				Table: &record.Table{
					Names: []string{"cpu0/idle_ns",
						"cpu1/idle_ns"},
					T: []int64{10, 20},
					V: [][]float64{{1, nan}, {nan, 7}},
				},
			},
			{
				Probe: "wireguard",
				Scope: "node",
				Table: &record.Table{
					Names: []string{"peers"},
					T:     []int64{21},
					V:     [][]float64{{0}},
				},
			},
			{
				Probe: "kernellog",
				Scope: "host",
				Table: &record.Table{
					Names: []string{"lines"},
					T:     []int64{12},
					V:     [][]float64{{1}},
				},
			},
		},
	}
	d := cmp.Diff(got, want, cmpopts.EquateNaNs())
	if d != "" || err != nil {
		t.Errorf("got error %v and (-got +want):\n%s", err, d)
	}
}

// What is not to be kept is counted.
func TestReadPrintedKeepsWhatIsAskedFor(t *testing.T) {
	text := printedHead
	for at := range 10 {
		text += fmt.Sprintf(`{"at_ns":%d,"probe":"cpu","scope":"host","values":{"a":1,"b":2}}`+"\n", at)
		text += fmt.Sprintf(`{"at_ns":%d,"probe":"netdev","scope":"node","values":{"lan/rx_bytes":1}}`+"\n", at)
	}

	got, err := ReadPrinted(strings.NewReader(text),
		func(probe string, at int64) bool { return probe == "cpu" && at%4 == 0 })
	if err != nil || got.Values != 30 || len(got.Samples) != 2 || got.Samples[1].Table != nil ||
		!slices.Equal(got.Samples[0].Table.T, []int64{0, 4, 8}) {
		t.Errorf("got %+v, %v, want three samples of cpu, of 30 values", got, err)
	}
}

// Wherever the text ends, and whatever a paste or a power cut has put behind it, what stands before is read.
func TestReadPrintedTorn(t *testing.T) {
	sample := `{"at_ns":10,"probe":"cpu","scope":"host","values":{"a":1}}` + "\n"
	for n := 1; n < len(sample)-1; n++ {
		for _, end := range []string{"", "\n", "\r\n", "\x00\x00\x00", "\n\n", "\x00\n"} {
			got, err := ReadPrinted(strings.NewReader(printedHead+sample+sample[:n]+end), nil)
			if err != nil || !got.Cut || len(got.Samples) != 1 || len(got.Samples[0].Table.T) != 1 {
				t.Fatalf("cut after %q and %q: got %+v, %v", sample[:n], end, got, err)
			}
		}
	}
}

func TestReadPrintedRefuses(t *testing.T) {
	sample := `{"at_ns":10,"probe":"cpu","scope":"host","values":{"a":1}}` + "\n"
	for name, test := range map[string]struct {
		text string
		line int
	}{
		"nothing":          {"", 1},
		"an empty line":    {"\n\n", 1},
		"something else":   {"PING 1.2.3.4\n", 1},
		"another format":   {`{"format":"chokepoint-probe/9"}` + "\n", 1},
		"a cut first line": {`{"format":"chokepoint-pro`, 1},
		"no first line":    {sample + sample, 1},
		"garbage":          {printedHead + sample + "xx\n" + sample, 3},
		"no probe":         {printedHead + `{"at_ns":1,"scope":"host","values":{}}` + "\n", 2},
		"neither":          {printedHead + `{"at_ns":1,"probe":"cpu","scope":"host"}` + "\n", 2},
		"time that goes back": {printedHead + sample +
			`{"at_ns":9,"probe":"cpu","scope":"host","values":{"a":1}}` + "\n", 3},
		"a line without end": {printedHead + strings.Repeat("x", maxLine+1), 2},
	} {
		got, err := ReadPrinted(strings.NewReader(test.text), nil)
		wrong := (*LineError)(nil)
		if got != nil || !errors.As(err, &wrong) || wrong.Line != test.line {
			t.Errorf("%s: got %+v, %v, want an error of line %d", name, got, err, test.line)
		}
	}
}

func FuzzReadPrinted(f *testing.F) {
	f.Add([]byte(printedHead +
		`{"at_ns":10,"probe":"cpu","scope":"host","values":{"cpu0/idle_ns":1,"x":null},"log":[]}` + "\n"))
	f.Add([]byte(printedHead + `{"at_ns":10,"probe":"cpu","scope":"host","unavailable":"x"}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := ReadPrinted(strings.NewReader(string(b)), nil)
		if (err != nil) != (got == nil) {
			t.Fatalf("got %v with error %v", got, err)
		}

		if err != nil {
			return
		}

		for _, s := range got.Samples {
			if s.Table == nil {
				continue
			}

			if _, err := s.Table.AppendBinary(nil); err != nil || len(s.Table.V) != len(s.Table.Names) {
				t.Errorf("%s: %d columns of %d names, %v", s.Probe, len(s.Table.V), len(s.Table.Names), err)
			}
		}
	})
}
