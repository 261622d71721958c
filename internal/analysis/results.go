package analysis

import (
	"cmp"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// ResultsDerivation is the version of the output of Results. Stored results with another version are derived
// again.
const ResultsDerivation = 2

// Results returns the part of the document that a history of runs needs.
func (d *Document) Results() *record.Results {
	r := &record.Results{ResultFacts: record.ResultFacts{
		Derivation: ResultsDerivation,
		Device:     d.Run.Device,
	}}
	if d.Series != nil {
		r.Series = d.Series.ID
	}

	facts := d.testedFacts()
	r.Kernel = facts["kernel"]
	r.Firmware = cmp.Or(facts["firmware"], strings.TrimSpace(facts["distribution"]+" "+
		cmp.Or(facts["distribution_release"], facts["distribution_version"])))
	model := record.DeviceOf(facts, false)
	if d.foundDevice() && model != "" {
		r.Device = model
	}

	r.Device = cmp.Or(r.Device, d.Run.Lab)
	names := d.labelsWithoutFirmware()
	for i := range d.Cells {
		c := d.Cells[i].result()
		c.Label = names[c.Factors.Key()]
		r.Cells = append(r.Cells, c)
	}

	return r
}

// testedFacts returns the facts about the first router or, for a router in a namespace, about the machine
// whose kernel it uses.
func (d *Document) testedFacts() map[string]string {
	names := d.routers()
	if record.InNamespaces(d.Run.Lab) {
		names = append(names, record.HostNode)
	}

	for _, name := range names {
		facts := d.factsOf(name)
		if len(facts) > 0 {
			return facts
		}
	}

	return nil
}

// labelsWithoutFirmware returns the cells' labels without the factor firmware, keyed by the cells' other
// factors.
func (d *Document) labelsWithoutFirmware() map[string]string {
	out := map[string]string{}
	var cells []record.Factors
	for key, c := range d.withoutFirmware() {
		out[key] = c.Label
		cells = append(cells, factor.Firmware.With(c.Factors, ""))
	}

	if !slices.ContainsFunc(d.Cells, func(c Cell) bool { return factor.Firmware.In(c.Factors) }) {
		return out
	}

	for i, label := range Labels(d.Catalogue, cells) {
		out[cells[i].Key()] = label
	}

	return out
}

func (c *Cell) result() record.CellResult {
	r := record.CellResult{
		Factors:  factor.Firmware.With(c.Factors, ""),
		Firmware: factor.Firmware.Of(c.Factors),
		Grade:    c.Grade,
		Metrics:  map[string]record.Estimate{},
	}
	if len(c.Reasons) > 0 {
		r.Why = c.Reasons[0].Text
	}

	for _, metric := range comparison.ComparedMetrics {
		v, ok := c.Metrics[metric]
		if ok && v.N > 0 {
			r.Metrics[metric] = record.Estimate{N: v.N, Median: v.Median, Low: v.Low, High: v.High}
		}
	}

	for _, name := range headlines {
		_, has := r.Metrics[name]
		_, counted := r.Metrics[metrics.PacketRate]
		if has && r.Metric == "" && !(name == metrics.Goodput && counted) {
			r.Metric = name
		}
	}

	return r
}
