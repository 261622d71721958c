package plan

import (
	"cmp"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/method"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
	yaml "go.yaml.in/yaml/v4"
)

// Defaults of a search. FD.io CSIT uses a minimum load of 9001 frames/s; slow routers with a tunnel need a
// lower one.
const (
	defaultMinPPS  = 1000
	defaultMinBps  = 1e6
	defaultMinHz   = 10
	defaultMaxTime = 20 * time.Minute
	maxSearch      = 7 * 24 * time.Hour
	minTrial       = 10 * time.Millisecond
	maxRepeats     = 1000
)

// search reads method.search. It is the name of a preset, or a map of changes to a preset.
func (r *reader) search(n *yaml.Node, m *record.Method) error {
	s := &record.Search{
		MinPPS:  defaultMinPPS,
		MinBps:  defaultMinBps,
		MinHz:   defaultMinHz,
		MaxTime: defaultMaxTime,
	}
	m.Search = s
	if n.Kind == yaml.ScalarNode {
		return r.preset(n, s)
	}

	preset := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "quick", Line: n.Line, Column: n.Column}
	given := valueOf(n, "preset")
	if given != nil && !isNull(given) {
		preset = given
	}

	if err := r.preset(preset, s); err != nil {
		return err
	}

	s.MinHz = 0
	err := r.object(n, "search", append(r.goalFields(s), []field{
		{"preset", func(*yaml.Node) error { return nil }},
		r.packetRate("min", &s.MinPPS),
		r.packetRate("max", &s.MaxPPS),
		r.bitRate("min_rate", &s.MinBps),
		r.bitRate("max_rate", &s.MaxBps),
		r.connectionRate("min_connections", &s.MinHz),
		r.connectionRate("max_connections", &s.MaxHz),
		r.yesNo("count_pauses", &s.CountPauses),
		r.scalarOf("knob", func(n *yaml.Node, text string) error {
			return r.searchKnob(n, text, s)
		}),
		r.duration("max_time", time.Second, maxSearch, &s.MaxTime),
		r.test("latency", &s.Latency),
		r.test("frame_loss", &s.FrameLoss),
		r.test("back_to_back", &s.BackToBack),
	}...))
	if err != nil {
		return err
	}

	for i := range s.Goals {
		s.Goals[i].InitialDuration = min(s.Goals[i].InitialDuration, s.Goals[i].FinalDuration)
	}

	if s.MinHz == 0 { // so that each trial has at least one connection
		s.MinHz = max(defaultMinHz, 1/s.Goals[0].InitialDuration.Seconds())
	}

	for _, limits := range [][2]float64{{s.MinPPS, s.MaxPPS}, {s.MinBps, s.MaxBps}, {s.MinHz, s.MaxHz}} {
		// The maximum may be known only once the lab exists. The other settings can be checked with any
		// maximum.
		c := method.Config{Goals: s.Goals, Min: limits[0], Max: cmp.Or(limits[1], 10*limits[0])}
		if err := c.Check(); err != nil {
			return r.fail(n, "", "%s", strings.TrimPrefix(err.Error(), "check "))
		}
	}

	return nil
}

// goalFields returns the attributes that a plan sets for all goals at once.
func (r *reader) goalFields(s *record.Search) []field {
	var fields []field
	for i := range s.Goals {
		g := &s.Goals[i]
		fields = append(fields, []field{
			r.duration("final_trial_duration", minTrial, maxWindow,
				&g.FinalDuration),
			r.duration("duration_sum", minTrial, maxWindow, &g.DurationSum),
			r.ratio("exceed_ratio", 0, 0.95, &g.ExceedRatio),
			r.ratio("width", 0.0001, 0.5, &g.Width),
			r.duration("max_added_delay", 10*time.Microsecond, 10*time.Second,
				&g.MaxDelay),
		}...)
	}
	return fields
}

func (r *reader) preset(n *yaml.Node, s *record.Search) error {
	if err := r.word("search", &s.Preset, method.PresetNames()...).read(n); err != nil {
		return err
	}

	p, _ := method.PresetNamed(s.Preset)
	s.Goals = p.Goals
	s.Warmup = p.Warmup
	s.CountPauses = p.Overhead
	return nil
}

// searchKnob reads the setting that a search varies instead of the load. Its levels must be rates.
func (r *reader) searchKnob(n *yaml.Node, text string, s *record.Search) error {
	f, err := r.lookup(n, text)
	if err != nil {
		return err
	}

	if _, err := f.Parse("10M"); err != nil || f.Kind != factor.Setting {
		return r.fail(n, "write, for example, shape@router.wan", "knob: the levels of %s are not rates", text)
	}

	s.Knob = f.Name
	return nil
}

func (r *reader) packetRate(what string, into *float64) field {
	return rate(r, what, into, unit.ParsePacketRate, 1, 1e9, "50k", "1 to 1G packets a second")
}

func (r *reader) connectionRate(what string, into *float64) field {
	return rate(r, what, into, unit.ParsePacketRate, 1, factor.MaxConnectionRate, "2k",
		"1 to 10M connections a second")
}

func (r *reader) bitRate(what string, into *float64) field {
	return rate(r, what, into, unit.ParseBitrate, 1e3, 1e13, "50M", "1k to 10T bits a second")
}

// rate returns a field that parses a rate and checks its limits. bounds describes the limits in errors.
func rate[T ~float64](r *reader, what string, into *float64, parse func(string) (T, error), low, high T,
	example, bounds string) field {
	return r.scalarOf(what, func(n *yaml.Node, text string) error {
		v, err := parse(text)
		if err != nil || v < low || v > high {
			return r.fail(n, "write, for example, "+example, "%s: %q is not a rate from %s", what, text,
				bounds)
		}

		*into = float64(v)
		return nil
	})
}

func (r *reader) ratio(what string, low, high float64, into *float64) field {
	return r.scalarOf(what, func(n *yaml.Node, text string) error {
		v, ok := parsePercent(text)
		if !ok || v < 100*low || v > 100*high {
			return r.fail(n, "write, for example, 1 %", "%s: %q is not a share from %v %% to %v %%", what,
				text, 100*low, 100*high)
		}

		*into = v / 100
		return nil
	})
}

func (r *reader) test(what string, into **record.Test) field {
	return field{what, func(n *yaml.Node) error {
		t := &record.Test{Repeats: 1}
		err := r.object(n, what, []field{
			{"duration", r.duration(what+".duration", 100*time.Millisecond, maxWindow, &t.Duration).read},
			{"repeats", r.count(what+".repeats", 1, maxRepeats, &t.Repeats).read},
		})
		if err == nil && t.Duration == 0 {
			err = r.fail(n, "add duration: 10s", "%s does not say how long each trial is", what)
		}

		*into = t
		return err
	}}
}

// minProbes is the number of probes needed for a 95 % confidence interval of the 99th percentile; see
// docs/method/latency.md.
const minProbes = 368

// checkSearch returns an error if the search of a plan needs latencies that the plan does not measure.
func (r *reader) checkSearch(p *Plan, root *yaml.Node) error {
	s := p.Design.Method.Search
	m := p.Design.Measure
	if s == nil {
		return nil
	}

	at := valueOf(valueOf(root, "method"), "search")

	for _, g := range s.Goals {
		if g.MaxDelay == 0 {
			continue
		}

		const what = "a search by added delay"
		switch {
		case !m.LatencyLoaded || m.LatencyIdle == IdleOff:
			return r.fail(at, "remove measure.latency_loaded and measure.latency_idle", what+
				" needs both latencies, idle and under load")
		case int64(g.InitialDuration/m.ProbeInterval) < minProbes:
			return r.fail(at, "set measure.probe_interval: "+
				unit.Duration((g.InitialDuration/minProbes).Truncate(time.Millisecond/2)),
				what+" needs %d probes in each trial, and %s has %d at %s", minProbes,
				unit.Duration(g.InitialDuration), g.InitialDuration/m.ProbeInterval,
				unit.Duration(m.ProbeInterval))
		}
	}

	return nil
}

// estimateSearch estimates the duration of a search. For each goal, it counts the full-length trials that the
// duration sum requires. It adds a few short trials for approaching the bounds, and the trials of the
// latency, frame loss and back-to-back tests.
func estimateSearch(m record.Method, overhead time.Duration) time.Duration {
	s := m.Search
	each := m.Warmup + m.Cooldown + overhead
	total := 5 * (time.Second + each)
	for _, g := range s.Goals {
		counts := g.FinalDuration
		if s.CountPauses {
			counts += m.Warmup + m.Cooldown
		}

		total += time.Duration(float64(g.DurationSum)/float64(counts)) * (g.FinalDuration + each)
	}

	for _, t := range []struct {
		of    *record.Test
		each  int     // trials per repetition
		share float64 // average duration of a trial ÷ of.Duration
	}{{s.Latency, len(method.LatencyShares()), 1}, {s.FrameLoss, 8, 1}, {s.BackToBack, 8, 0.2}} {
		if t.of != nil {
			total += time.Duration(t.of.Repeats*t.each) * (time.Duration(t.share*float64(t.of.Duration)) +
				each)
		}
	}

	return total
}

// searchConflict returns why a cell's rate cannot be searched for, or "".
func searchConflict(m record.Method, cell factor.Cell) string {
	_, share := factor.FoundOf(cell)
	switch tcp := factor.Protocol.Is(cell, factor.TCP); {
	case m.Search == nil || share:
		return ""
	case !factor.Sends(cell):
		return "engine cipher sends nothing whose rate could be looked for"
	case factor.FlowSize.In(cell): // connections per second
		switch {
		case factor.ConnectionRate.In(cell):
			return "the rate is what the search looks for: leave out connection_rate"
		case m.Search.MaxHz == 0:
			return "a search for new connections needs method.search.max_connections"
		case m.Search.Goals[0].MaxDelay > 0:
			return "max_added_delay is for packets and paced TCP: new connections are late by themselves"
		}
		return ""
	case tcp && m.Search.Goals[0].MaxDelay == 0:
		return "TCP finds its rate by itself: a search for one needs max_added_delay, or protocol: udp"
	case tcp && !factor.Engine.Is(cell, factor.Native):
		return "engine " + factor.Engine.Of(cell) + " does not pace TCP"
	case m.Search.Knob != "" && !tcp:
		return "a search over a setting needs TCP, which goes as fast as the setting allows"
	case m.Search.Knob != "" && cell[m.Search.Knob] != "":
		return "the rate is what the search looks for: leave out " + m.Search.Knob
	case factor.Pacing.In(cell):
		return "the rate is what the search looks for: leave out pacing, or write a share such as 90% " +
			"of found"
	case !tcp && !factor.Rate.Is(cell, factor.Flat):
		return "the rate is what the search looks for: leave out rate, or write a share such as 90% of found"
	}
	return ""
}
