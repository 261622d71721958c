package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/ciphers"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/model"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/bundle"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

func newCatalogCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "catalog",
		Short: "Show published results of routers, and share your own",
		Long: `Show published results of five studies: devices, throughput, cipher speeds and power,
each with its source and how it was measured. The results are built in; nothing is
fetched. An empty field means that the study does not state the value.

The tables also contain bundles: runs of yours that catalog add has prepared, and those
that others gave you, in one folder.

Begin with devices, to see what was measured. results lists the rates of a router, and
compares two routers or your run with them; crypto and power do so for ciphers and
watts; sources names the studies. add makes a bundle of a run of yours, for others; build
makes a web site of all. advise and predict draw conclusions from the same data.`,
	}
	cmd.AddCommand(newCatalogAddCommand(p), newCatalogBuildCommand(p), newCatalogDevicesCommand(p),
		newCatalogResultsCommand(p), newCatalogCryptoCommand(p), newCatalogPowerCommand(p),
		newCatalogSourcesCommand(p))
	return cmd
}

func newCatalogSourcesCommand(p *program) *cobra.Command {
	return addJSON(&cobra.Command{
		Use:   "sources",
		Short: "List the studies, their addresses, and the licence of their data",
		Long: `List the studies whose results are built in, with the address where each explains how it
measured and the licence of its data. SOURCE is the ID that --source of the other
commands takes.`,
		RunE: func(*cobra.Command, []string) error {
			c, err := catalogue.Published()
			if err != nil {
				return err
			}
			return printList(p, c.Sources, "SOURCE | ABOUT | PUBLISHED | LICENCE | ADDRESS",
				func(s catalogue.Source) []any {
					return []any{s.ID, s.About, cmp.Or(s.Published, "-"), s.Licence, cmp.Or(s.URL, "-")}
				})
		},
	}, "print one JSON object per row")
}

// cipherAdvice describes, for each device, which cipher and VPN suit it.
func cipherAdvice(c *catalogue.Catalogue) string {
	var b builder
	for _, d := range c.Devices {
		advice := ciphers.Advise(ciphers.OfPublished(c.SpeedsOf(d.Name)))
		if len(advice) > 0 {
			b.printf("\n%s\n", d.Name)
		}

		for _, a := range advice {
			b.printf("  %s: %s\n", a.Kind, a.Text)
		}
	}
	return b.String()
}

func speedRow(s catalogue.Speed) []any {
	return []any{s.Device, s.Algorithm, s.Operation, s.Text(), orDash(s.Block, " B"), s.Source,
		cmp.Or(s.Mode, "-")}
}

func newCatalogDevicesCommand(p *program) *cobra.Command {
	var source, bundles string
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "List the devices of the catalogue",
		Long: `List the devices that a study or a bundle has measured, with processor, ports and
system, as the study states them. Notes below the table name what a study leaves open or
states wrongly.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := p.joined(cmd.Context(), bundles, "")
			if err == nil {
				err = knownSource(c, source)
			}

			if err != nil {
				return err
			}

			devices := without(c.Devices, func(d catalogue.Device) bool {
				return source != "" && d.Source != source
			})
			err = printList(p, devices,
				"DEVICE | SOC | ARCHITECTURE | CORES | CLOCK | PORT | SYSTEM | SOURCE", deviceRow)
			noted := without(devices, func(d catalogue.Device) bool { return d.Note == "" })
			return p.withNote(err, paragraph(each(noted, func(d catalogue.Device) string {
				return d.Name + ": note: " + d.Note
			})))
		},
	}
	cmd.Flags().StringVar(&source, "source", "", "only results of the study `ID`")
	addBundles(cmd, &bundles)
	return addJSON(cmd, "print one JSON object per device")
}

func deviceRow(d catalogue.Device) []any {
	port := cmp.Or(d.Port, "-")
	if d.Port == "" && d.Link != "" {
		port = "study's link " + d.Link
	}

	return []any{d.Name, d.SoC, d.Arch, orDash(d.Cores, ""), orDash(d.ClockMHz, " MHz"), port,
		cmp.Or(strings.TrimSpace(d.OS+" "+d.OSVersion), "-"), d.Source}
}

func orDash(n int, unit string) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n) + unit
}

// knownSource and knownDevice return an error for a name that is not in the catalogue. An empty name is
// allowed.
func knownSource(c *catalogue.Catalogue, id string) error {
	return known("--source %q is not in the catalogue", id, "studies", sourceIDs(c)...)
}

func sourceIDs(c *catalogue.Catalogue) []string {
	return each(c.Sources, func(s catalogue.Source) string { return s.ID })
}

// catalogTunnels lists the tunnels of published results.
var catalogTunnels = []string{factor.NoTunnel, "wireguard", "openvpn", "esp"}

func knownDevice(c *catalogue.Catalogue, flag, name string) error {
	// A study may report only the power of a device.
	ofPower := func(w catalogue.Power) string { return w.Device }
	names := distinct(append(c.Names(), each(c.Powers, ofPower)...))
	for _, n := range names {
		if strings.EqualFold(n, name) {
			return nil
		}
	}

	return known(flag+" %q is not in the catalogue", name, "devices", names...)
}

// catalogTunnelWords lists the tunnels for the help of a flag.
func catalogTunnelWords() string { return list(catalogTunnels) + ",\nor ipsec, which is esp" }

// tunnelCalled returns the catalogue's name for a tunnel: esp for ipsec. Nested tunnels are joined by +.
func tunnelCalled(name string) string {
	parts := strings.Split(name, "+")
	for i, part := range parts {
		parts[i] = cmp.Or(factor.Spoken(part), part)
	}
	return strings.Join(parts, "+")
}

// knownLevels checks the filters of results. "" and 0 mean no filter.
func knownLevels(tunnel, protocol, ip string, streams, mtu int) error {
	return cmp.Or(
		known("--tunnel %q is not in the catalogue", tunnel, "tunnels", catalogTunnels...),
		known("--protocol %q is not in the catalogue", protocol, "protocols", "tcp", "udp"),
		known("--ip %q is no version of IP", ip, "versions", "4", "6"),
		between("", "streams", cmp.Or(streams, 1), 1, 1000),
		between("", "mtu", cmp.Or(mtu, 576), 576, maxPacket))
}

// asksForZero returns an error if a flag is set to 0. Internally, 0 means that the flag is not set.
func asksForZero(cmd *cobra.Command, names ...string) error {
	for _, name := range names {
		f := cmd.Flags().Lookup(name)
		if f.Changed && f.Value.String() == "0" {
			return app.Usage("leave it out, or give a number above 0", "--%s is 0", name)
		}
	}
	return nil
}

func newCatalogResultsCommand(p *program) *cobra.Command {
	var f catalogue.Filter
	var beside, against, bundles string
	cmd := &cobra.Command{
		Use:   "results",
		Short: "List published rates, compare two devices, or compare your own run",
		Long: `List published rates with how each was measured. A row is one rate that a study
printed, of one real device under the conditions that the study states, or one cell of
a bundle's run. ROW numbers the rows of each source.

--beside lists the rates that are comparable with a cell of your run: both agree in
tunnel, protocol, streams, MTU, packet size, IP version and direction, as far as both
state them. Conditions that only one of the two states are listed. A bundle of the same
run is left out. --against shows rates of two devices side by side if they agree in all
other conditions that both studies state.

Below the rows, it lists results that no device can have produced: a rate above the
port's, or rates at several packet sizes that no fixed cost per packet and per byte can
explain.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.Tunnel = tunnelCalled(f.Tunnel)
			c, d, err := p.joined(cmd.Context(), bundles, beside)
			if err == nil {
				err = cmp.Or(asksForZero(cmd, "streams", "mtu"), knownLevels(f.Tunnel, f.Protocol, f.IP,
					f.Streams, f.MTU), knownSource(c, f.Source), knownDevice(c, "--device", f.Device),
					knownDevice(c, "--against", against))
			}

			switch {
			case err != nil:
				return err
			case against != "" && (f.Device == "" || strings.EqualFold(f.Device, against)):
				return app.Usage("add --device NAME", "--against wants another device beside it")
			}

			rows := c.Filtered(f)
			if against != "" {
				f.Device = against
				return p.sideBySide(c, rows, c.Filtered(f))
			}

			if len(rows) == 0 {
				return app.Hinted("chokepoint advise and chokepoint predict show what bounds such a rate",
					"no study or bundle has a rate with %s", model.Words(catalogue.Result{
						Device:   f.Device,
						Tunnel:   f.Tunnel,
						Protocol: f.Protocol,
						Streams:  f.Streams,
						MTU:      f.MTU,
						IP:       f.IP,
						Source:   f.Source,
					}))
			}

			if d != nil {
				return p.printBeside(rows, d)
			}

			err = printList(p, rows, "ROW | DEVICE | TUNNEL | PROTOCOL | STREAMS | MTU | IP | CONDITIONS | "+
				"RATE | RETRANSMITS | CPU | PACKETS | HOW | SOURCE", resultRow)
			return p.withNote(err, notesText(rows)+impossibleText(c,
				rows))
		},
	}
	fl := cmd.Flags()
	addDevice(cmd, &f.Device)
	fl.StringVar(&f.Source, "source", "", "only results of the study `ID`")
	fl.StringVar(&f.Tunnel, "tunnel", "", "only those through the tunnel `NAME`: "+catalogTunnelWords())
	fl.StringVar(&f.Protocol, "protocol", "", "only those of the protocol `NAME`: tcp or udp")
	fl.StringVar(&f.IP, "ip", "", "only those of the IP `VERSION` 4 or 6")
	fl.IntVar(&f.Streams, "streams", 0, "only those with `N` streams")
	fl.IntVar(&f.MTU, "mtu", 0, "only those with an inner MTU of `BYTES`")
	fl.StringVar(&against, "against", "", "compare --device with the device `NAME`, side by side")
	addBeside(cmd, p, &beside)
	cmd.MarkFlagsMutuallyExclusive("against", "beside")
	addBundles(cmd, &bundles)
	return addJSON(cmd, "print one JSON object per result")
}

// notesText lists the notes and inferences of published rows, each with the numbers of the rows.
func notesText(rows []catalogue.Result) string {
	var texts []string
	of := map[string][]string{}
	for _, r := range rows {
		for _, n := range [...]struct{ kind, text string }{{"note", r.Note}, {"inferred", r.Inferred}} {
			if n.text == "" {
				continue
			}

			text := n.kind + ": " + n.text
			if of[text] == nil {
				texts = append(texts, text)
			}

			of[text] = append(of[text], strconv.Itoa(r.Row))
		}
	}

	return paragraph(each(texts, func(text string) string {
		word := "row "
		if len(of[text]) > 1 {
			word = "rows "
		}
		return word + list(of[text]) + ": " + text
	}))
}

// impossibleText explains which of the results in rows no device could have reached. It considers only sound
// results.
func impossibleText(c *catalogue.Catalogue, rows []catalogue.Result) string {
	impossible := func(text string) string { return "\nimpossible: " + text + "\n" }
	reasons := model.Impossible(c, without(c.Results, unsound), without(rows, unsound))
	return strings.Join(each(reasons, impossible), "")
}

func resultRow(r catalogue.Result) []any {
	retransmits := "-"
	cpu := "-"
	packets := "-"
	if r.PacketRate != nil {
		packets = unit.PacketRate(*r.PacketRate).String()
	}

	if r.Retransmits != nil {
		retransmits = strconv.FormatFloat(*r.Retransmits, 'f', -1, 64)
	}

	if r.CPULow != nil {
		cpu = unit.Percent(*r.CPULow)
		if r.CPUHigh != nil && *r.CPUHigh != *r.CPULow {
			cpu = fmt.Sprintf("%.3g to %.3g %%", *r.CPULow*100, *r.CPUHigh*100)
		}
	}

	size := orDash(r.MTU, "")
	if r.Packet > 0 {
		size = fmt.Sprint("packet ", r.Packet)
	}

	return []any{r.Row, r.Device, r.Tunnel, r.Protocol, orDash(r.Streams, ""), size,
		cmp.Or(r.IP, "-"), cmp.Or(r.Conditions(), "-"), r.Rate(), retransmits, cpu, packets, howOf(r),
		r.Source}
}

// howOf describes how a result was measured, and its grade if it is not valid.
func howOf(r catalogue.Result) string {
	if r.Grade != "" && !bundle.Sound(r) {
		return r.How() + ", " + r.Grade
	}
	return r.How()
}

// whereOf is like howOf, but if the result was measured in a lab instead of on the device, it names the lab
// in place of the grade.
func whereOf(r catalogue.Result) string {
	if r.Lab != "" {
		return r.How() + ", in lab " + r.Lab
	}
	return howOf(r)
}

// inPlaceText explains that a run has no real router to compare with published results. It returns "" for a
// run on real machines.
func inPlaceText(d *analysis.Document) string {
	lab := bundle.InPlaceOf(d)
	if lab == "" {
		return ""
	}
	return fmt.Sprintf("\nRun %s is of lab %s: the machine that carries the lab\nstood in for the router. "+
		"Published figures are of real devices: the ratio compares\nthat machine with them, not a router "+
		"with a router.\n", d.Run.ID, lab)
}

func resultsOf(d *analysis.Document) []catalogue.Result {
	return each(bundle.Results(d), func(o bundle.Own) catalogue.Result { return o.Result })
}

// suspectText states how many of a run's rates are suspect. A prediction from suspect rates is also suspect.
func suspectText(results []catalogue.Result) string {
	n := model.Suspect(results)
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("\n%d of the run's %d rates are suspect: chokepoint show says why.\n", n, len(results))
}

// beside compares a published result with a cell of the user's run.
type beside struct {
	Published catalogue.Result `json:"published"`
	Own       bundle.Own       `json:"own"`
	Ratio     float64          `json:"ratio"`      // own ÷ published
	Unstated  []string         `json:"not_stated"` // fields that only one of the two results has
}

// circumstances lists the fields that the user's run lacks, or for which it uses other words than studies do.
var circumstances = strings.Fields("device source measured condition queue clock firewall")

// ratioOf returns b ÷ a, and the fields that only one of the two results has. The ratio is 0 if the results
// differ in a field that is not in aside.
func ratioOf(a, b catalogue.Result, aside []string) (ratio float64, unstated []string) {
	differ, onlyA, onlyB := model.Differs(a, b)
	if a.GoodputBps == nil || b.GoodputBps == nil || *a.GoodputBps == 0 ||
		slices.ContainsFunc(differ, func(name string) bool { return !slices.Contains(aside, name) }) {
		return 0, nil
	}
	return *b.GoodputBps / *a.GoodputBps, slices.DeleteFunc(append(onlyA, onlyB...), func(name string) bool {
		return name == "source" || name == "measured"
	})
}

// sideBySide prints a comparison of two devices' results.
func (p *program) sideBySide(c *catalogue.Catalogue, of, against []catalogue.Result) error {
	type pair struct {
		A        catalogue.Result `json:"a"`
		B        catalogue.Result `json:"b"`
		Ratio    float64          `json:"ratio"`      // b ÷ a
		Unstated []string         `json:"not_stated"` // fields that only one of the two results has
	}
	var pairs []pair
	for _, a := range of {
		for _, b := range against {
			ratio, unstated := ratioOf(a, b, []string{"device", "source", "measured"})
			if ratio > 0 {
				pairs = append(pairs, pair{a, b, ratio, unstated})
			}
		}
	}

	if len(pairs) == 0 {
		return errors.New("no two results of these devices are alike in all else that both state")
	}

	const head = "A | ROW | RATE | HOW | B | ROW | RATE | HOW | B ÷ A | A AT | ONLY ONE STATES"
	err := printList(p, pairs, head, func(x pair) []any {
		at := x.A
		at.Device = ""
		at.Source = ""
		at.Measured = ""
		return []any{x.A.Device, x.A.Row, x.A.Rate(), howOf(x.A), x.B.Device, x.B.Row, x.B.Rate(), howOf(x.B),
			ratioText(x.Ratio), model.Words(at), list(x.Unstated)}
	})
	return p.withNote(err, impossibleText(c, slices.Concat(of, against)))
}

// printBeside prints a run's results beside published results of similar cells.
func (p *program) printBeside(rows []catalogue.Result, d *analysis.Document) error {
	own := bundle.Results(d)
	if len(own) == 0 {
		return app.Hinted("chokepoint catalog crypto --beside "+d.Run.ID+" compares the speed of ciphers",
			"run %s has no rate of a path", d.Run.ID)
	}

	var pairs []beside
	for _, r := range rows {
		for _, o := range own {
			ratio, unstated := ratioOf(r, o.Result, circumstances)
			if ratio > 0 {
				pairs = append(pairs, beside{r, o, ratio, unstated})
			}
		}
	}

	if len(pairs) == 0 {
		return fmt.Errorf("no cell of run %s is comparable with any of %s", d.Run.ID,
			unit.Count(len(rows), "published result"))
	}

	const head = "ROW | DEVICE | PUBLISHED | HOW | OWN CELL | OWN | HOW | OWN ÷ PUBLISHED | VALIDITY | " +
		"ONLY ONE STATES"
	err := printList(p, pairs, head, func(x beside) []any {
		how := x.Own.How()
		if x.Own.Lab != "" {
			how += ", in lab " + x.Own.Lab
		}

		if len(d.Run.ImportedFrom) > 0 {
			how += ", measured by " + x.Own.Tool
		}

		return []any{x.Published.Row, x.Published.Device, x.Published.Rate(),
			whereOf(x.Published), x.Own.Label, x.Own.Rate(), how, ratioText(x.Ratio),
			x.Own.Grade, list(x.Unstated)}
	})
	return p.withNote(err, inPlaceText(d))
}

// withNote prints a text below a table, unless the output is JSON.
func (p *program) withNote(err error, text string) error {
	if err != nil || p.json {
		return err
	}
	return p.print(p.fitted(text))
}

// modelErrors prints how far the estimates of predict's models deviate from the published rates, or from the
// results of a run's cells.
func (p *program) modelErrors(ctx context.Context, run string, rows bool) error {
	c, err := catalogue.Published()
	if err != nil {
		return err
	}

	results := c.Results
	of := model.OfPublished
	if run != "" {
		d, err := p.Dirs.Document(ctx, run)
		if err != nil {
			return err
		}

		if results, of = resultsOf(d), model.OfOwn; len(results) == 0 {
			return fmt.Errorf("run %s has no rate of a path: there is nothing to predict", d.Run.ID)
		}
	}

	scores := model.LeaveOneOut(c, results, of)
	impossible := paragraph(each(model.Impossible(c, results, results), func(text string) string {
		return "impossible: " + text
	}))
	text := errorsText(scores, rows, p.width()) + impossible + suspectText(results)
	return p.document(scores, p.fitted(text))
}

func errorsText(scores []model.Errors, rows bool, width int) string {
	var b builder
	lines := heading("MODEL | ESTIMATES | REFUSED | MEDIAN SIZE | p10 TO p90 | LEAST TO MOST | ≤ 5 % | " +
		"≤ 10 % | ≤ 25 % | ≤ 50 % | ≤ 100 % | MORE")
	for _, e := range scores {
		line := []any{e.Model, e.N, e.Refused, "-", "-", "-"}
		if e.N > 0 {
			line = append(line[:3], unit.Percent(e.Typical), signed(e.Low)+" to "+signed(e.High),
				signed(e.Least)+" to "+signed(e.Most))
		}

		for _, n := range e.Within() {
			line = append(line, n)
		}

		lines.add(line...)
	}

	b.WriteString("Errors of estimates, estimated ÷ measured - 1. The median size is without signs; " +
		"elsewhere + is an estimate that is too high.\n\n" + layout(lines, width))
	for _, e := range scores {
		b.printf("\n%s refused:\n", e.Model)
		for _, reason := range e.Reasons() {
			b.WriteString("  " + reason + "\n")
		}

		if !rows {
			continue
		}

		lines := heading("  MEASURED | ESTIMATED | ERROR | OF")
		for _, s := range e.Scores {
			if s.Refused == "" {
				lines.add("  "+unit.Bitrate(s.MeasuredBps).String(), unit.Bitrate(s.EstimatedBps),
					signed(s.Error), s.Of)
			}
		}

		b.WriteString("\n" + layout(lines, width))
	}

	return b.String()
}

// signed formats a ratio as a signed percentage.
func signed(ratio float64) string {
	if ratio > 0 {
		return "+" + unit.Percent(ratio)
	}
	return unit.Percent(ratio)
}

// ratioText formats a ratio with three significant digits, or with a × sign if it is at least 10.
func ratioText(v float64) string {
	if v >= 10 {
		return unit.Ratio(v)
	}
	return unit.Significant(v, 3)
}
