package analysis

import (
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// throttling lets the queue at the router's WAN port throttle every packet, drop a quarter of them and hold
// none for long. It is its owner's, set to a rate; 0 = nobody read it.
func throttling(rate float64, kind string) func(*record.Run, *record.Trial) {
	return func(run *record.Run, tr *record.Trial) {
		for _, name := range tr.Row.Factors.Names() {
			plain, _ := factor.Split(name)
			if plain == "queue" || plain == "fault" || plain == "shape" {
				delete(tr.Row.Factors, name)
			}
		}

		withoutQueue(tr)
		for i := range tr.Nodes["router"].Samples {
			s := tr.Nodes["router"].Samples[i].Table
			if s == nil || tr.Nodes["router"].Samples[i].Probe != "qdisc" {
				continue
			}

			for k, name := range s.Names {
				label, stem, _ := strings.Cut(name, "/")
				packets := s.Column(label + "/packets")
				if label != "wan" || packets == nil || stem != "drops" && stem != "overlimits" {
					continue
				}

				for at := range s.V[k] {
					s.V[k][at] = packets[at]
					if stem == "drops" {
						s.V[k][at] /= 3
					}
				}
			}
		}

		if rate == 0 {
			return
		}

		d := record.NetDevice{
			Name: "wan",
			Port: "wan",
			Queues: []record.QueueFacts{
				{Kind: kind, Handle: "1:", Parent: "root", RateBps: rate}},
		}
		if kind == "htb" {
			d.Queues[0].RateBps = 0
			d.Queues = append(d.Queues, record.QueueFacts{
				Class:   true,
				Kind:    "htb",
				Handle:  "1:10",
				Parent:  "1:",
				RateBps: rate,
				CeilBps: rate,
			}, record.QueueFacts{
				Kind:         "pfifo",
				Handle:       "2:",
				Parent:       "1:10",
				LimitPackets: 2,
			})
		}

		run.Environments = []record.Environment{{
			Node:      "router",
			Inventory: &record.Inventory{Devices: []record.NetDevice{d}},
		}}
	}
}

// A queue that throttles far below the rate that it is set to, and drops, is too small: the present rate is
// not the limit. At its rate it is the limit.
func TestAQueueIsHeldAgainstItsRate(t *testing.T) {
	sent := observed(t, example{file: "link-rate", scene: throttling(0, "")}).Metrics.Values["goodput_bps"]
	for _, kind := range []string{"tbf", "htb"} {
		far := observed(t, example{file: "link-rate", scene: throttling(2*sent, kind)})
		d := diagnosis.Conclude([][]diagnosis.Candidate{diagnosis.Examine(far)})
		if d.Class != diagnosis.SmallQueue {
			t.Errorf("%s at half of its rate: %s (%.2f: %s)", kind, d.Class, d.Confidence, d.Text)
		}

		if !strings.Contains(d.Text, "that it is set to") || d.Causes[0].GainAtMost < 1.7 ||
			d.Causes[0].GainAtMost > 2.3 {
			t.Errorf("%s: %q, gain at most %v", kind, d.Text, d.Causes[0].GainAtMost)
		}

		at := observed(t, example{file: "link-rate", scene: throttling(1.05*sent, kind)})
		d = diagnosis.Conclude([][]diagnosis.Candidate{diagnosis.Examine(at)})
		if d.Class == diagnosis.SmallQueue {
			t.Errorf("%s at its rate: %s (%.2f)", kind, d.Text, d.Confidence)
		}
	}
}

// A token bucket of 150 Mbit/s whose queue holds six kilobytes drops one packet in eleven at three quarters
// of its rate: the link is not saturated, though other work takes most of the machine's time, too.
func TestASmallBucketIsNoFullLink(t *testing.T) {
	d := diagnosis.Conclude([][]diagnosis.Candidate{diagnosis.Examine(observed(t,
		example{file: "small-burst"}))})
	if d.Class != diagnosis.SmallQueue || d.Causes[0].Element != "wan" {
		t.Errorf("got %s (%.2f: %s), want the small queue at the router's WAN port", d.Class, d.Confidence,
			d.Text)
	}
}

// idling lets the queues of the router throttle once per packet, as CAKE and HTB do far below their rate,
// hold packets in one sample of four and drop nothing. They are set to a rate; 0 = nobody read it.
func idling(rate float64, kind string) func(*record.Run, *record.Trial) {
	return func(run *record.Run, tr *record.Trial) {
		for _, port := range []string{"lan", "wan"} {
			_, packets := column(tr, "router", "qdisc", port+"/packets")
			_, sent := column(tr, "router", "netdev", port+"/tx_packets")
			_, over := column(tr, "router", "qdisc", port+"/overlimits")
			_, is := column(tr, "router", "qdisc", port+"/kind_"+kind)
			for i := range packets {
				packets[i] = sent[min(i, len(sent)-1)]
				over[i] = packets[i]
				is[i] = 1
			}

			_, drops := column(tr, "router", "qdisc", port+"/drops")
			clear(drops)
			_, waits := column(tr, "router", "qdisc", port+"/qlen_packets")
			for i := range waits {
				waits[i] = map[bool]float64{true: 3}[i%4 == 0]
			}

			if rate > 0 {
				run.Environments = append(run.Environments, record.Environment{
					Node: "router",
					Inventory: &record.Inventory{Devices: []record.NetDevice{{
						Name:   port,
						Port:   port,
						Queues: []record.QueueFacts{{Kind: kind, Parent: "root", RateBps: rate}},
					}}},
				})
			}
		}
	}
}

// A shaper that could pass far more, or keeps nothing waiting, is not the cause: what is found without it is
// found with it.
func TestAnIdleShaperIsNoCause(t *testing.T) {
	for _, file := range []string{"one-core", "log-flood", "quota", "cpu-hog", "receive-window",
		"slow-reader", "paced"} {
		alone := observed(t, example{file: file})
		want := diagnosis.Conclude([][]diagnosis.Candidate{diagnosis.Examine(alone)})
		for _, rate := range []float64{0, 3 * alone.Metrics.Values["goodput_bps"]} {
			for _, kind := range []string{"cake", "htb", "tbf"} {
				beside := observed(t, example{file: file, scene: idling(rate, kind)})
				d := diagnosis.Conclude([][]diagnosis.Candidate{diagnosis.Examine(beside)})
				if d.Class != want.Class || d.Confidence < want.Confidence-.05 {
					t.Errorf("%s beside an idle %s at %.0f bit/s: %s (%.2f: %s), want %s (%.2f)", file, kind,
						rate, d.Class, d.Confidence, d.Text, want.Class, want.Confidence)
				}
			}
		}
	}
}

// A queue that is full drops nothing at random: a netem that holds all that it may is too small. One with
// room loses packets as a link does. A queue by flow, or one that drops early, is no FIFO.
func TestWhatAFullQueueIs(t *testing.T) {
	held := func(kind string, packets float64) func(*record.Run, *record.Trial) {
		return func(run *record.Run, tr *record.Trial) {
			for _, port := range []string{"wan", "lan"} {
				for _, name := range slices.Clone(samples(tr, "router", "qdisc").Names) {
					if strings.HasPrefix(name, port+"/kind_") {
						_, was := column(tr, "router", "qdisc", name)
						clear(was)
					}
				}

				_, is := column(tr, "router", "qdisc", port+"/kind_"+kind)
				_, waits := column(tr, "router", "qdisc", port+"/qlen_packets")
				for i := range is {
					is[i], waits[i] = 1, packets
				}

				run.Environments = append(run.Environments, record.Environment{
					Node: "router",
					Inventory: &record.Inventory{Devices: []record.NetDevice{{
						Name:   port,
						Port:   port,
						Queues: []record.QueueFacts{{Kind: kind, Parent: "root", LimitPackets: 50}},
					}}},
				})
			}
		}
	}
	for _, tt := range []struct {
		of    example
		class string
		is    bool
	}{
		{example{"random-loss", held("netem", 3)}, diagnosis.RandomLoss, true},
		{example{"random-loss", held("netem", 50)}, diagnosis.RandomLoss, false},
		{example{"random-loss", held("netem", 50)}, diagnosis.SmallQueue, true},
		{example{"small-queue", held("pfifo", 0)}, diagnosis.SmallQueue, true},
		{example{"small-queue", held("sfq", 0)}, diagnosis.SmallQueue, false},
		{example{"small-queue", held("fq", 0)}, diagnosis.SmallQueue, false},
		{example{"small-queue", held("red", 0)}, diagnosis.SmallQueue, false},
	} {
		j := checked(t, tt.of, tt.class)
		if (j.Score > 0) != tt.is {
			t.Errorf("%s: %s has %.1f: %s", tt.of.file, tt.class, j.Score, j.Text)
		}
	}
}

// TestPlansQueueIsAShaper: a queue with a rate that the plan sets is a shaper like one that was found there;
// a netem emulates a link.
func TestPlansQueueIsAShaper(t *testing.T) {
	for queue, want := range map[string]string{
		"tbf rate 30M burst 32k limit 100k": diagnosis.Shaper,
		"netem rate 30M limit 100":          diagnosis.LinkRate,
	} {
		o := observed(t, example{"link-rate", func(_ *record.Run, tr *record.Trial) {
			delete(tr.Row.Factors, "fault@router.wan")
			tr.Row.Factors["queue@router.wan"] = queue
		}})
		d := diagnosis.Conclude([][]diagnosis.Candidate{diagnosis.Examine(o)})
		if d.Class != want || d.Element != "wan" {
			t.Errorf("%s: got %s at %s (%.0f %%): %s", queue, d.Class, d.Element, 100*d.Confidence, d.Text)
		}
	}
}

// TestEvenReaderWaitsForNoCPU: work beside a reader that keeps its receive buffer full at an even rate is
// not the limit.
func TestEvenReaderWaitsForNoCPU(t *testing.T) {
	for _, tt := range []struct {
		file   string
		uneven float64
		met    float64
	}{{"slow-reader", .01, 1}, {"slow-reader", .2, 0}, {"cpu-hog", .01, 0}} {
		o := observed(t, example{file: tt.file})
		o.Metrics.Values[metrics.Consistency] = tt.uneven
		met := -1.
		for _, j := range diagnosis.Examine(o) {
			for _, term := range j.Terms {
				if j.Class == diagnosis.OtherLoad && term.Name == "reads-evenly" {
					met = term.Met
				}
			}
		}

		if met != tt.met {
			t.Errorf("%s, uneven by %g: reads evenly to a degree of %.2f, want %g", tt.file, tt.uneven, met,
				tt.met)
		}
	}
}

// TestSuspectTesterIsNotRuledOut: what makes a cell suspect is not ruled out beside it.
func TestSuspectTesterIsNotRuledOut(t *testing.T) {
	for kind, want := range map[string]int{evidence.ReasonTesterLimited: 0, evidence.ReasonDrift: 1} {
		all := notSuspected([]diagnosis.Exclusion{{Class: diagnosis.Tester}}, []evidence.Reason{{Kind: kind}})
		if len(all) != want {
			t.Errorf("%s: %+v", kind, all)
		}
	}
}

// TestAbsentIPsecRulesNothingOut: without a packet that IPsec dropped there is nothing to say about it.
func TestAbsentIPsecRulesNothingOut(t *testing.T) {
	j := checked(t, example{file: "random-loss"}, diagnosis.ReplayWindow)
	if j.Against != nil || j.Score >= 0 {
		t.Errorf("got %.1f by %+v", j.Score, j.Against)
	}
}
