// Package bundle turns a run's document into a file for publication, reads such files, and compares their
// results with published ones. A bundle contains only the fields of its format: no name of a host, user or
// file, no address, no key, and no free text except the words that the author typed for it.
package bundle

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/ciphers"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/cipher"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Format is the version of the format. Read returns an error for any other version.
const Format = "chokepoint-bundle/1"

// MaxSize is the maximum size of a bundle in bytes.
const MaxSize = 16 << 20

// Bundle is a published run of one device.
type Bundle struct {
	Format     string            `json:"format"` // "chokepoint-bundle/1"
	Device     string            `json:"device"`
	Firmware   string            `json:"firmware,omitempty"`
	Note       string            `json:"note,omitempty"`
	Conditions map[string]string `json:"conditions"` // the lab, and the plan's ambient, link and watts
	// Document is the run's document as printed by show --json, reduced to the publishable fields.
	Document *analysis.Document `json:"document"`
}

// New returns a bundle of a run. It returns an error if the device, firmware or note may identify the author.
func New(device, firmware, note string, d *analysis.Document) (*Bundle, error) {
	from := d.Run.ImportedFrom
	if len(from) > 0 {
		return nil, check.Hinted(
			"chokepoint list shows the runs; publish an imported run as the file that it came from",
			"run %s was imported from %s: a bundle holds what chokepoint measured itself", d.Run.ID,
			strings.Join(from, ", "))
	}

	b := &Bundle{
		Format:     Format,
		Device:     device,
		Firmware:   firmware,
		Note:       note,
		Conditions: maps.Clone(d.Conditions),
		Document:   d,
	}
	if err := b.settle(d.Catalogue); err != nil {
		return nil, err
	}

	if b.empty() {
		return nil, check.Hinted("chokepoint show "+d.Run.ID+" shows what was measured",
			"run %s has no rate of a router to publish, and no speed of its ciphers", d.Run.ID)
	}

	if err := b.check(); err != nil {
		return nil, err
	}

	return b, nil
}

// empty reports whether the bundle contains neither rates nor cipher speeds that the catalogue could include.
func (b *Bundle) empty() bool { return len(Results(b.Document)) == 0 && len(Speeds(b.Document)) == 0 }

// settle checks a bundle and reduces it to the fields of the format.
func (b *Bundle) settle(c *factor.Catalogue) error {
	for _, text := range []struct {
		what, text string
		most       int
	}{{"device", b.Device, 60}, {"firmware", b.Firmware, 100}, {"note", b.Note, 400}} {
		switch found := identity(text.text); {
		case found != "":
			return check.Hinted("a bundle describes a device, not its owner: leave that out",
				"%s %q holds %s", text.what, text.text, found)
		case len(text.text) > text.most, text.text != check.Plain(text.text),
			text.text != strings.TrimSpace(text.text):
			return fmt.Errorf("%s is not a line of at most %d bytes", text.what, text.most)
		}
	}

	switch {
	case b.Device == "":
		return errors.New("device is missing")
	case strings.HasPrefix(b.Device, "("):
		return fmt.Errorf("device %q is in brackets, which name what is no device", b.Device)
	}

	for name, text := range b.Conditions {
		if !slices.Contains(conditions[:], name) || fact(text) == "" {
			delete(b.Conditions, name)
		}
	}

	d, err := anonymous(b.Document, c)
	if err != nil {
		return fmt.Errorf("document: %w", err)
	}

	b.Document = d
	if b.Conditions == nil {
		b.Conditions = map[string]string{}
	}

	b.Conditions["lab"] = d.Run.Lab
	return nil
}

// Encode returns the bundle as a file. The result is deterministic.
func (b *Bundle) Encode() ([]byte, error) {
	text, err := json.MarshalIndent(b, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encode bundle of %s: %v", b.Device, err)
	}
	return append(text, '\n'), nil
}

// ID returns an identifier derived from the bundle's content.
func (b *Bundle) ID() string {
	text, _ := json.Marshal(b) // cannot fail, because the bundle has already been encoded or decoded
	sum := sha256.Sum256(text)
	return fmt.Sprintf("own-%x", sum[:6])
}

// Read decodes a bundle from an untrusted file. An unknown field is an error. An unknown word, such as a
// metric of a newer version, is omitted. Errors name the file and, for JSON errors, the line.
func Read(name string, content []byte, c *factor.Catalogue) (*Bundle, error) {
	fail := func(err error) (*Bundle, error) { return nil, fmt.Errorf("read bundle %s: %w", name, err) }
	if len(content) > MaxSize {
		return fail(fmt.Errorf("%d bytes are more than the %d of a bundle", len(content), MaxSize))
	}

	var head struct {
		Format string `json:"format"`
	}
	if err := json.Unmarshal(content, &head); err != nil {
		return fail(placed(content, err))
	}

	if head.Format != Format {
		return fail(check.Hinted("chokepoint catalog add makes bundles of this version",
			"its format is %q, not %q", head.Format, Format))
	}

	b := &Bundle{}
	dec := json.NewDecoder(bytes.NewReader(content))
	dec.DisallowUnknownFields()
	if err := dec.Decode(b); err != nil {
		return fail(placed(content, err))
	}

	if _, err := dec.Token(); err != io.EOF {
		return fail(fmt.Errorf("line %d: more than one bundle", lineOf(content, dec.InputOffset())))
	}

	if b.Document == nil {
		return fail(errors.New("document is missing"))
	}

	err := b.settle(c)
	if err == nil {
		err = b.check()
	}

	if err != nil {
		return fail(err)
	}

	return b, nil
}

var unknownField = check.Pattern(`unknown field ("[^"]*")`)

// placed adds the line number to a JSON error.
func placed(content []byte, err error) error {
	offset := check.JSONOffset(err)
	m := unknownField().FindStringSubmatch(err.Error())
	if offset < 0 && m != nil { // encoding/json gives no offset for an unknown field
		offset = int64(bytes.Index(content, []byte(m[1])))
	}

	text := strings.TrimPrefix(check.JSONWords(err).Error(), "json: ")
	if offset < 0 {
		return errors.New(text)
	}

	return fmt.Errorf("line %d: %s", lineOf(content, offset), text)
}

func lineOf(content []byte, offset int64) int {
	return 1 + bytes.Count(content[:min(offset, int64(len(content)))], []byte("\n"))
}

// check returns an error for numbers that no run can have.
func (b *Bundle) check() error {
	d := b.Document
	if d.Format != record.Format {
		return fmt.Errorf("document: its format is %q, not %q", d.Format, record.Format)
	}

	if len(d.Cells) > maxCells || len(d.Trials) > maxTrials {
		return fmt.Errorf("document: %d cells and %d trials, at most %d and %d are read", len(d.Cells),
			len(d.Trials), maxCells, maxTrials)
	}

	var reasons []evidence.Reason
	for i, t := range d.Trials {
		reasons = append(reasons, t.Reasons...)
		values := slices.Collect(maps.Values(t.Metrics))
		if t.Series != nil {
			values = slices.Concat(values, t.Series.Quantile["idle"], t.Series.Quantile["loaded"])
		}

		if !sane(values...) {
			return fmt.Errorf("document: trials[%d]: a value is beyond all measures", i)
		}
	}

	seen := map[string]bool{}
	for i, cell := range d.Cells {
		c := cell.Ceiling
		if !sane(c.Bps, c.Ratio, c.HeaderEfficiency, c.TesterRatio) {
			return fmt.Errorf("document: cells[%d]: its ceiling is beyond all measures", i)
		}

		key := cell.Factors.Key()
		if seen[key] {
			return fmt.Errorf("document: cells[%d]: a cell of %s is there twice", i, key)
		}

		seen[key] = true
		reasons = append(reasons, cell.Reasons...)
		x := cell.Diagnosis
		if x != nil {
			for _, cause := range x.Causes {
				reasons = append(reasons, evidence.Reason{Facts: cause.Facts})
			}
		}

		for name, v := range cell.Metrics {
			outside := hasInterval(v.Low, v.High) && (v.Median < v.Low || v.Median > v.High)
			if v.N < 1 || outside || !sane(slices.Concat(v.Values, []float64{v.Low, v.Median, v.High})...) {
				return fmt.Errorf("document: cells[%d]: %s: median %v of %d is not within %v to %v", i, name,
					v.Median, v.N, v.Low, v.High)
			}
		}

		if v, ok := cell.Metrics[metrics.Goodput]; ok && (v.Low < 0 || v.Median < 0) {
			return fmt.Errorf("document: cells[%d]: %s: %v to %v is no rate", i, metrics.Goodput, v.Low,
				v.High)
		}
	}

	for _, r := range reasons {
		for _, e := range r.Facts {
			for _, v := range []*float64{e.Value, e.Low, e.High, e.Baseline} {
				if v != nil && !sane(*v) {
					return fmt.Errorf("document: a fact of %s is beyond all measures", e.Metric)
				}
			}
		}
	}

	if b.empty() {
		return errors.New("document: no cell has a rate of a router or a speed of its ciphers")
	}

	return nil
}

// These limit the input, so that drawing a chart of it takes bounded time.
const (
	maxCells, maxTrials = 2000, 100_000
	maxValue            = 1e15
)

func sane(values ...float64) bool {
	return !slices.ContainsFunc(values, func(v float64) bool { return v > maxValue || v < -maxValue })
}

func hasInterval(low, high float64) bool { return low != 0 || high != 0 }

// Own is the result of one cell of a run, for comparison with published results.
type Own struct {
	catalogue.Result
	Label string         `json:"label"`
	Cell  *analysis.Cell `json:"-"` // cell that the result comes from
}

// RunDevice is the device name in the results of a run, because a run does not name its device.
const RunDevice = "run"

// families lists tunnels with several variants. Studies use a single name for all variants.
var families = [...]string{"wireguard", "openvpn", "esp"}

// Results returns the goodput of each cell of a run, except cells without a router.
func Results(d *analysis.Document) []Own {
	var out []Own
	for i := range d.Cells {
		cell := &d.Cells[i]
		f := cell.Factors
		v := cell.Metrics[metrics.Goodput]
		if !(v.Median > 0) || factor.Topology.Is(f, "direct") {
			continue
		}

		tunnel := cmp.Or(factor.Tunnel.Of(f), factor.NoTunnel)
		for _, family := range families {
			if strings.HasPrefix(tunnel, family+"-") {
				tunnel = family
			}
		}

		firewall := ""
		if factor.NAT.In(f) && !factor.NAT.Is(f, factor.Off) {
			firewall = "NAT"
		}

		out = append(out, Own{catalogue.Result{
			Source:     d.Run.ID,
			Device:     RunDevice,
			Tool:       cmp.Or(strings.Join(d.Run.ImportedFrom, ", "), "chokepoint"),
			Statistic:  "median",
			Runs:       v.N,
			Seconds:    d.Run.Method.Duration.Seconds(),
			Tunnel:     tunnel,
			Protocol:   factor.Protocol.Of(f),
			IP:         factor.IP.Of(f),
			Direction:  factor.Direction.Of(f),
			Streams:    factor.Streams.Number(f),
			MTU:        factor.MTU.Number(f),
			Packet:     factor.PacketSize.Number(f),
			Firewall:   firewall,
			Condition:  strings.Join(unusual(d.Catalogue, f), ", "),
			GoodputBps: new(v.Median),
			Spread:     (v.High - v.Low) / 2 / v.Median,
			Grade:      cell.Grade,
			Lab:        InPlaceOf(d),
		},
			cell.Label, cell})
	}
	return out
}

// Speeds returns the median speeds of a run's cipher cells. Published speeds were measured with one thread of
// openssl on a stream of data. The field Mode describes how a cell differs from such a measurement. It is
// empty if the speeds are comparable.
func Speeds(d *analysis.Document) (out []catalogue.Speed) {
	for _, cell := range d.Cells {
		if !factor.Engine.Is(cell.Factors, factor.CipherEngine) {
			continue
		}

		c := cipher.CellOf(cell.Factors, 0)
		s := catalogue.Speed{
			Source:    d.Run.ID,
			Device:    RunDevice,
			Algorithm: c.Algorithm,
			Operation: c.Operation,
			Block:     c.Block,
			Unit:      c.Unit(),
		}
		metric := metrics.CipherOps
		scale := 1.0
		if s.Unit == "B/s" {
			metric = metrics.CipherRate
			scale = 8
			s.Operation = "throughput"
		}

		v := cell.Metrics[metric]
		if !(v.Median > 0) {
			continue
		}

		s.Value = new(v.Median / scale)
		want, _ := ciphers.CellOfPublished(s)
		threads := cipher.ThreadsFactor.Of(cell.Factors)
		var words []string
		for _, x := range [...]struct{ is, usual, text string }{{c.Library, want.Library, c.Library},
			{c.Operation, want.Operation, c.Operation}, {c.Mode, want.Mode, c.Mode},
			{threads, "1", threads + " threads"}, {InPlaceOf(d), "", "lab " + InPlaceOf(d)},
			{cell.Grade, evidence.GradeValid, cell.Grade}} {
			if x.is != x.usual {
				words = append(words, x.text)
			}
		}

		s.Mode = strings.Join(words, ", ")
		out = append(out, s)
	}
	return out
}

// stated lists the factors that have a field in catalogue.Result.
var stated = [...]factor.Name{factor.Tunnel, factor.Protocol, factor.IP, factor.Direction, factor.Streams,
	factor.MTU, factor.PacketSize, factor.NAT, factor.Topology}

// Join returns a catalogue with the results of bundles added to the results of studies. Each bundle becomes a
// source.
func Join(c *catalogue.Catalogue, all []*Bundle) *catalogue.Catalogue {
	out := &catalogue.Catalogue{
		Sources: slices.Clone(c.Sources),
		Devices: slices.Clone(c.Devices),
		Results: slices.Clone(c.Results),
		Speeds:  slices.Clone(c.Speeds),
		Powers:  slices.Clone(c.Powers),
	}
	for _, b := range all {
		id := b.ID()
		out.Sources = append(out.Sources, catalogue.Source{
			ID:        id,
			About:     b.about(),
			Licence:   "none stated",
			Published: b.Document.Run.Started.Format("2006"),
		})
		device, known := out.Device(b.Device)
		if !known {
			device = b.device(id)
			out.Devices = append(out.Devices, device)
		}

		for i, own := range Results(b.Document) {
			r := own.Result
			r.Row = i + 1
			r.Source = id
			r.Device = device.Name
			r.Measured = b.Document.Run.Started.Format("2006")
			r.Condition = b.condition(own)
			out.Results = append(out.Results, r)
		}

		for _, s := range Speeds(b.Document) {
			s.Source = id
			s.Device = device.Name
			out.Speeds = append(out.Speeds, s)
		}

		for _, cell := range b.Document.Cells {
			if v, ok := cell.Metrics[metrics.PowerLoaded]; ok && b.InPlace() == "" {
				low := v.Low
				high := v.High
				if !hasInterval(low, high) {
					low = v.Median
					high = v.Median
				}

				out.Powers = append(out.Powers, catalogue.Power{
					Source: id,
					Device: device.Name,
					Load:   cell.Label,
					Low:    &low,
					High:   &high,
				})
			}
		}
	}
	return out
}

// InPlace calls InPlaceOf for the bundle's document.
func (b *Bundle) InPlace() string { return InPlaceOf(b.Document) }

// InPlaceOf returns "" if the run measured a device. If the run measured the lab's own machine, InPlaceOf
// returns the lab, followed by ", emulated" if the routers were emulated.
func InPlaceOf(d *analysis.Document) string {
	lab := d.Run.Lab
	_, guest := record.GuestArch(lab)
	if !guest && !record.InNamespaces(lab) {
		return ""
	}

	if d.Emulated() {
		lab += ", emulated"
	}

	return lab
}

func (b *Bundle) about() string {
	words := "own run of " + b.Device
	if b.Firmware != "" {
		words += ", " + b.Firmware
	}

	lab := b.InPlace()
	if lab != "" {
		words += ", in lab " + lab
	}

	return words
}

// condition describes the conditions of a result that its fields do not cover: other factors, a lab instead
// of the device, and the firmware.
func (b *Bundle) condition(own Own) string {
	words := unusual(b.Document.Catalogue, own.Cell.Factors)
	if own.Lab != "" {
		words = append([]string{"lab " + own.Lab}, words...)
	}

	if b.Firmware != "" {
		words = append(words, b.Firmware)
	}

	return strings.Join(words, ", ")
}

// unusual returns the words for levels that differ from the default. It considers only factors that have no
// field in catalogue.Result.
func unusual(c *factor.Catalogue, f record.Factors) (words []string) {
	names := f.Names()
	c.Sort(names)
	for _, name := range names {
		level := f[name]
		d := c.Of(name)
		usual := slices.Contains([]string{"", "-", factor.Off, "default", "auto", d.Default}, level)
		if !usual && !slices.Contains(stated[:], factor.Name(name)) {
			words = append(words, d.Words(level))
		}
	}

	return words
}

// device returns the device, with the properties that the run recorded.
func (b *Bundle) device(source string) catalogue.Device {
	d := catalogue.Device{Name: b.Device, OS: b.Firmware, Source: source, Note: b.Note}
	for _, e := range b.Document.Environment {
		if e.Node == "router" && b.InPlace() == "" {
			d.SoC = e.Facts["cpu_model"]
			d.Arch = e.Facts["machine"]
			d.Cores, _ = strconv.Atoi(e.Facts["cpu_cores"]) // 0 if unknown
		}
	}
	return d
}

// Sound reports whether a result may represent its device: a published result, or a valid cell of a run on
// the device itself.
func Sound(r catalogue.Result) bool {
	return r.Lab == "" && (r.Grade == "" || r.Grade == evidence.GradeValid)
}
