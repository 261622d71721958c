package analysis

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/validity"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// example is a trial of a rule: a recorded one, and what was changed in it where no lab can plant the class.
type example struct {
	file  string                           // in testdata/rules
	scene func(*record.Run, *record.Trial) // nil = as recorded
}

// ruleTrials are, for each class, one trial in which its rule must fire and one in which it must not.
var ruleTrials = map[string]struct{ fires, silent example }{
	diagnosis.SoftirqOneCore:  {example{file: "one-core"}, example{file: "paced"}},
	diagnosis.SoftirqAllCores: {example{file: "all-cores"}, example{file: "one-core"}},
	diagnosis.VPNProcess:      {example{file: "wireguard-userspace"}, example{file: "one-core"}},
	diagnosis.CryptoWorkers:   {example{file: "wireguard-kernel"}, example{file: "wireguard-userspace"}},
	diagnosis.RuleList:        {example{file: "rules"}, example{file: "rules-paced"}},
	diagnosis.LogFlood:        {example{file: "log-flood"}, example{file: "one-core"}},
	diagnosis.OtherLoad:       {example{file: "cpu-hog"}, example{file: "one-core"}},
	diagnosis.ClockDown:       {example{file: "quota"}, example{file: "one-core"}},
	diagnosis.Thermal:         {example{file: "thermal"}, example{file: "quota"}},
	diagnosis.ConntrackFull:   {example{file: "conntrack"}, example{file: "paced"}},
	diagnosis.ConnectionRate:  {example{file: "flows"}, example{file: "conntrack"}},
	diagnosis.WireguardQueue: {example{file: "wireguard-kernel", scene: plantedQueueDrops},
		example{file: "wireguard-kernel"}},
	diagnosis.OneTunnel: {example{file: "wireguard-kernel", scene: plantedIdleCore},
		example{file: "wireguard-kernel"}},
	diagnosis.BacklogBudget: {example{file: "one-core", scene: plantedBacklogDrops},
		example{file: "one-core"}},
	diagnosis.OffloadLost: {example{file: "one-core", scene: plantedDecay}, example{file: "one-core"}},
	diagnosis.GROPathology: {example{file: "paced", scene: plantedFragmentLists},
		example{file: "one-core"}},
	diagnosis.LinkLayer:      {example{file: "one-core", scene: plantedErrors}, example{file: "one-core"}},
	diagnosis.PCIeMemory:     {example{file: "paced", scene: plantedDiscards}, example{file: "one-core"}},
	diagnosis.TunnelBypassed: {example{file: "bypassed"}, example{file: "wireguard-kernel"}},
	diagnosis.SharedCPU:      {example{file: "local"}, example{file: "paced"}},
	diagnosis.Unstable:       {example{file: "route-flap"}, example{file: "one-core"}},
	diagnosis.Healthy:        {example{file: "paced"}, example{file: "one-core"}},
}

// TestRules: in its trials, each rule fires, and then says where the limit is and stands on facts; and is
// silent. Only what it read may rule it out.
func TestRules(t *testing.T) {
	for class, tt := range ruleTrials {
		t.Run(class, func(t *testing.T) {
			fired := checked(t, tt.fires, class)
			if !(fired.Score > 0) || len(fired.Facts) == 0 || fired.Text == "" {
				t.Errorf("of %s: got score %.2f, %q, %d facts %s, want it to fire", tt.fires.file,
					fired.Score,
					fired.Text, len(fired.Facts), fired.NotExamined)
			}

			for _, f := range fired.Facts {
				if f.Text == "" || f.Metric == "" {
					t.Errorf("a fact without words or metric: %+v", f)
				}
			}

			silent := checked(t, tt.silent, class)
			if silent.Score > 0 {
				t.Errorf("of %s: got score %.2f, %q, want it silent", tt.silent.file, silent.Score,
					silent.Text)
			}
		})
	}
}

// TestRulesRank: of the recorded trials the class is named first.
func TestRulesRank(t *testing.T) {
	for class, tt := range ruleTrials {
		if tt.fires.scene != nil {
			continue
		}

		o := observed(t, tt.fires)
		d := diagnosis.Conclude([][]diagnosis.Candidate{diagnosis.Examine(o)})
		if d.Class != class {
			t.Errorf("%s: got %s (%.2f: %s), want %s", tt.fires.file, d.Class, d.Confidence, d.Text, class)
		}

		of := stored(t, tt.fires).Class
		if of != class {
			t.Errorf("%s is of class %q, want %s", tt.fires.file, of, class)
		}
	}
}

// TestRulesWithoutTelemetry: a rule about the router that has nothing to read says so.
func TestRulesWithoutTelemetry(t *testing.T) {
	o := observed(t, example{
		file: "one-core",
		scene: func(_ *record.Run,
			tr *record.Trial) {
			tr.Nodes = nil
		},
	})
	for _, class := range []string{diagnosis.SoftirqOneCore, diagnosis.SoftirqAllCores, diagnosis.RuleList,
		diagnosis.LogFlood, diagnosis.OtherLoad, diagnosis.ClockDown, diagnosis.Thermal,
		diagnosis.ConntrackFull,
		diagnosis.BacklogBudget, diagnosis.OffloadLost, diagnosis.LinkLayer, diagnosis.PCIeMemory,
		diagnosis.SharedCPU} {
		r, _ := diagnosis.RuleOf(class)
		j := r.Check(o)
		if j.NotExamined == "" {
			t.Errorf("%s: got score %v, want not examined", class, j.Score)
		}
	}
}

func checked(t *testing.T, x example, class string) diagnosis.Candidate {
	t.Helper()
	return ofClass(t, observed(t, x), class)
}

// ofClass returns the verdict of a class on an observation.
func ofClass(t *testing.T, o *diagnosis.Observation, class string) diagnosis.Candidate {
	t.Helper()
	for _, j := range diagnosis.Examine(o) {
		if j.Class == class {
			return j
		}
	}

	t.Fatalf("no rule of class %s", class)
	return diagnosis.Candidate{}
}

// onRecord is a trial with its run.
type onRecord struct {
	Class string       `json:"class"` // that limits it, to which weights are fitted; "" where several may
	Run   record.Run   `json:"run"`
	Trial record.Trial `json:"trial"`
}

func observed(t *testing.T, x example) *diagnosis.Observation {
	t.Helper()
	r := stored(t, x)
	if x.scene != nil {
		x.scene(&r.Run, &r.Trial)
	}

	return Observe(&r.Run, validity.GradeTrial(&r.Run, &r.Trial))
}

func stored(t *testing.T, x example) (r onRecord) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "rules", x.file+".json.gz"))
	if err != nil {
		t.Fatal(err)
	}

	z, err := gzip.NewReader(bytes.NewReader(b))
	if err == nil {
		b, err = io.ReadAll(z)
	}

	if err == nil {
		err = json.Unmarshal(b, &r)
	}

	if err != nil {
		t.Fatal(err)
	}

	return r
}

// samples returns those of a probe.
func samples(tr *record.Trial, node, probe string) *record.Table {
	for i := range tr.Nodes[node].Samples {
		s := &tr.Nodes[node].Samples[i]
		if s.Probe == probe {
			return s.Table
		}
	}
	return nil
}

// column is the series of a name in a probe's samples, made if there is none.
func column(tr *record.Trial, node, probe, name string) ([]int64, []float64) {
	table := samples(tr, node, probe)
	i := slices.Index(table.Names, name)
	if i < 0 {
		i = len(table.Names)
		table.Names, table.V = append(table.Names, name), append(table.V, make([]float64, len(table.T)))
	}

	return table.T, table.V[i]
}

// grow makes a counter grow evenly by so much in the window.
func grow(tr *record.Trial, node, probe, name string, by float64) {
	times, values := column(tr, node, probe, name)
	for i, at := range times {
		values[i] = by * float64(at-times[0]) / float64(tr.Window.End-tr.Window.Start)
	}
}

// idleCore leaves a core of the router nothing to do.
func idleCore(tr *record.Trial, core string) {
	for _, name := range slices.Clone(samples(tr, "router", "cpu").Names) {
		if stem, ok := strings.CutPrefix(name, core+"/"); ok {
			grow(tr, "router", "cpu", name, map[bool]float64{true: 1e9, false: 1e6}[stem == "idle_ns"])
		}
	}
}

func plantedIdleCore(_ *record.Run, tr *record.Trial) { idleCore(tr, "cpu1") }

func plantedQueueDrops(_ *record.Run, tr *record.Trial) {
	for _, name := range slices.Clone(samples(tr, "router", "netdev").Names) {
		if device, ok := strings.CutSuffix(name, "/tx_dropped"); ok && device != "lan" && device != "wan" &&
			device != "lo" {
			grow(tr, "router", "netdev", device+"/tx_packets", 20e3)
			grow(tr, "router", "netdev", name, 2e3)
		}
	}
}

func plantedBacklogDrops(_ *record.Run, tr *record.Trial) {
	idleCore(tr, "cpu0")
	grow(tr, "router", "softnet", "cpu0/dropped", 3e3)
}

func plantedDecay(_ *record.Run, tr *record.Trial) {
	table := &record.Table{
		Names: []string{"flows_tracked", "flows_offloaded"},
		T:     []int64{tr.Window.Start, tr.Window.End},
		V:     [][]float64{{40, 40}, {40, 3}},
	}
	n := tr.Nodes["router"]
	n.Samples = slices.DeleteFunc(n.Samples, func(s record.Samples) bool { return s.Probe == "flows" })
	n.Samples = append(n.Samples, record.Samples{Probe: "flows", Scope: record.ScopeNode, Table: table})
	tr.Nodes["router"] = n
}

// flatOut takes from a load the rate that it asked for.
func flatOut(tr *record.Trial) { tr.Traffic.Load.RateBps = 0 }

// know adds a fact to the router's environment.
func know(run *record.Run, name, value string) {
	run.Environments = append([]record.Environment{{Node: "router", Facts: map[string]string{name: value}}},
		run.Environments...)
}

func plantedFragmentLists(run *record.Run, tr *record.Trial) {
	flatOut(tr)
	know(run, "device:wan:offloads", "rx-gro rx-gro-list")
	for i := range tr.Traffic.Flows {
		tr.Traffic.Flows[i].TCP.Retransmits = new(int64(500))
	}
}

func plantedErrors(_ *record.Run, tr *record.Trial) {
	grow(tr, "router", "netdev", "wan/rx_errors", 90)
}

func plantedDiscards(run *record.Run, tr *record.Trial) {
	flatOut(tr)
	run.Environments = append([]record.Environment{{
		Node: "router",
		Facts: map[string]string{
			"device:lan:driver": "ixgbe", "device:lan:pcie": "2.5 GT/s PCIe x1 of 8.0 GT/s PCIe x8"},
	}},
		run.Environments...)
	grow(tr, "router", "netdev", "lan/rx_fifo_errors", 400)
}

// packTrial names a trial of a store, and the file in testdata/rules that is made of it.
var packTrial = flag.String("pack", "", "`STORE RUN TRIAL NAME`: keep a trial as an example of a rule")

// TestPack makes an example of a stored trial, without what no rule reads.
func TestPack(t *testing.T) {
	words := strings.Fields(*packTrial)
	if len(words) != 4 {
		t.Skip("skip: no trial to pack is named (-pack)")
	}

	st, err := store.OpenReadOnly(t.Context(), words[0])
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	var r onRecord
	if r.Run, err = st.Find(t.Context(), words[1]); err == nil {
		r.Trial, err = st.Trial(t.Context(), r.Run.ID, words[2])
	}

	if err != nil {
		t.Fatal(err)
	}

	r.Run.Command = "chokepoint run"
	r.Run.Attached = ""
	r.Run.BinaryHash = ""
	r.Run.LabNote = ""
	r.Run.Design = record.Design{
		Procedure: record.Procedure{Method: r.Run.Design.Method},
		Name:      r.Run.Design.Name,
	}
	for i := range r.Run.Environments {
		e := &r.Run.Environments[i]
		for name := range e.Facts {
			if !strings.HasPrefix(name, "device:") && name != "cpu_threads" {
				delete(e.Facts, name)
			}
		}

		e.Missing = nil
	}

	for _, n := range r.Trial.Nodes {
		for i := range n.Samples {
			n.Samples[i].Metrics = nil
		}
	}

	if r.Trial.Traffic != nil {
		r.Trial.Traffic.Raw = nil
	}

	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err := json.NewEncoder(z).Encode(r); err != nil {
		t.Fatal(err)
	}

	if err := z.Close(); err != nil {
		t.Fatal(err)
	}

	file := filepath.Join("testdata", "rules", words[3]+".json.gz")
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}

	reasons := observed(t, example{file: words[3]}).Reasons
	if len(reasons) > 0 {
		t.Logf("%s: %d bytes; reasons: %+v", file, b.Len(), kindsOf(reasons))
	}
}

func kindsOf(reasons []evidence.Reason) (kinds []string) {
	for _, r := range reasons {
		kinds = append(kinds, r.Kind)
	}
	return kinds
}
