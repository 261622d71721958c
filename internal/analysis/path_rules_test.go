package analysis

import (
	"slices"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// pathTrials returns those of ruleTrials for the rules about the path and the ends.
func pathTrials() map[string]struct{ fires, silent example } {
	recorded := func(file string) example { return example{file: file} }
	planted := func(file string, scene func(*record.Run, *record.Trial)) example {
		return example{file: file, scene: scene}
	}
	return map[string]struct{ fires, silent example }{
		diagnosis.LinkRate:      {recorded("link-rate"), recorded("shaper")},
		diagnosis.Shaper:        {recorded("shaper"), recorded("policer")},
		diagnosis.Policer:       {recorded("policer"), recorded("shaper")},
		diagnosis.ClientCPU:     {planted("one-core", plantedFullThread("client")), recorded("one-core")},
		diagnosis.ServerCPU:     {planted("one-core", plantedFullThread("server")), recorded("one-core")},
		diagnosis.SlowSender:    {recorded("slow-sender"), recorded("slow-reader")},
		diagnosis.SlowReader:    {recorded("slow-reader"), recorded("slow-sender")},
		diagnosis.SendBuffer:    {recorded("send-buffer"), recorded("link-rate")},
		diagnosis.ReceiveWindow: {recorded("receive-window"), recorded("slow-reader")},
		diagnosis.SmallQueue:    {recorded("small-queue"), recorded("shaper")},
		diagnosis.Bufferbloat:   {recorded("bufferbloat"), recorded("link-rate")},
		diagnosis.RandomLoss:    {recorded("random-loss"), recorded("policer")},
		diagnosis.RuleDrop:      {recorded("rule-drop"), recorded("policer")},
		diagnosis.Reordering:    {recorded("reordering"), recorded("policer")},
		diagnosis.Fragmentation: {recorded("fragmentation"), recorded("wireguard-kernel")},
		diagnosis.PMTUBlackHole: {recorded("pmtu-hole"), recorded("fragmentation")},
	}
}

// plantedFullThread lets the load generator's thread at an end run all the time.
func plantedFullThread(node string) func(*record.Run, *record.Trial) {
	return func(_ *record.Run, tr *record.Trial) {
		for end, u := range tr.Traffic.Ends {
			if u.Node == node {
				u.ThreadsNs = []int64{tr.Window.End - tr.Window.Start}
				tr.Traffic.Ends[end] = u
			}
		}
	}
}

// withoutQueue lets nothing wait beside the load.
func withoutQueue(tr *record.Trial) {
	for i := range tr.Loaded.RTT {
		tr.Loaded.RTT[i] = 300_000
	}

	for i := range tr.Traffic.Flows {
		tcp := tr.Traffic.Flows[i].TCP
		if tcp != nil {
			for k := range tcp.Series.Column("rtt_ns") {
				tcp.Series.Column("rtt_ns")[k] = 400_000
			}
		}
	}
}

// plantedLoss loses one packet in a hundred, probes of latency among them, though little is asked for.
func plantedLoss(_ *record.Run, tr *record.Trial) {
	withoutQueue(tr)
	for i := range tr.Loaded.RTT {
		if i%100 == 50 {
			tr.Loaded.RTT[i] = -1
		}
	}

	for i := range tr.Traffic.Flows {
		f := &tr.Traffic.Flows[i]
		if f.TCP != nil {
			f.TCP.Retransmits = new(f.ReceivedBytes / int64(f.TCP.MSS) / 100)
		}

		if f.Packets != nil {
			f.Packets.Lost = f.Packets.Sent / 100
			f.Packets.Received = f.Packets.Sent - f.Packets.Lost
		}
	}
}

// TestPathRules is TestRules of pathTrials, and TestRulesRank of the recorded ones.
func TestPathRules(t *testing.T) {
	for class, tt := range pathTrials() {
		t.Run(class, func(t *testing.T) {
			fired := checked(t, tt.fires, class)
			if !(fired.Score > 0) || len(fired.Facts) == 0 || fired.Text == "" {
				t.Errorf("of %s: got score %.2f, %q, %d facts %s, want it to fire", tt.fires.file,
					fired.Score, fired.Text, len(fired.Facts), fired.NotExamined)
			}

			silent := checked(t, tt.silent, class)
			if silent.Score > 0 {
				t.Errorf("of %s: got score %.2f, %q, want it silent", tt.silent.file, silent.Score,
					silent.Text)
			}

			d := diagnosis.Conclude([][]diagnosis.Candidate{diagnosis.Examine(observed(t, tt.fires))})
			if tt.fires.scene == nil && d.Class != class {
				t.Errorf("got %s (%.2f: %s), want it named first", d.Class, d.Confidence, d.Text)
			}
		})
	}
}

// TestReorderingBySenders: what the senders' kernels saw of it does without the nodes' counters, and is not
// taken for loss.
func TestReorderingBySenders(t *testing.T) {
	overtaken := func(counted bool) func(*record.Run, *record.Trial) {
		return func(run *record.Run, tr *record.Trial) {
			plantedLoss(run, tr)
			flatOut(tr)
			for i := range tr.Traffic.Flows {
				f := &tr.Traffic.Flows[i]
				if f.TCP != nil && counted {
					f.TCP.ReordSeen = f.ReceivedBytes / int64(f.TCP.MSS) / 5
					f.TCP.DsackDups = *f.TCP.Retransmits
				}
			}

			for name, n := range tr.Nodes {
				n.Samples = slices.DeleteFunc(n.Samples, func(s record.Samples) bool {
					return s.Probe == "snmp"
				})
				tr.Nodes[name] = n
			}
		}
	}
	x := example{"paced", overtaken(true)}
	if j := checked(t, x, diagnosis.Reordering); !(j.Score > 0) {
		t.Errorf("got score %.2f %s, want reordering to fire", j.Score, j.NotExamined)
	}

	with := checked(t, x, diagnosis.RandomLoss)
	without := checked(t, example{"paced", overtaken(false)},
		diagnosis.RandomLoss)
	if !(without.Score > 0) || with.Score > without.Score-3 {
		t.Errorf("random loss: got score %.2f, %.2f without reordering, want it far lower", with.Score,
			without.Score)
	}

	if j := checked(t, example{"paced", overtaken(false)}, diagnosis.Reordering); j.NotExamined == "" {
		t.Errorf("without any counter: got score %.2f, want not examined", j.Score)
	}
}
