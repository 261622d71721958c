package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// bufferbloat is a queue in which packets wait for long: the rate is what it is, the delay is the trouble.
func bufferbloat() Rule {
	return Rule{Class: Bufferbloat, Label: "packets wait in a queue that is far too long", Ends: true,
		Means: "the median round trip beside the load is 55 ms or more above the least",
		Judge: func(o *Observation) Judgement {
			probes, tcp, least, ok := o.addedDelay()
			if !ok {
				return missing("the round trip beside the load is not known")
			}
			added := min(probes, max(tcp, probes/2))
			if !o.IsTCP() || tcp == 0 {
				added = probes
			}
			score := ramp(added, 30e6, 70e6, -4, 5.2)
			facts := []evidence.Evidence{against(fact("rtt_loaded_p50_ns", "", "", least+probes, "beside "+
				"the load "+
				"the median round trip of probes is "+milliseconds(least+probes)+" in the place of "+
				milliseconds(least)), least)}
			j := Judgement{Score: score, Element: "path", Facts: facts}
			if q, held, why := o.held(); why == "" && q.overlimits > .03 && held > -2 {
				j.Node, j.Element = q.node, q.port
				if q.drops == 0 && !q.managed {
					j.Score += ramp(added, 30e6, 50e6, 0, 3) // that of a link would be full
				}
				waits := added / 1e9 * q.rateBps / 8
				j.Text = fmt.Sprintf("the queue of %s is far too long: packets wait %s at %s, in about %s kB",
					q.place(),
					milliseconds(added), mbps(q.rateBps), unit.Significant(waits/1e3, 2))
				j.Facts = append(j.Facts, o.heldFacts(q)[0])
				return j
			}
			j.Score -= ramp(o.fullest(), .85, .97, 0, 6) // packets wait for a full CPU, too
			j.Text = "a queue on the path is far too long: packets wait " + milliseconds(added)
			return j
		},
		Experiments: rateDoses,
		Remedies: []Remedy{
			{System: "linux", Do: "let fq_codel or CAKE keep the queue short, below a shaper at the link's " +
				"rate",
				Commands: []string{"tc qdisc replace dev DEV root cake bandwidth RATE"}, Risk: "a shaper " +
					"costs CPU time",
				Factor: "queue", Level: "fq_codel"},
			{System: "openwrt", Do: "switch SQM on", Commands: []string{"uci set sqm.@queue[0].enabled=1",
				"uci commit sqm", "service sqm restart"},
				Risk: "a shaper costs CPU time; flow offload bypasses it"},
			{System: "routeros", Do: "use fq-codel or cake as the queue's type", Commands: []string{
				"/queue type add name=fq kind=fq-codel"}, Risk: "FastTrack bypasses queues"},
			{System: "freebsd", Do: "use a fq_codel scheduler", Commands: []string{
				"dnctl sched 1 config pipe 1 type fq_codel"}},
		}}
}
