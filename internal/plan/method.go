package plan

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
	yaml "go.yaml.in/yaml/v4"
)

// These are the orders of rows.
const (
	OrderBlocks = "blocks" // randomised complete blocks
	OrderListed = "listed" // in the order of the plan, block after block
	// OrderAlternated randomises blocks so that untouched cells alternate with the others. A cell is
	// untouched if it has a level of the copy factor.
	OrderAlternated = "alternated"
)

// These values say when idle latency is measured.
const (
	IdleBlock = "block"
	IdleTrial = "trial"
	IdleOff   = "off"
)

// These values say how latency is measured. A chokepoint process returns UDP probes; the far kernel returns
// ICMP probes.
const (
	ProbeEcho = "echo"
	ProbeICMP = "icmp"
)

const maxRuns = 1000

// defaultMethod returns the default method. Its six runs are the minimum for a 95 % interval of a median (see
// docs/method/statistics.md).
func defaultMethod() record.Method {
	return record.Method{
		Duration: 10 * time.Second,
		Warmup:   time.Second,
		Cooldown: 500 * time.Millisecond,
		Idle:     2 * time.Second,
		Runs:     6,
		Order:    OrderBlocks,
	}
}

func defaultMeasure() record.Measure {
	return record.Measure{
		LatencyIdle:   IdleBlock,
		LatencyLoaded: true,
		Probe:         ProbeEcho,
		ProbeInterval: 10 * time.Millisecond,
		ProbeSpacing:  record.Isochronous,
		Verify:        true,
		Telemetry:     true,
	}
}

// These are the limits of a trial. The probes keep the results of the last 20 minutes, which must cover the
// whole load.
const (
	maxWindow = 15 * time.Minute
	maxPhase  = time.Minute
	maxSoak   = 14 * 24 * time.Hour
)

func (r *reader) methodFields(m *record.Method) []field {
	return []field{
		r.duration("duration", 100*time.Millisecond, maxWindow, &m.Duration),
		r.duration("warmup", 0, maxPhase, &m.Warmup),
		r.duration("cooldown", 0, time.Hour, &m.Cooldown),
		r.duration("idle", 100*time.Millisecond, maxPhase, &m.Idle),
		r.count("runs", 1, maxRuns, &m.Runs),
		{"adaptive", func(n *yaml.Node) error { return r.adaptive(n, m) }},
		r.word("order", &m.Order, OrderBlocks, OrderListed, OrderAlternated),
		r.seed(&m.Seed),
		r.duration("soak", time.Minute, maxSoak, &m.Soak),
		{"search", func(n *yaml.Node) error { return r.search(n, m) }},
	}
}

func (r *reader) method(n *yaml.Node, p *Plan) error {
	m := &p.Design.Method
	if err := r.object(n, "method", r.methodFields(m)); err != nil {
		return err
	}

	runs := valueOf(n, "runs")
	adaptive := valueOf(n, "adaptive")
	search := valueOf(n, "search")
	soak := valueOf(n, "soak")
	p.SeedGiven = p.SeedGiven || valueOf(n, "seed") != nil
	if search != nil && adaptive != nil {
		return r.fail(adaptive, "give runs, the number of searches of each cell",
			"adaptive does not go with search, which chooses the number of trials itself")
	}

	if soak != nil {
		var failed error
		for _, other := range []*yaml.Node{runs, adaptive, search} {
			if other != nil {
				failed = r.note(r.fail(other, "leave out soak, or this",
					"soak already sets the number of windows"))
			}
		}

		if failed != nil {
			return failed
		}

		m.Runs = max(int((m.Soak+m.Duration-1)/m.Duration), 1)
		if m.Runs > maxRuns {
			return r.fail(soak, "give a longer duration", "a soak of %s has %d windows of %s, more than %d",
				unit.Duration(m.Soak), m.Runs, unit.Duration(m.Duration), maxRuns)
		}

		return nil
	}

	if adaptive == nil {
		return nil
	}

	if runs != nil {
		return r.fail(runs, "keep runs for a fixed number, or adaptive.min and adaptive.max",
			"runs and adaptive both set the number of repetitions")
	}

	m.Runs = m.Adaptive.Max
	return nil
}

func (r *reader) adaptive(n *yaml.Node, m *record.Method) error {
	a := &record.Adaptive{Min: 6, Max: 30, Width: 0.05}
	err := r.object(n, "adaptive", []field{
		r.count("min", 2, maxRuns, &a.Min),
		r.count("max", 2, maxRuns, &a.Max),
		r.until(&a.Width),
	})
	if err != nil {
		return err
	}

	if a.Max < a.Min {
		at := cmp.Or(valueOf(n, "max"), valueOf(n, "min"))
		return r.fail(at, "", "adaptive.max (%d) is less than adaptive.min (%d)", a.Max, a.Min)
	}

	m.Adaptive = a
	return nil
}

var untilForm = check.Pattern(`^interval *<=? *`)

func (r *reader) until(width *float64) field {
	return r.scalarOf("until", func(n *yaml.Node, text string) error {
		condition := untilForm().FindString(text)
		v, ok := parsePercent(strings.TrimPrefix(text, condition))
		if ok && condition != "" && v >= 0.1 && v <= 100 {
			*width = v / 100
			return nil
		}

		return r.fail(n, "", "until: %q is not \"interval <= X %%\" with X from 0.1 to 100", text)
	})
}

func (r *reader) seed(into *uint64) field {
	return r.scalarOf("seed", func(n *yaml.Node, text string) (err error) {
		*into, err = strconv.ParseUint(text, 10, 64)
		if err != nil || strconv.FormatUint(*into, 10) != text {
			return r.fail(n, "", "seed: %q is not a whole number from 0 to 18446744073709551615", text)
		}
		return nil
	})
}

func (r *reader) measureFields(m *record.Measure) []field {
	return []field{
		r.word("latency_idle", &m.LatencyIdle, IdleBlock, IdleTrial, IdleOff),
		r.yesNo("latency_loaded", &m.LatencyLoaded),
		r.word("probe", &m.Probe, ProbeEcho, ProbeICMP),
		r.word("probe_spacing", &m.ProbeSpacing, record.Isochronous, record.Exponential),
		r.duration("probe_interval", time.Millisecond, time.Second, &m.ProbeInterval),
		r.verify(m),
		r.yesNo("telemetry", &m.Telemetry),
		r.oneOf("tester_ceiling", func(word string) { m.NoCeiling = word == "false" }, "true", "false"),
	}
}

func (r *reader) conditions(n *yaml.Node, d *record.Design) error {
	d.Conditions = map[string]string{}
	return r.pairs(n, "conditions", func(key, value *yaml.Node) error {
		if key.Value == "" || len(key.Value) > 64 || strings.ContainsFunc(key.Value, isControl) {
			return r.fail(key, "", "%q is not a name for a condition", key.Value)
		}

		var text string
		if err := r.text("condition "+key.Value, 1000, &text).read(value); err != nil {
			return err
		}

		d.Conditions[key.Value] = text
		if _, err := d.Watts(); err != nil {
			return r.fail(value, "write, for example, watts: 6.1", "%v", err)
		}

		return nil
	})
}

func (r *reader) steps(n *yaml.Node, d *record.Design) error {
	return r.list(n, "steps", func(_ int, item *yaml.Node) error {
		var s record.Step
		err := r.object(item, "a step", []field{
			r.word("when", &s.When, "start", "block", "end"),
			r.text("prompt", 1000, &s.Prompt),
		})
		switch {
		case err != nil:
			return err
		case s.When == "":
			return r.fail(item, "add when: start, block or end", "the step does not say when")
		case s.Prompt == "":
			return r.fail(item, "add prompt: what to do", "the step has no prompt")
		}

		d.Steps = append(d.Steps, s)
		return nil
	})
}

func (r *reader) duration(what string, low, high time.Duration, into *time.Duration) field {
	return r.scalarOf(what, func(n *yaml.Node, text string) error {
		d, err := parseDuration(text)
		if err != nil || d < low || d > high {
			hint := ""
			if factor.WholeForm().MatchString(text) {
				hint = "add the unit, such as " + text + "s"
				if low >= time.Minute {
					hint = "add the unit, such as " + text + "m"
				}
			}
			return r.fail(n, hint, "%s: %q is not a duration from %s to %s", what, text, unit.Duration(low),
				unit.Duration(high))
		}

		*into = d
		return nil
	})
}

func (r *reader) count(what string, low, high int64, into *int) field {
	return r.scalarOf(what, func(n *yaml.Node, text string) error {
		v, err := factor.ParseWhole(text, low, high)
		if err != nil {
			return r.fail(n, "", "%s: %v", what, err)
		}

		*into = int(v)
		return nil
	})
}

// oneOf reads one of the given words.
func (r *reader) oneOf(what string, take func(word string), words ...string) field {
	return r.scalarOf(what, func(n *yaml.Node, text string) error {
		if !slices.Contains(words, text) {
			return r.fail(n, choiceHint(text, "allowed", words), "%s: %q is not %s", what, text,
				factor.OneOf(words))
		}

		take(text)
		return nil
	})
}

func (r *reader) word(what string, into *string, words ...string) field {
	return r.oneOf(what, func(word string) { *into = word }, words...)
}

// verify reads which payloads are checked: none, only those of one short trial per path, or also those of
// every load.
func (r *reader) verify(m *record.Measure) field {
	return r.oneOf("verify", func(word string) {
		m.Verify = word != "false"
		m.VerifyAll = word == "all"
	}, "true", "false", "all")
}

func (r *reader) yesNo(what string, into *bool) field {
	return r.oneOf(what, func(word string) { *into = word == "true" }, "true", "false")
}

// durationForm matches a number with a unit, or several such as 1m30s.
var durationForm = check.Pattern(`^([0-9]+(\.[0-9]+)? ?(ns|us|µs|ms|s|m|h))+$`)

func parseDuration(text string) (time.Duration, error) {
	if text == "0" {
		return 0, nil
	}

	if !durationForm().MatchString(text) {
		return 0, &factor.LevelError{Text: text, Want: "a duration such as 5s"}
	}
	return time.ParseDuration(strings.ReplaceAll(text, " ", ""))
}
