package bundle

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// conditions lists the conditions that a bundle may contain.
var conditions = [...]string{"lab", "ambient", "watts", record.LinkCondition}

// facts lists the facts about a node that a bundle may contain.
var facts = [...]string{"cpu_model", "cpu_cores", "cpu_threads", "cpu_smt", "cores", "machine", "product",
	"board", "os", "distribution", "distribution_release", "kernel", "governor", "hypervisor", "timer_hz",
	"irq_time_accounting"}

// ownPlan replaces the name of a plan that is not built in.
const ownPlan = "own plan"

const hostWords = "the name of a host or file"

// identities lists patterns of text that may identify the author.
var identities = [...]struct {
	form  func() *regexp.Regexp
	words string
}{
	{check.Pattern(`\b\d{1,3}(\.\d{1,3}){3}\b`), "an address"},
	{check.Pattern(`(?i)[0-9a-f]{0,4}:[0-9a-f]{0,4}:[0-9a-f:]*`), "an address"}, // IPv6 or MAC
	{check.Pattern(`(?i)\b[0-9a-f]{2}(-[0-9a-f]{2}){5}\b`), "an address"},
	{check.Pattern(`(?i)\b[0-9a-f]{4}(\.[0-9a-f]{4}){2}\b`), "an address"},
	{check.Pattern(`(?i)\benx[0-9a-f]{12}`), "an address"}, // name that contains a MAC address
	{check.Pattern(`\S@\S`), "the name of a user or host"},
	{check.Pattern(`(?i)\b[a-z0-9-]+\.([a-z0-9-]+\.)*[a-z]{2,}\b`), hostWords},
	{check.Pattern(`(^|[\s"'=(,:])~?/\S|[A-Za-z]:\\|\\\\`), "a path"},
	{check.Pattern(`[A-Za-z0-9+/_-]{32,}`), "a key"},
}

// makers rewrites names of router makers that look like host names.
var makers = strings.NewReplacer("GL.iNet", "GL iNet")

// identity describes the part of a text that may identify its author. It returns "" if there is none.
func identity(text string) string {
	text = makers.Replace(text)
	for _, i := range identities {
		if i.form().MatchString(text) {
			return i.words
		}
	}
	return ""
}

// fact returns a text about a device from its maker, such as a CPU model, or "" if the text must not be
// published. A text may be published if it is at most 100 bytes long and matches no pattern of identities.
func fact(text string) string {
	if len(text) > 100 || identity(text) != "" {
		return ""
	}
	return text
}

// among returns word if it is one of words, and "" otherwise.
func among(word string, words ...string) string {
	if slices.Contains(words, word) {
		return word
	}
	return ""
}

// These match text that this program generates.
var (
	runForm     = check.Pattern(`^\d{8}-\d{6}-[0-9a-f]{4}$`)
	rowForm     = check.Pattern(`^b\d+-r\d+(\.\d+)?$`)
	versionForm = check.Pattern(`^v?\d+\.\d+\.\d+(-\d+(\.\d+)*)?`)
	nodeForm    = check.Pattern(`^(host|client|server|peer|router(-[ab])?)$`)
	labForm     = check.Pattern(`^(local|vm(:[a-z0-9_]{1,12})?|pair|ssh)$`)
	release     = check.Pattern(`\d+\.\d+(\.\d+)?`)
)

// anonymous returns the publishable part of a document. It builds a new document from the fields listed here,
// and copies no words except this program's own.
func anonymous(d *analysis.Document, c *factor.Catalogue) (*analysis.Document, error) {
	run := &d.Run
	head := analysis.RunHead{
		RunHead: record.RunHead{
			ID:      runForm().FindString(run.ID),
			Started: run.Started.UTC().Truncate(time.Second),
			Lab:     labForm().FindString(run.Lab),
			Version: versionForm().FindString(run.Version),
			Status: among(run.Status, record.RunDone, record.RunInterrupted,
				record.RunFailed, record.RunKilled, record.RunRunning),
		},
		Procedure: record.Procedure{Method: run.Method, Measure: run.Measure},
		Plan:      cmp.Or(among(run.Plan, plan.BuiltIns()...), ownPlan),
	}
	if head.ID == "" || head.Lab == "" {
		return nil, fmt.Errorf("run %.40q of lab %.40q is none of chokepoint", run.ID, run.Lab)
	}

	head.Method.Order = among(run.Method.Order, "blocks", "listed")
	head.Method.Search = nil
	m := &head.Measure
	m.LatencyIdle = among(m.LatencyIdle, "block", "trial", factor.Off)
	m.Probe = among(m.Probe, "echo", "icmp")
	m.ProbeSpacing = among(m.ProbeSpacing, record.Isochronous, record.Exponential)
	for _, name := range d.Run.Loads {
		if _, ok := c.Lookup(name); ok {
			head.Loads = append(head.Loads, name)
		}
	}

	words := vocabulary(c)
	out := &analysis.Document{
		Format:      d.Format,
		Run:         head,
		Catalogue:   c,
		Summary:     []string{},
		Environment: environments(d.Environment),
		Topologies:  []record.Topology{},
		Nodes:       []record.NodeFacts{},
		Uses:        []analysis.UseCase{},
		Cells:       []analysis.Cell{},
		Trials:      []analysis.TrialView{},
		Skipped:     []record.Skipped{},
		Caveats:     caveats(d.Caveats, words),
		Observing: analysis.Observing{
			CoreRatio:    d.Observing.CoreRatio,
			ChargedRatio: d.Observing.ChargedRatio,
			FastRatio:    d.Observing.FastRatio,
			Probes:       map[string]float64{},
		},
	}
	var all []record.Factors
	for i := range d.Cells {
		if err := known(d.Cells[i].Factors, c); err != nil {
			return nil, fmt.Errorf("cells[%d]: %w", i, err)
		}

		all = append(all, d.Cells[i].Factors)
		out.Cells = append(out.Cells, cellOf(&d.Cells[i], words))
	}

	for i, label := range analysis.Labels(c, all) { // a plan may have its own words for levels
		out.Cells[i].Label = label
	}

	for i := range d.Trials {
		t := &d.Trials[i]
		if err := known(t.Factors, c); err != nil {
			return nil, fmt.Errorf("trials[%d]: %w", i, err)
		}

		out.Trials = append(out.Trials, trialOf(t, words))
	}

	for _, m := range metrics.Metrics() {
		if slices.ContainsFunc(out.Cells, func(c analysis.Cell) bool {
			_, ok := c.Metrics[m.Name]
			return ok
		}) {
			out.Metrics = append(out.Metrics, m)
		}
	}

	out.Verdicts, out.Effects = analysis.Verdicts(out.Cells), analysis.EffectsOf(out)
	return out, nil
}

// known returns an error for unknown factors and levels, and for factors and levels that may identify
// someone.
func known(f record.Factors, c *factor.Catalogue) error {
	if len(f) == 0 {
		return errors.New("it has no factors")
	}

	for name, level := range f {
		d, ok := c.Lookup(name)
		if !ok {
			return fmt.Errorf("there is no factor %q", name)
		}

		if found := nameIdentity(name); found != "" || len(name) > 100 {
			return fmt.Errorf("factor %.100q: its name may hold %s, which is not published", name,
				cmp.Or(found, "anything, so long as it is"))
		}

		if found := identity(level); found != "" || len(level) > 100 {
			return fmt.Errorf("factor %s: level %.100q may be %s, which is not published", name, level,
				cmp.Or(found, "anything, so long as it is"))
		}

		switch canonical, err := d.Parse(level); {
		case err != nil:
			return fmt.Errorf("factor %s: level %w", name, err)
		case canonical != level:
			return fmt.Errorf("factor %s: level %q is written %q", name, level, canonical)
		}
	}
	return nil
}

// nameIdentity describes the part of a factor's name that may identify the author, such as the name or
// address of a network device in the name of a kernel setting. It returns "" if there is none.
func nameIdentity(name string) string {
	plain, _ := factor.Split(name) // ignore the place, which is always a node or port of the lab
	_, param, _ := strings.Cut(plain, ":")
	for _, i := range identities {
		if i.words != hostWords && i.form().MatchString(param) { // kernel settings have dots in their names
			return i.words
		}
	}

	for _, m := range ofDevice().FindAllStringSubmatch(param, -1) {
		device := m[1] + m[2]
		if device != "all" && device != "default" && !record.UsualDevice(device) {
			return "the name of a network device"
		}
	}

	return ""
}

// ofDevice finds the network device in the name of a kernel setting.
var ofDevice = check.Pattern(`(?:^|[./])(?:conf|neigh)(?:\.([^.]+)\.|/([^/]+)/)`)

func environments(all []record.Environment) []record.Environment {
	out := []record.Environment{}
	for _, e := range all {
		of := record.Environment{Node: nodeForm().FindString(e.Node), Facts: map[string]string{}}
		for _, name := range facts {
			text := fact(e.Facts[name])
			if name == "kernel" { // the build string may contain the builder's name
				text = release().FindString(e.Facts[name])
			}

			if text != "" {
				of.Facts[name] = text
			}
		}

		if len(of.Facts) > 0 && of.Node != "" {
			out = append(out, of)
		}
	}
	return out
}

// caveats returns the caveats with the publishable part of their texts. If no word of a text may be
// published, the text is replaced with the meaning of the caveat's kind.
func caveats(all []record.Caveat, words map[string]bool) []record.Caveat {
	var out []record.Caveat
	for _, k := range all {
		means := evidence.KindOf(k.Kind).Means
		if means == "" {
			continue
		}

		text := spoken(k.Text, words)
		if strings.Trim(text, left+" ") == "" {
			text = means
		}

		out = append(out, record.Caveat{Kind: k.Kind, Text: text})
	}
	return out
}

func reasons(all []evidence.Reason) []evidence.Reason {
	out := []evidence.Reason{}
	for _, r := range all {
		means := evidence.KindOf(r.Kind).Means
		if means != "" {
			out = append(out, evidence.Reason{Kind: r.Kind, Text: means, Facts: figures(r.Facts)})
		}
	}
	return out
}

// counted lists the undeclared observations of a diagnosis that may be published. They are counts, and shares
// whose names end in _ratio, so neither their names nor their values identify anyone.
var counted = [...]string{"other_cores", "cpu_busy_ratio", "cpu_softirq_ratio", "cpu_cores", "drops",
	"dropped", "tx_dropped", "rx_missed", "rx_errors", "overlimits", "time_squeeze", "outages", "reord_seen",
	"tunnels", "tunnel_process_cores", "tcp_busy_ratio", "tcp_sndbuf_limited_ratio", "filter_cpu_ratio",
	"filter_rules", "flows_per_s", "flows_offloaded", "core_throttles", "UdpRcvbufErrors", "IpFragFails",
	"IpFragCreates"}

// maxFigures is the maximum number of figures published for one cause or reason.
const maxFigures = 8

// figures returns the publishable numbers in all: declared metrics, and the observations in counted. It omits
// the other fields of the evidence and replaces its texts.
func figures(all []evidence.Evidence) []evidence.Evidence {
	out := []evidence.Evidence{}
	for _, e := range all {
		text := ""
		known := slices.ContainsFunc(metrics.Metrics(), func(m record.Metric) bool {
			return m.Name == e.Metric
		})
		if e.Value != nil && slices.Contains(counted[:], e.Metric) && !known {
			name, share := strings.CutSuffix(e.Metric, "_ratio")
			say := func(v float64) string { return unit.Significant(v, 3) }
			if share {
				say = unit.Percent
			}

			text = strings.ReplaceAll(name, "_", " ") + " " + say(*e.Value)
			known = true
			if e.Baseline != nil {
				text += " against " + say(*e.Baseline)
			}
		}

		if known && e.Value != nil && len(out) < maxFigures {
			out = append(out, evidence.Evidence{
				Metric:   e.Metric,
				Node:     nodeForm().FindString(e.Node),
				Text:     text,
				Value:    e.Value,
				Low:      e.Low,
				High:     e.High,
				Baseline: e.Baseline,
			})
		}
	}
	return out
}

func grade(text string) string {
	return cmp.Or(among(text, evidence.GradeValid, evidence.GradeSuspect, evidence.GradeNotReached),
		evidence.GradeFailed)
}

// declared returns the entries for declared metrics. Other entries may contain names of devices.
func declared[V any](all map[string]V) map[string]V {
	out := map[string]V{}
	for _, m := range metrics.Metrics() {
		if v, ok := all[m.Name]; ok {
			out[m.Name] = v
		}
	}
	return out
}

func cellOf(c *analysis.Cell, words map[string]bool) analysis.Cell {
	out := analysis.Cell{
		Cell: metrics.Cell{
			ID:      c.Factors.ID(),
			Factors: c.Factors.Clone(),
			Grade:   grade(c.Grade),
			Reasons: reasons(c.Reasons),
			Metrics: declared(c.Metrics),
		},
		Ceiling: analysis.CellCeiling{
			Kind:             "none known",
			Bps:              c.Ceiling.Bps,
			Ratio:            c.Ceiling.Ratio,
			HeaderEfficiency: c.Ceiling.HeaderEfficiency,
			TesterRatio:      c.Ceiling.TesterRatio,
		},
		Findings:       []evidence.Finding{},
		GeneratorShare: c.GeneratorShare,
		Caveats:        caveats(c.Caveats, words),
		Runs:           c.Runs,
		Failed:         c.Failed,
	}
	if c.Ceiling.Bps > 0 {
		out.Ceiling.Kind = "link"
	}

	if c.Ceiling.TesterRatio > 0 {
		out.Ceiling.TesterKind = "the tester alone"
	}

	for name, v := range out.Metrics {
		if !slices.Contains([]string{statistics.IntervalSingle, statistics.IntervalRange,
			statistics.IntervalOrder, statistics.IntervalPooled}, v.Interval) {
			v.Interval = statistics.IntervalSingle
			out.Metrics[name] = v
		}
	}

	k := c.Consistency
	if k != nil {
		out.Consistency = &analysis.Consistency{Word: statistics.ConsistencyWord(k.Ratio), Ratio: k.Ratio}
	}

	x := c.Diagnosis
	if x != nil {
		out.Diagnosis = diagnosed(x)
	}

	return out
}

// diagnosed returns the classes of a diagnosis, with this program's own texts.
func diagnosed(x *diagnosis.Diagnosis) *diagnosis.Diagnosis {
	out := &diagnosis.Diagnosis{
		Class:  diagnosis.Unknown,
		Text:   diagnosis.LabelOf(""),
		Trials: x.Trials,
		Causes: []diagnosis.Cause{},
	}
	if _, ok := diagnosis.RuleOf(x.Class); ok {
		out.Class, out.Text, out.Confidence = x.Class, diagnosis.LabelOf(x.Class), x.Confidence
	}

	for _, cause := range x.Causes {
		if _, ok := diagnosis.RuleOf(cause.Class); ok {
			out.Causes = append(out.Causes, diagnosis.Cause{
				Class:      cause.Class,
				Node:       nodeForm().FindString(cause.Node),
				Text:       diagnosis.LabelOf(cause.Class),
				Confidence: cause.Confidence,
				Facts:      figures(cause.Facts),
			})
		}
	}

	return out
}

func trialOf(t *analysis.TrialView, words map[string]bool) analysis.TrialView {
	out := analysis.TrialView{
		Row: rowForm().FindString(t.Row),
		Assignment: record.Assignment{
			Block:   t.Block,
			Index:   t.Index,
			Kind:    among(t.Kind, record.RowLoad, record.RowIdle, record.RowVerify),
			Factors: t.Factors.Clone(),
		},
		TrialHead: record.TrialHead{
			ID:      rowForm().FindString(t.ID),
			Started: t.Started.UTC().Truncate(time.Second),
			Phases:  []record.Phase{},
			Caveats: caveats(t.Caveats, words),
		},
		Seconds: t.Seconds,
		Grade:   grade(t.Grade),
		Reasons: reasons(t.Reasons),
		Metrics: declared(t.Metrics),
	}
	s := t.Series
	if s != nil && len(s.Quantile) > 0 {
		out.Series = &analysis.Series{T: []float64{}, Quantile: map[string][]float64{}}
		for _, kind := range []string{"idle", "loaded"} {
			if q, ok := s.Quantile[kind]; ok {
				out.Series.Quantile[kind] = slices.Clone(q[:min(len(q), len(analysis.QuantileLevels))])
			}
		}
	}

	return out
}
