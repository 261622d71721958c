package report

import (
	"cmp"
	_ "embed" // the site's template and script
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/model"
	"github.com/chokepoint-lab/chokepoint/internal/bundle"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

//go:embed site.tmpl
var siteTemplate string

//go:embed site.js
var siteScript string

// Collection is the input of Site: published studies and the user's own runs.
type Collection struct {
	*catalogue.Catalogue
	Bundles []*bundle.Bundle
	Effects map[string]model.Effects // by ID of the study
	Doubts  map[string][]string      // by device: results that exceed what the device can carry
}

// File is a page of a site, with its file name.
type File struct {
	Name    string
	Content []byte
}

// sitePage is a page before it is rendered.
type sitePage struct {
	Name, Kind, Title, Lead string
	Alerts                  []Item
	Meta                    []Fact
	Sections                []Section

	view *view // of the run on the page; nil if the page shows no run
}

// add appends a section and adds blocks to it.
func (p *sitePage) add(s Section, blocks ...Block) {
	s.add(blocks...)
	p.Sections = append(p.Sections, s)
}

// Link leads to another page of a site or server.
type Link struct {
	Href, Text string
	Here       bool // the link leads to the page that contains it
}

// site assigns file names to the pages of a collection.
type site struct {
	Collection
	devices []string          // in the order of the index
	page    map[string]string // device or bundle ID → file name of its page
	own     map[string]ownRun // by bundle ID
	taken   map[string]bool   // file names in use, without extension
}

type ownRun struct {
	*bundle.Bundle
	results []bundle.Own // results[i] is row i+1 of the catalogue
}

// Site renders a collection as a self-contained set of pages: an index, a page for each device and each own
// run, comparisons of devices, the effects of studies, and the sources. The output depends only on the
// collection.
func Site(c Collection) ([]File, error) {
	s := &site{
		Collection: c,
		devices:    c.Names(),
		page:       map[string]string{},
		own:        map[string]ownRun{},
		taken:      map[string]bool{},
	}
	for _, device := range s.devices {
		s.page[device] = s.free("device-" + shortSlug(device))
	}

	for _, b := range c.Bundles {
		s.own[b.ID()] = ownRun{b, bundle.Results(b.Document)}
		s.page[b.ID()] = "run-" + b.ID() + ".html"
	}

	pages := []*sitePage{s.index()}
	pages = append(pages, s.comparisons()...)
	e := s.effects()
	if len(e.Sections) > 0 {
		pages = append(pages, e)
	}

	pages = append(pages, s.sources())
	links := each(pages, func(p *sitePage) Link { return Link{Href: p.Name, Text: p.Title} })
	pages = slices.Concat(pages, each(s.devices, s.device), each(c.Bundles, s.run))
	var files []File
	written := map[string]string{}
	for _, p := range pages {
		before, twice := written[p.Name]
		if twice {
			return nil, fmt.Errorf("lay out page %s of %q: %q has that name", p.Name, p.Title, before)
		}

		written[p.Name] = p.Title
		content, err := p.lay(links)
		if err != nil {
			return nil, err
		}

		files = append(files, File{p.Name, content})
	}

	return files, nil
}

// free returns stem, with a number appended if another page already has that name. Studies are named first,
// so that a bundle cannot take the name of a published page.
func (s *site) free(stem string) string {
	name := untaken(stem, func(name string) bool { return s.taken[name] })
	s.taken[name] = true
	return name + ".html"
}

func (p *sitePage) lay(links []Link) ([]byte, error) {
	links = each(links, func(l Link) Link {
		l.Here = l.Href == p.Name
		return l
	})
	return laidOut("page "+p.Name, layout(siteTemplate, p.view), pageScript+siteScript,
		map[string]any{"Page": p, "Links": links})
}

// index lists all devices with their best results.
func (s *site) index() *sitePage {
	devices := filter(s.devices, func(name string) bool { return !strings.HasPrefix(name, "(") })
	what := unit.Count(len(devices), "device")
	n := len(s.devices) - len(devices)
	if n > 0 {
		what += " and " + plural(n, "path without one", "paths without one")
	}

	p := &sitePage{
		Name:  "index.html",
		Kind:  "Catalogue",
		Title: "Devices",
		Lead: fmt.Sprintf("%s: %s; of %s and %s.", what, counted(s.Results, s.Speeds, s.Powers),
			plural(len(s.Sources)-len(s.Bundles), "published study", "published studies"),
			unit.Count(len(s.Bundles), "own run")),
	}
	t := Table{
		ID:     "devices",
		Cards:  true,
		Sorted: true,
		Caption: "The best TCP rate of each device, and with what it was reached. Studies differ in " +
			"method: the device's page has every result with its conditions.",
		Columns: columns("Device", "Cores", "#No tunnel|best TCP", "#WireGuard|best TCP", "#OpenVPN|best TCP",
			"Power", "#Results|sources"),
	}
	for _, name := range s.devices {
		d, _ := s.Device(name)
		rows := s.Filtered(catalogue.Filter{Device: name})
		speeds := s.SpeedsOf(name)
		powers := s.powers(name)
		cells := []TableCell{{Text: name, Href: s.page[name], Sub: d.SoC}, coresCell(d)}
		for _, tunnel := range []string{"none", "wireguard", "openvpn"} {
			cells = append(cells, s.best(rows, tunnel))
		}

		power := none
		sources := slices.Concat(each(rows, func(r catalogue.Result) string { return r.Source }),
			each(speeds, func(x catalogue.Speed) string { return x.Source }))
		// Take the last figure of the device itself or, without one, the first figure of another model year.
		for _, w := range powers {
			sources = append(sources, w.Source)
			watts := w.Watts()
			if watts != "" && (w.Device == name || power.Text == none.Text) {
				power = TableCell{Text: watts, Sub: w.Load}
			}
		}

		t.row(cells, power, TableCell{
			Text: fmt.Sprint(len(rows) + len(speeds) + len(powers)),
			Sub:  strings.Join(distinct(sources, s.shortSource), ", "),
		})
	}

	p.add(Section{ID: "all", Title: "Devices"}, t)
	return p
}

// counted formats the number of results of each kind.
func counted(rates []catalogue.Result, speeds []catalogue.Speed, powers []catalogue.Power) string {
	var words []string
	for _, n := range [...]struct {
		n         int
		one, many string
	}{{len(rates), "result of throughput", "results of throughput"},
		{len(speeds), "speed of a cipher, hash or key", "speeds of ciphers, hashes and keys"},
		{len(powers), "figure of power", "figures of power"}} {
		if n.n > 0 {
			words = append(words, plural(n.n, n.one, n.many))
		}
	}
	return strings.Join(words, ", ")
}

func coresCell(d catalogue.Device) TableCell {
	if d.Cores == 0 {
		return TableCell{Text: none.Text, Sub: d.Arch}
	}

	text := fmt.Sprint(d.Cores)
	if d.ClockMHz > 0 {
		text += fmt.Sprintf(" × %d MHz", d.ClockMHz)
	}

	return TableCell{Text: text, Sub: d.Arch}
}

// sound reports whether a result can represent its device (bundle.Sound) and does not exceed the rate of
// its link.
func (s *site) sound(r catalogue.Result) bool {
	return bundle.Sound(r) && !model.BeyondLink(s.Catalogue, r)
}

// fastest returns the result with the highest TCP rate. It returns a doubtful one only if all are doubtful.
func (s *site) fastest(rows []catalogue.Result) (best *catalogue.Result) {
	for _, r := range rows {
		if r.Protocol != "tcp" || r.GoodputBps == nil {
			continue
		}

		sound := s.sound(r)
		if best == nil || sound && !s.sound(*best) ||
			sound == s.sound(*best) && *r.GoodputBps > *best.GoodputBps {
			best = &r
		}
	}
	return best
}

// best shows the fastest result of a tunnel.
func (s *site) best(rows []catalogue.Result, tunnel string) TableCell {
	best := s.fastest(filter(rows, func(r catalogue.Result) bool { return r.Tunnel == tunnel }))
	if best == nil {
		return none
	}

	cell := rateOfResult(*best)
	cell.Sub = cmp.Or(around("lab ", best.Lab, ""), s.shortSource(best.Source))
	if best.Streams > 0 {
		cell.Sub = unit.Count(best.Streams, "stream") + ", " + cell.Sub
	}

	return cell
}

func (s *site) shortSource(id string) string {
	if _, ok := s.own[id]; ok {
		return "own run"
	}
	return id
}

// powers returns the power figures of a device. They include the figures of another model year of the device,
// unless that model year has its own page.
func (s *site) powers(device string) []catalogue.Power {
	return filter(s.PowersOf(device), func(w catalogue.Power) bool {
		return w.Device == device || s.page[w.Device] == ""
	})
}

// comparisons returns the pages that compare all devices: one for each tunnel, and one for NAT.
func (s *site) comparisons() (pages []*sitePage) {
	tunnels := once([]string{"none", "wireguard", "openvpn"}, each(s.Results, tunnelOf)...)
	nat := s.free("compare-nat")
	names := map[string]string{}
	for _, tunnel := range tunnels { // published tunnels come first
		names[tunnel] = s.free("compare-" + slug(tunnel))
	}

	slices.Sort(tunnels[3:])
	for _, tunnel := range tunnels {
		pages = append(pages, s.comparison(names[tunnel], tunnelName(tunnel),
			func(r catalogue.Result) bool { return r.Tunnel == tunnel }))
	}

	pages = append(pages, s.comparison(nat, "NAT", func(r catalogue.Result) bool {
		return r.Firewall == "NAT"
	}))
	return filter(pages, func(p *sitePage) bool { return p != nil })
}

func tunnelOf(r catalogue.Result) string { return r.Tunnel }

// tunnelName returns the display name of a tunnel.
func tunnelName(tunnel string) string {
	title := map[string]string{"none": "No tunnel", "wireguard": "WireGuard", "openvpn": "OpenVPN"}
	return cmp.Or(title[tunnel], tunnel)
}

func (s *site) comparison(name, title string, of func(catalogue.Result) bool) *sitePage {
	rows := filter(s.Results, of)
	if len(rows) == 0 {
		return nil
	}

	b := bars{Label: "Best rate of each device, " + title, Axis: "goodput", Unit: "bit/s"}
	doubt, left := false, 0 // left counts the doubtful results that are omitted
	for _, device := range s.devices {
		g := barGroup{Name: device}
		for i, protocol := range []string{"tcp", "udp"} {
			one := bar{estimate: estimate{Class: fmt.Sprint("c", i+1), Doubt: true}}
			theirs := filter(rows, func(r catalogue.Result) bool {
				return r.Device == device && r.Protocol == protocol && r.GoodputBps != nil
			})
			sound := filter(theirs, s.sound)
			if len(sound) > 0 {
				left += len(theirs) - len(sound)
				theirs, one.Doubt = sound, false
			}

			for _, r := range theirs {
				one.Runs = append(one.Runs, *r.GoodputBps)
				if *r.GoodputBps > one.Median {
					one.Median, one.Text = *r.GoodputBps, r.Rate()
					one.Title = device + ", " + settingOf(r) + ": " + r.Rate() + ", " + r.Source
				}
			}

			if len(one.Runs) > 0 {
				g.Bars = append(g.Bars, one)
				doubt = doubt || one.Doubt
			}
		}

		if len(g.Bars) > 0 {
			b.Groups = append(b.Groups, g)
		}
	}

	b.sort()
	legend := []LegendItem{{"bar c1", "TCP, the best"}, {"bar c2", "UDP, the best"}}
	if doubt {
		legend = append(legend, LegendItem{"doubt c1", doubtWords})
	}

	caption := "Bar: the best result. Dots: every result. They differ in streams, packet size, direction " +
		"and method, which the table states."
	if left > 0 {
		caption += fmt.Sprintf(" Only in the table: %s, %s.", unit.Count(left, "result"), doubtWords)
	}

	all := s.resultTable("results", rows, true)
	all.Folded, all.Sorted = true, true
	all.Caption = "All " + unit.Count(len(rows), "result") + " of this chart"
	p := &sitePage{
		Name:  name,
		Kind:  "Compare",
		Title: title,
		Lead: fmt.Sprintf("%s of %s.", unit.Count(len(rows), "result"),
			unit.Count(len(b.Groups), "device")),
	}
	p.add(Section{ID: "compare", Title: "All devices"}, Figure{
		ID:      "best-rates",
		Draw:    b,
		Legend:  legend,
		Title:   "The best rate of each device",
		Caption: caption,
		Table:   &all,
	})
	return p
}

// effects returns the page with the effects of each study's factors.
func (s *site) effects() *sitePage {
	p := &sitePage{
		Name:  "effects.html",
		Kind:  "Catalogue",
		Title: "Effects",
		Lead:  "What each factor of a study does to the rate, and which depend on each other.",
	}
	for _, source := range s.Sources {
		if e, ok := s.Effects[source.ID]; ok {
			section := Section{ID: slug(source.ID), Title: source.About}
			for _, part := range e.Parts() {
				if len(part.Main) > 0 {
					section.addEffects(part, strings.TrimSuffix(source.ID+"-"+slug(part.Of), "-"),
						func(name, level string) string { return name + " " + level })
				}
			}

			p.add(section)
		}
	}
	return p
}

// sources returns the page that lists the source of every number.
func (s *site) sources() *sitePage {
	studies := Table{
		ID:    "studies",
		Cards: true,
		Columns: columns("Study", "About", "Published",
			"Licence of its data", "#Results"),
	}
	own := Table{
		ID:    "runs",
		Cards: true,
		Columns: columns("Run", "Device", "Firmware", "Measured", "Lab",
			"#Results", "Note"),
	}
	results := map[string]int{}
	for _, r := range s.Results {
		results[r.Source]++
	}

	for _, x := range s.Speeds {
		results[x.Source]++
	}

	for _, w := range s.Powers {
		results[w.Source]++
	}

	for _, source := range s.Sources {
		n := results[source.ID]
		if b, ok := s.own[source.ID]; ok {
			d, _ := s.Device(b.Device) // has the name as the site shows it
			own.row(TableCell{Text: source.ID, Href: s.page[source.ID]},
				TableCell{Text: b.Device, Href: s.page[cmp.Or(d.Name, b.Device)]}, textCell(b.Firmware),
				b.Document.Run.Started.Format("2006-01-02"), b.Document.Run.Lab, n, textCell(b.Note))
			continue
		}

		studies.row(TableCell{Text: source.ID, Href: source.URL, Sub: source.URL}, source.About,
			textCell(source.Published), source.Licence, n)
	}

	p := &sitePage{
		Name:  "sources.html",
		Kind:  "Catalogue",
		Title: "Sources",
		Lead:  "Where every number is from.",
	}
	for _, part := range []struct {
		title string
		table Table
	}{{"Published studies", studies}, {"Own runs", own}} {
		if len(part.table.Rows) > 0 {
			p.add(Section{ID: slug(part.title), Title: part.title}, part.table)
		}
	}

	return p
}

func textCell(text string) TableCell {
	if text == "" {
		return none
	}
	return TableCell{Text: text}
}
