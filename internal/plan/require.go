package plan

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
	yaml "go.yaml.in/yaml/v4"
)

// placedRequirement is a threshold with its position in the file. It is kept until the cells are known.
type placedRequirement struct {
	at  *yaml.Node
	req record.Requirement
}

var (
	requireForm = check.Pattern(`^([a-z][a-z0-9_]*) *(>=|<=|>|<) *(\S.*?)(?: +where +(\S.*))?$`)
	// validityForm matches "validity = valid", with optional conditions.
	validityForm = check.Pattern(`^validity *= *(\S+)(?: +where +(\S.*))?$`)
	metricUnits  = [...]string{"_bps", "_pps", "_ratio", "_ns", "_bytes", "_hz", "_w", "_c", "_rpm", "_per_s"}
)

const (
	requireHint  = "write, for example, goodput >= 300M where nat=masquerade, streams=1"
	seeCells     = "remove it to see the cells with chokepoint run --dry-run"
	validityHint = "write validity: valid, or as an entry of the list validity = valid where nat=off"
)

// require reads the thresholds, which are a list or only {validity: valid}.
func (r *reader) require(n *yaml.Node, d *record.Design) error {
	if n.Kind == yaml.MappingNode {
		return r.requireValid(n, d)
	}

	return r.list(n, "require", func(_ int, item *yaml.Node) error {
		if item.Kind == yaml.MappingNode {
			return r.requireValid(item, d)
		}

		text, err := r.scalar(item, "a threshold")
		if err != nil {
			return err
		}

		text = strings.TrimSpace(text)
		found := validityForm().FindStringSubmatch(text)
		if found != nil {
			return r.addValidity(item, d, text, found[1], found[2])
		}

		found = requireForm().FindStringSubmatch(text)
		if found == nil {
			return r.fail(item, requireHint, "%q is not a threshold", text)
		}

		req := record.Requirement{Text: text, Op: found[2]}
		if req.Metric, err = r.metric(item, found[1]); err == nil {
			fits := func(t threshold) bool { return strings.HasSuffix(req.Metric, t.end) }
			i := slices.IndexFunc(thresholds[:], fits)
			var ok bool
			if req.Value, ok = thresholds[i].parse(found[3]); !ok {
				err = r.fail(item, thresholds[i].hint, "%q is not a value of %s", found[3], req.Metric)
			}
		}

		return r.addRequirement(item, d, req, found[4], err)
	})
}

// requireValid reads {validity: valid}.
func (r *reader) requireValid(n *yaml.Node, d *record.Design) error {
	return r.object(n, "require", []field{
		r.scalarOf("validity", func(n *yaml.Node, level string) error {
			return r.addValidity(n, d, record.Validity+" = "+level, level, "")
		}),
	})
}

// addValidity adds the requirement that cells be valid. No other grade can be required.
func (r *reader) addValidity(n *yaml.Node, d *record.Design, text, level, where string) error {
	var err error
	if level != "valid" {
		err = r.fail(n, validityHint, "validity: %q cannot be required", level)
	}
	req := record.Requirement{Text: text, Metric: record.Validity, Op: "="}
	return r.addRequirement(n, d, req, where, err)
}

// addRequirement adds a threshold with the conditions in where. wrong is the error, if any, that was found in
// the rest of the threshold's text. If wrong is not nil or the conditions are not valid, addRequirement adds
// nothing and returns an error.
func (r *reader) addRequirement(n *yaml.Node, d *record.Design, req record.Requirement, where string,
	wrong error) (err error) {
	wrong = r.note(wrong)
	req.Where, err = r.conditionsOf(n, where)
	if err = cmp.Or(err, wrong); err != nil {
		return err
	}

	d.Requirements = append(d.Requirements, req)
	r.where = append(r.where, placedRequirement{n, req})
	return nil
}

// metric returns the full name of a metric.
func (r *reader) metric(n *yaml.Node, name string) (string, error) {
	switch name { // short names that are not just the full name without its unit
	case "pps":
		return "packet_rate_pps", nil
	case "loss":
		return "loss_ratio", nil
	}

	for _, unit := range append([]string{""}, metricUnits[:]...) {
		if slices.Contains(r.v.Metrics, name+unit) {
			return name + unit, nil
		}
	}

	allowed := []string{"pps", "loss"}
	for _, m := range r.v.Metrics {
		allowed = append(allowed, withoutUnit(m))
	}

	ours := strings.NewReplacer("latency", "rtt", "ping", "rtt", "delay", "rtt", "speed", "goodput",
		"throughput", "goodput", "bandwidth", "goodput").Replace(name)
	return "", r.fail(n, choiceHint(ours, "metrics", allowed), "unknown metric %q", name)
}

// withoutUnit returns the name of a metric without its unit.
func withoutUnit(metric string) string {
	for _, unit := range metricUnits {
		if short, ok := strings.CutSuffix(metric, unit); ok {
			return short
		}
	}
	return metric
}

// threshold describes the thresholds of all metrics whose names have the suffix end. parse returns a value in
// the base unit.
type threshold struct {
	end, hint string
	parse     func(text string) (float64, bool)
}

// thresholds is searched in order; the first match applies.
var thresholds = [...]threshold{
	{"_bps", "write a bit rate, such as 300M", func(text string) (float64, bool) {
		v, err := unit.ParseBitrate(text)
		return float64(v), err == nil && v <= factor.MaxRate
	}},
	{"_pps", "write a packet rate, such as 250k", func(text string) (float64, bool) {
		v, err := unit.ParsePacketRate(text)
		return float64(v), err == nil && v <= factor.MaxRate
	}},
	{"_ns", "write a duration, such as 5ms", func(text string) (float64, bool) {
		d, err := parseDuration(text)
		return float64(d), err == nil
	}},
	{"_ratio", "write a percentage, such as 0.1 %", func(text string) (float64, bool) {
		if v, ok := parsePercent(text); ok {
			return v / 100, true
		}
		return parseDecimal(text)
	}},
	{"", "write a number", parseDecimal},
}

var decimalForm = check.Pattern(`^[0-9]{1,15}(\.[0-9]{1,15})?$`)

func parseDecimal(text string) (float64, bool) {
	v, err := strconv.ParseFloat(text, 64)
	return v, err == nil && decimalForm().MatchString(text)
}

// parsePercent parses a number with a percent sign.
func parsePercent(text string) (float64, bool) {
	number, isPercent := strings.CutSuffix(text, "%")
	v, ok := parseDecimal(strings.TrimSpace(number))
	return v, ok && isPercent
}

// conditionsOf parses conditions such as "nat=masquerade, streams=1".
func (r *reader) conditionsOf(n *yaml.Node, text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}

	where := map[string]string{}
	var failed error
	for _, part := range strings.Split(text, ",") {
		name, level, ok := strings.Cut(part, "=")
		name, level = strings.TrimSpace(name), strings.TrimSpace(level)
		f, err := r.lookup(n, name)
		_, twice := where[name]
		switch {
		case !ok:
			err = r.fail(n, requireHint, "%q is not factor=level", strings.TrimSpace(part))
		case twice:
			err = r.fail(n, "", "the threshold names %s twice", name)
		case err == nil:
			where[name], err = r.level(n, f, level)
		}

		if err != nil {
			failed = r.note(err)
		}
	}

	return where, failed
}

// checkWhere notes an error for a threshold that applies to no cell, or whose metric no cell can have.
// Skipped cells count, because their thresholds are reported as missed.
func (r *reader) checkWhere(p *Plan) {
	for _, w := range r.where {
		cells := slices.DeleteFunc(p.combinations(), func(c factor.Cell) bool { return !c.Has(w.req.Where) })
		if len(cells) == 0 {
			r.noCell(w)
			continue
		}

		if r.v.Absent == nil || w.req.Metric == record.Validity {
			continue
		}

		why := r.v.Absent(w.req.Metric, p.Design, cells[0])
		if !slices.ContainsFunc(cells, func(c factor.Cell) bool {
			return r.v.Absent(w.req.Metric, p.Design, c) == ""
		}) {
			r.note(r.fail(w.at, seeCells,
				"no cell can meet the threshold %q: %s", w.req.Text, why))
		}
	}
}

func (r *reader) noCell(w placedRequirement) {
	r.note(r.fail(w.at, seeCells, "no cell matches the threshold %q",
		w.req.Text))
}

// checkLevels is like checkWhere, but for a plan whose cells are unknown because of other errors. It notes an
// error only for a level that no cell would have even if the other errors were corrected.
func (r *reader) checkLevels(m *matrix) {
	listed := m.listed()
	for _, w := range r.where {
		for name, level := range w.req.Where {
			f, _ := r.v.Lookup(name)
			may := func(c combination) bool { return c.mayHave(f, level) }
			if len(listed) > 0 && !slices.ContainsFunc(listed, may) {
				r.noCell(w)
				break
			}
		}
	}
}
