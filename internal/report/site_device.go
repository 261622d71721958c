package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/ciphers"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/model"
	"github.com/chokepoint-lab/chokepoint/internal/bundle"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// published returns a reference to a number in the catalogue, or nil if the result lacks the number.
func published(r catalogue.Result, metric string, v *float64) *Number {
	if v == nil {
		return nil
	}
	return &Number{Cell: fmt.Sprint(r.Source, " ", r.Row), Metric: metric, Stat: r.Statistic, Value: *v}
}

func rateOfResult(r catalogue.Result) TableCell {
	cell := TableCell{
		Text: r.Rate(),
		Num:  published(r, goodput, r.GoodputBps),
		Long: strings.TrimPrefix(settingOf(r)+"; "+r.How(), "; "),
	}
	if r.GoodputBps == nil {
		cell.Tone = Quiet
	}
	return cell
}

// settingOf describes the conditions of a result: "TCP · 4 streams · MTU 1420 · IPv4 · up · queue cake".
func settingOf(r catalogue.Result) string { return strings.Join(settingWords(r), " · ") }

func settingWords(r catalogue.Result) []string {
	words := []string{strings.ToUpper(r.Protocol)}
	if r.Tunnel != "none" {
		words = append([]string{r.Tunnel}, words...)
	}

	if r.Streams > 0 {
		words = append(words, unit.Count(r.Streams, "stream"))
	}

	for _, w := range []struct {
		name string
		n    int
	}{{"packets of ", r.Packet}, {"MTU ", r.MTU}} {
		if w.n > 0 {
			words = append(words, fmt.Sprint(w.name, w.n))
		}
	}

	words = once(words, around("IPv", r.IP, ""))
	text := r.Conditions()
	if text != "" {
		words = append(words, strings.Split(text, ", ")...)
	}

	return words
}

// apart returns a name for each setting, made of the words that not all settings share. common holds the
// words that all settings share.
func apart(all [][]string) (names []string, common string) {
	shared := inAll(all)
	names = each(all, func(words []string) string {
		return cmp.Or(strings.Join(without(words, shared...), " · "), "nothing else stated")
	})
	return names, strings.Join(shared, " · ")
}

// resultTable returns a table with a row for each result, with all its conditions.
func (s *site) resultTable(id string, rows []catalogue.Result, devices bool) Table {
	t := Table{
		ID:    id,
		Cards: true,
		Columns: columns("Setting", "#Rate", "Validity", "#Retransmits",
			"#CPU|all cores", "#Packets", "How", "Source"),
	}
	for _, r := range rows {
		setting := TableCell{Text: settingOf(r)}
		if devices {
			setting = TableCell{Text: r.Device, Href: s.page[r.Device], Sub: setting.Text}
		}

		rate := rateOfResult(r)
		rate.Long = ""
		for _, n := range []Item{{Kind: "note", Text: r.Note}, {
			Kind: "inferred, not printed by the study",
			Text: r.Inferred,
		}} {
			if n.Text == "" {
				continue
			}

			rate.Mark = append(rate.Mark, noted(&t.Notes, n))
		}

		grade := none
		switch {
		case r.Grade != "":
			grade = graded(r.Grade)
			grade.Sub = around("lab ", r.Lab, "")
		case model.BeyondLink(s.Catalogue, r):
			grade = TableCell{Text: "impossible", Tone: Doubt, Long: "more than the link carries"}
		}

		retransmits := none
		cpu := none
		packets := none
		if r.Retransmits != nil {
			retransmits = TableCell{
				Text: fmt.Sprintf("%g", *r.Retransmits),
				Num:  published(r, "retransmits", r.Retransmits),
			}
		}

		if r.CPULow != nil {
			cpu = TableCell{Text: unit.Percent(*r.CPULow), Num: published(r, "cpu_low_ratio", r.CPULow)}
			if r.CPUHigh != nil && *r.CPUHigh != *r.CPULow {
				cpu.Pre, cpu.Sub = "to ", unit.Percent(*r.CPUHigh)
				cpu.More = published(r, "cpu_high_ratio", r.CPUHigh)
			}
		}

		if r.PacketRate != nil {
			packets = TableCell{
				Text: unit.PacketRate(*r.PacketRate).String(),
				Num:  published(r, "packet_rate_pps", r.PacketRate),
			}
		}

		t.row(setting, rate, grade, retransmits, cpu, packets, r.How(), s.sourceCell(r.Source))
	}

	t.dropEmpty()
	return t
}

// sourceCell links to the run or study or, if it has no address, describes it.
func (s *site) sourceCell(id string) TableCell {
	source, _ := s.Source(id)
	return TableCell{Text: id, Href: cmp.Or(s.page[id], source.URL, "sources.html"), Long: source.About}
}

const doubtWords = suspectWord + ", of a lab in place of the device, or more than the link carries"

// device returns the page of a device with published and own results.
func (s *site) device(name string) *sitePage {
	d, _ := s.Device(name)
	rows := s.Filtered(catalogue.Filter{Device: name})
	p := &sitePage{Name: s.page[name], Kind: "Device", Title: name}
	memory := ""
	if d.MemoryMB > 0 {
		memory = fmt.Sprint(d.MemoryMB, " MB")
	}

	p.Meta = given("SoC", d.SoC, "Architecture", d.Arch,
		"Cores", strings.TrimPrefix(coresCell(d).Text, none.Text), "Memory", memory, "Port", d.Port,
		"System", joined(" ", d.OS, d.OSVersion), "Ciphers in hardware", d.Crypto, "Note", d.Note,
		"Inferred, not printed by the study", d.Inferred, "Source", d.Source)
	p.Lead = counted(rows, s.SpeedsOf(name), s.powers(name))
	best := s.fastest(filter(rows, s.sound))
	if best != nil {
		p.Lead += fmt.Sprintf("; the best TCP rate is %s (%s)", best.Rate(), settingOf(*best))
	}

	p.Lead += "."
	p.Alerts = items("impossible", Doubt, s.Doubts[name]...)
	i := slices.IndexFunc(s.Bundles, func(b *bundle.Bundle) bool {
		return strings.EqualFold(b.Device, name) && b.InPlace() != ""
	})
	if i >= 0 {
		p.Alerts = append(p.Alerts, items("not the device", Doubt, "own runs in lab "+
			s.Bundles[i].InPlace()+" measured the machine that carried the lab in place of the device")...)
	}

	s.addRates(p, rows)
	s.addSpeeds(p, s.SpeedsOf(name))
	s.addPower(p, s.powers(name))
	return p
}

// addRates draws one chart per tunnel, with a bar for each result. The bars keep the order of their source.
func (s *site) addRates(p *sitePage, rows []catalogue.Result) {
	if len(rows) == 0 {
		return
	}

	section := Section{ID: "rates", Title: "Rates"}
	for _, tunnel := range distinct(rows, tunnelOf) {
		b := bars{Axis: "goodput", Unit: "bit/s"}
		var own, doubt, studies bool
		var settings [][]string
		for _, r := range rows {
			if r.Tunnel != tunnel || r.GoodputBps == nil {
				continue
			}

			one := bar{estimate: estimate{
				Class:  "c1",
				Text:   r.Rate(),
				Median: *r.GoodputBps,
				Doubt:  !s.sound(r),
				Title:  settingOf(r) + ": " + r.Rate() + ", " + r.How() + ", " + r.Source,
			}}
			if run, ok := s.own[r.Source]; ok {
				v := run.results[r.Row-1].Cell.Metrics[goodput]
				one.Class = "c2"
				one.Runs = v.Values
				one.Low = v.Low
				one.High = v.High
				one.Whisker = hasInterval(v)
				own = true
			} else {
				studies = true
			}

			doubt = doubt || one.Doubt
			group := r
			group.Tunnel = "none" // because the chart's title names the tunnel
			settings = append(settings, settingWords(group))
			b.Groups = append(b.Groups, barGroup{Bars: []bar{one}})
		}

		if len(settings) == 0 {
			continue
		}

		names, common := apart(settings)
		for i := range names {
			b.Groups[i].Name = names[i]
		}

		title := "Without a tunnel"
		if tunnel != "none" {
			title = "Through " + tunnelName(tunnel)
		}

		b.Label = title + ", one bar per result"
		var legend []LegendItem
		if studies {
			legend = append(legend, LegendItem{"bar c1", "published"})
		}

		caption := around("All: ", common, ". ")
		if own {
			legend = append(legend, LegendItem{"bar c2", "own run"})
			caption += "Of an own run: the median, every run as a dot, and the interval."
		}

		if doubt {
			legend = append(legend, LegendItem{"doubt c2", doubtWords + ": the table says which"})
		}

		section.add(Figure{ID: "rates-" + tunnel, Title: title, Caption: caption, Draw: b, Legend: legend})
	}

	t := s.resultTable("results", rows, false)
	t.Sorted, t.Caption = true, "Every result with what its source states."
	p.add(section, t)
}

// addSpeeds shows the speeds of ciphers, hashes and keys on one core.
func (s *site) addSpeeds(p *sitePage, speeds []catalogue.Speed) {
	if len(speeds) == 0 {
		return
	}

	section := Section{
		ID:    "ciphers",
		Title: "Ciphers",
		Lead:  "Speed of one core, but where the mode says otherwise.",
	}
	var charts []bars // one per block size, because smaller blocks are slower
	var blocks []int
	t := Table{ID: "speeds", Columns: columns("Algorithm", "Operation", "#Speed", "#Block", "Mode", "Source")}
	for _, x := range speeds {
		speed := TableCell{Text: x.Text(), Tone: Quiet}
		block := none
		if x.Value != nil {
			number := Number{fmt.Sprint(x.Source, " ", x.Algorithm, " ", x.Block, " ", x.Mode), x.Operation,
				"speed", *x.Value}
			speed = TableCell{Text: x.Text(), Num: &number}
			if x.Unit == "B/s" {
				number.Value *= 8
			}

			// Results of own runs that cannot be compared with published results appear only in the table.
			_, own := s.own[x.Source]
			if x.Unit == "B/s" && (x.Mode == "" || !own) {
				i := index(&blocks, x.Block)
				if i == len(charts) {
					charts = append(charts, bars{
						Axis: "one core",
						Unit: "bit/s",
						Label: fmt.Sprintf(
							"Throughput of ciphers and hashes on one core, blocks of %d bytes", x.Block),
					})
				}

				charts[i].Groups = append(charts[i].Groups, barGroup{x.Algorithm, []bar{{estimate: estimate{
					Class:  "c1",
					Text:   speed.Text,
					Median: number.Value,
					Title: x.Algorithm + ": " + speed.Text + ", " +
						x.Source,
				}}}})
			}
		}

		if x.Block > 0 {
			block = TableCell{Text: fmt.Sprint(x.Block, " B")}
		}

		t.row(x.Algorithm, x.Operation, speed, block, textCell(x.Mode), s.sourceCell(x.Source))
	}

	for i, b := range charts {
		b.sort()
		section.add(Figure{
			ID:    fmt.Sprint("cipher-speeds-", blocks[i]),
			Draw:  b,
			Title: fmt.Sprintf("Throughput, blocks of %d bytes", blocks[i]),
		})
	}

	advice := ciphers.Advise(ciphers.OfPublished(speeds))
	if len(advice) > 0 {
		section.add(Points{each(advice, func(a ciphers.Advice) string {
			return upperFirst(a.Kind) + ": " + a.Text
		})})
	}

	t.dropEmpty()
	p.add(section, t)
}

func (s *site) addPower(p *sitePage, powers []catalogue.Power) {
	if len(powers) == 0 {
		return
	}

	t := Table{ID: "powers", Columns: columns("Load", "#Power", "Source")}
	for _, w := range powers {
		cell := TableCell{Text: "not given", Tone: Quiet}
		if w.Low != nil {
			cell = TableCell{
				Text: fmt.Sprintf("%.3g W", *w.Low),
				Num:  &Number{w.Source + " " + w.Device + " " + w.Load, "watts_low", "", *w.Low},
			}
			if *w.High != *w.Low {
				cell.Pre, cell.Sub = "to ", fmt.Sprintf("%.3g W", *w.High)
				cell.More = &Number{cell.Num.Cell, "watts_high", "", *w.High}
			}
		}

		load := w.Load
		if w.Device != p.Title {
			load += bracket(w.Device)
		}

		t.row(load, cell, s.sourceCell(w.Source))
	}

	p.add(Section{ID: "power", Title: "Power"}, t)
}

// run returns the page of an own run, with the sections of its report.
func (s *site) run(b *bundle.Bundle) *sitePage {
	d := *b.Document
	d.Conditions = b.Conditions
	v := newView(&d)
	h := headOf(v)
	p := &sitePage{
		Name:     s.page[b.ID()],
		Kind:     "Own run of",
		Title:    b.Device,
		Alerts:   h.Alerts,
		Sections: sections(v),
		view:     v,
		Lead:     fmt.Sprintf("%s, plan %s, lab %s.", extent(v), d.Run.Plan, d.Run.Lab),
	}
	if b.InPlace() != "" {
		p.Alerts = append(p.Alerts, items("not the device", Doubt, "lab "+b.InPlace()+
			" measured the machine that carried it, acting as a router")...)
	}

	p.Alerts = slices.Concat(p.Alerts, v.verdictItems(), h.Caveats)
	p.Meta = append(given("Firmware", b.Firmware, "Note", b.Note, "Bundle", b.ID()), h.Meta...)
	return p
}
