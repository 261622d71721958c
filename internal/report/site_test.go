package report

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/model"
	"github.com/chokepoint-lab/chokepoint/internal/bundle"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
)

// collection is the catalogue with three own runs, one of a device that is in it.
func collection(t *testing.T) Collection {
	t.Helper()
	studies, err := catalogue.Published()
	if err != nil {
		t.Fatal(err)
	}

	var own []*bundle.Bundle
	for i, of := range []struct{ device, sample string }{{"bpi-r4", "quick"}, {"Box <b>", "sweep"},
		{"RB5009UPr S IN", "small"}} {
		d := samples()[of.sample]
		d.Run.ID = fmt.Sprintf("20260102-03040%d-aaaa", i)
		b, err := bundle.New(of.device, "OpenWrt 24.10.0", "in a shared lab", d)
		if err != nil {
			t.Fatal(err)
		}

		own = append(own, b)
	}

	return Collection{
		Catalogue: bundle.Join(studies, own),
		Bundles:   own,
		Effects: map[string]model.Effects{"rb5009": model.FindEffects(model.Observe(
			studies.Filtered(catalogue.Filter{Source: "rb5009"})))},
		Doubts: map[string][]string{"BPI-R4": {"a rate above its port"}},
	}
}

func built(t *testing.T, c Collection) map[string]string {
	t.Helper()
	files, err := Site(c)
	if err != nil {
		t.Fatal(err)
	}

	again, err := Site(c)
	if err != nil {
		t.Fatal(err)
	}

	pages := map[string]string{}
	for i, f := range files {
		if !bytes.Equal(f.Content, again[i].Content) {
			t.Errorf("%s: other bytes the second time", f.Name)
		}

		_, twice := pages[f.Name]
		if twice {
			t.Errorf("two pages have the name %s", f.Name)
		}

		pages[f.Name] = string(f.Content)
	}

	return pages
}

var (
	shownNumber = regexp.MustCompile(`data-cell="([^"]*)" data-metric="([^"]*)" data-stat="([^"]*)" ` +
		`data-value="([^"]*)">([^<]*)<`)
	deviceTitle = regexp.MustCompile(`<h1>Device <b>([^<]*)</b>`)
	reference   = regexp.MustCompile(`(href|src|action|data|poster|srcset)="([^"]*)"`)
	anchor      = regexp.MustCompile(` id="([^"]*)"`)
)

// said is a number as a reader sees it: "2.45 Gbit/s".
func said(text string) float64 {
	number, unit, _ := strings.Cut(text, " ")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return math.NaN()
	}

	switch {
	case strings.HasPrefix(unit, "k"):
		v *= 1e3
	case strings.HasPrefix(unit, "M"):
		v *= 1e6
	case strings.HasPrefix(unit, "G"):
		v *= 1e9
	case unit == "%":
		v /= 100
	}

	return v
}

// published are the numbers of a device's page: "cell|metric" → value.
func numbersOf(c Collection, device string) map[string]float64 {
	all := map[string]float64{}
	add := func(cell, metric string, v *float64, scale float64) {
		if v != nil {
			all[cell+"|"+metric] = *v * scale
		}
	}
	for _, r := range c.Results {
		if r.Device != device {
			continue
		}

		cell := fmt.Sprint(r.Source, " ", r.Row)
		add(cell, "goodput_bps", r.GoodputBps, 1)
		add(cell, "retransmits", r.Retransmits, 1)
		add(cell, "cpu_low_ratio", r.CPULow, 1)
		if r.CPUHigh != nil && r.CPULow != nil && *r.CPUHigh != *r.CPULow {
			add(cell, "cpu_high_ratio", r.CPUHigh, 1)
		}

		add(cell, "packet_rate_pps", r.PacketRate, 1)
	}

	for _, x := range c.Speeds {
		if x.Device == device {
			scale := map[string]float64{"B/s": 8, "op/s": 1}
			add(fmt.Sprint(x.Source, " ", x.Algorithm, " ", x.Block, " ", x.Mode), x.Operation, x.Value,
				scale[x.Unit])
		}
	}

	for _, w := range c.Powers {
		if w.Device == device || device == "Turris Omnia" && w.Device == "Turris Omnia (2021)" {
			add(w.Source+" "+w.Device+" "+w.Load, "watts_low", w.Low, 1)
			if w.Low != nil && *w.High != *w.Low {
				add(w.Source+" "+w.Device+" "+w.Load, "watts_high", w.High, 1)
			}
		}
	}

	return all
}

// wrongNumbers compares what a page shows with the data: all of it must be there if whole, and nothing else.
func wrongNumbers(page string, want map[string]float64, whole bool) (wrong []string) {
	seen := map[string]bool{}
	for _, m := range shownNumber.FindAllStringSubmatch(page, -1) {
		key := html.UnescapeString(m[1]) + "|" + m[2]
		v, ok := want[key]
		exact, err := strconv.ParseFloat(html.UnescapeString(m[4]), 64)
		text := said(m[5])
		if !ok || err != nil || exact != v || !(math.Abs(text-v) <= .006*math.Abs(v)) {
			wrong = append(wrong, fmt.Sprintf("%s: data %v (%v), value %s, text %q", key, v, ok, m[4], m[5]))
		}

		seen[key] = true
	}

	for key := range want {
		if whole && !seen[key] {
			wrong = append(wrong, key+" is not shown")
		}
	}

	return wrong
}

// wrongReferences are links that lead nowhere, anchors that are there twice, and everything that a browser
// would fetch.
func wrongReferences(name string, pages map[string]string, c Collection) (wrong []string) {
	page := pages[name]
	ids := map[string]bool{}
	for _, m := range anchor.FindAllStringSubmatch(page, -1) {
		if ids[m[1]] {
			wrong = append(wrong, "anchor "+m[1]+" is there twice")
		}

		ids[m[1]] = true
	}

	for _, m := range reference.FindAllStringSubmatch(page, -1) {
		link := html.UnescapeString(m[2])
		file, fragment, _ := strings.Cut(link, "#")
		_, there := pages[file]
		isSource := slices.ContainsFunc(c.Sources, func(s catalogue.Source) bool { return s.URL == link })
		switch {
		case m[1] == "href" && (there && fragment == "" || file == "" && ids[fragment] || isSource):
		case m[1] == "href" && strings.HasPrefix(link, svgURL): // a chart to be saved
		default:
			wrong = append(wrong, "reference "+m[0])
		}
	}

	for _, load := range []string{"<link", "<img", "<iframe", "@import", "url(", "<base",
		`http-equiv="refresh`} {
		if strings.Contains(page, load) {
			wrong = append(wrong, "it has "+load)
		}
	}

	return wrong
}

// TestBestIsNoDoubtfulRate: the greatest rate of a device is one that its link can carry and that was
// measured on it; what is in doubt is no dot beside it, and the caption says where it is.
func TestBestIsNoDoubtfulRate(t *testing.T) {
	c := collection(t)
	c.Results = append(c.Results, catalogue.Result{
		Source:     "own",
		Row:        1,
		Device:     "OpenWrt One",
		Tunnel:     "wireguard",
		Protocol:   "tcp",
		GoodputBps: new(3e9),
		Grade:      "valid",
		Lab:        "local",
	})
	s := &site{Collection: c, devices: c.Names(), page: map[string]string{}, own: map[string]ownRun{}}
	got := s.best(s.Filtered(catalogue.Filter{Device: "RB5009UPr+S+IN"}), "wireguard").Text
	if got !=
		"883 Mbit/s" { // its soak has 1.00 Gbit/s where the link carries 899 Mbit/s
		t.Errorf("best of the RB5009 is %s, want 883 Mbit/s", got)
	}

	p := s.comparison("x.html", "x", func(r catalogue.Result) bool { return r.Tunnel == "wireguard" })
	f := p.Sections[0].Blocks[0].(Figure)
	seen := 0
	for _, g := range f.Draw.(bars).Groups {
		for _, want := range []struct {
			device string
			best   float64
		}{{"RB5009UPr+S+IN", 883e6}, {"OpenWrt One", 615e6}} {
			b := g.Bars[0]
			if g.Name == want.device {
				seen++
				if b.Median != want.best || b.Doubt || slices.Max(b.Runs) > want.best {
					t.Errorf("%s: bar of %v, in doubt %v, dots %v, want %v", g.Name, b.Median, b.Doubt,
						b.Runs, want.best)
				}
			}
		}
	}

	if seen != 2 || !strings.Contains(f.Caption, "Only in the table: ") {
		t.Errorf("%d of two devices; caption %q", seen, f.Caption)
	}
}

// TestDevicePages: a device of which only speeds of ciphers are known says so and what suits it, tunnels have
// their proper names, and a power that no study gives is none.
func TestDevicePages(t *testing.T) {
	pages := built(t, collection(t))
	for _, want := range []struct{ page, text string }{
		{"device-mt7622.html", "16 speeds of ciphers, hashes and keys."},
		{"device-mt7622.html", "AES-128-GCM: 2.9 times as fast as ChaCha20-Poly1305"},
		{"device-openwrt-one.html", "Through WireGuard"},
	} {
		if !strings.Contains(pages[want.page], want.text) {
			t.Errorf("%s does not say %q", want.page, want.text)
		}
	}

	for name, page := range pages {
		for _, text := range []string{">0 rates.", "Through wireguard"} {
			if strings.Contains(page, text) {
				t.Errorf("%s says %q", name, text)
			}
		}
	}

	own := collection(t)
	own.Speeds = append(own.Speeds, catalogue.Speed{
		Source:    "own",
		Device:    "mt7622",
		Algorithm: "aes-128-gcm",
		Operation: "throughput",
		Block:     1420,
		Value:     new(1e9),
		Unit:      "B/s",
	})
	for _, block := range []string{"16384", "1420"} {
		want := "Throughput, blocks of " + block + " bytes"
		if !strings.Contains(
			built(t, own)["device-mt7622.html"], want) {
			t.Errorf("no chart %q", want)
		}
	}

	table := (&site{
		Collection: collection(t),
		devices:    []string{"OPNsense VM"},
		page:       map[string]string{},
	}).index().Sections[0].Blocks[0].(Table)
	cell := table.Rows[0].Cells[5]
	if cell.Text != none.Text || cell.Sub != "" {
		t.Errorf("power that no study gives: %q, %q", cell.Text, cell.Sub)
	}
}

// TestCountsOfTheSite: the index and the sources state as many devices and results as they list.
func TestCountsOfTheSite(t *testing.T) {
	c := collection(t)
	s := &site{
		Collection: c,
		devices:    c.Names(),
		page:       map[string]string{"APU4d4 (2021)": "x"},
		own:        map[string]ownRun{},
	}
	stated := regexp.MustCompile(`^(\d+) devices and (\d+) path without one: (\d+) results of throughput, (\d+) ` +
		`speeds of ciphers, hashes and keys, (\d+) figures of power; of 5 published studies and 3 own runs\.$`)
	m := stated.FindStringSubmatch(s.index().Lead)
	if m == nil {
		t.Fatalf("lead: %q", s.index().Lead)
	}

	number := func(text string) int {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Errorf("%q is no number", text)
		}
		return n
	}
	devices := s.index().Sections[0].Blocks[0].(Table)
	all := number(m[3]) + number(m[4]) + number(m[5])
	if n := len(devices.Rows); n != number(m[1])+number(m[2]) || number(m[1]) != len(c.Devices) {
		t.Errorf("%d rows, %d devices: the lead states %s and %s", n, len(c.Devices), m[1], m[2])
	}

	want := len(c.Results) + len(c.Speeds) + len(c.Powers)
	if all != want {
		t.Errorf("the lead states %d results, of %d", all, want)
	}

	sum := func(t Table) (n int) {
		i := slices.IndexFunc(t.Columns, func(c Column) bool { return c.Head == "Results" })
		for _, r := range t.Rows {
			n += number(r.Cells[i].Text)
		}
		return n
	}
	if n := sum(devices); n != all {
		t.Errorf("the devices have %d results, the lead states %d", n, all)
	}

	n := 0
	for _, section := range s.sources().Sections {
		n += sum(section.Blocks[0].(Table))
	}

	if n != all {
		t.Errorf("the sources have %d results, the lead states %d", n, all)
	}
}

// TestSiteIsTheData: every number of the catalogue and of own runs stands on the page of its device, every
// number shown equals the data, and no page needs anything but the others.
func TestSiteIsTheData(t *testing.T) {
	c := collection(t)
	pages := built(t, c)
	all := map[string]float64{}
	for _, device := range c.Names() {
		want := numbersOf(c, device)
		for key, v := range want {
			all[key] = v
		}

		name := ""
		for file, page := range pages {
			m := deviceTitle.FindStringSubmatch(page)
			if m != nil && html.UnescapeString(m[1]) == device {
				name = file
			}
		}

		if name == "" {
			t.Errorf("%s has no page", device)
			continue
		}

		for _, w := range wrongNumbers(pages[name], want, true) {
			t.Errorf("%s: %s", name, w)
		}
	}

	if len(all) < 109+51+6 {
		t.Errorf("%d numbers, too few", len(all))
	}

	for _, tunnel := range []string{"none", "wireguard", "openvpn"} {
		want := map[string]float64{}
		for _, r := range c.Results {
			for key, v := range all {
				if r.Tunnel == tunnel && strings.HasPrefix(key, fmt.Sprint(r.Source, " ", r.Row, "|")) {
					want[key] = v
				}
			}
		}

		for _, w := range wrongNumbers(pages["compare-"+tunnel+".html"], want, true) {
			t.Errorf("compare %s: %s", tunnel, w)
		}
	}

	for _, w := range wrongNumbers(pages["index.html"], all, false) {
		t.Errorf("index: %s", w)
	}

	for _, b := range c.Bundles {
		want := map[string]float64{}
		for _, cell := range b.Document.Cells {
			for metric, v := range cell.Metrics {
				want[cell.Factors.Key()+"|"+metric+"|median"] = v.Median
				want[cell.Factors.Key()+"|"+metric+"|low"] = v.Low
				want[cell.Factors.Key()+"|"+metric+"|high"] = v.High
			}
		}

		numbers := shownNumber.FindAllStringSubmatch(pages["run-"+b.ID()+".html"], -1)
		if len(numbers) < len(b.Document.Cells) {
			t.Errorf("run of %s: %d numbers", b.Device, len(numbers))
		}

		for _, m := range numbers {
			v, ok := want[html.UnescapeString(m[1])+"|"+m[2]+"|"+m[3]]
			exact, err := strconv.ParseFloat(html.UnescapeString(m[4]), 64)
			if !ok || err != nil || exact != v {
				t.Errorf("run of %s: %s, want %v", b.Device, m[0], v)
			}
		}
	}

	for name := range pages {
		for _, w := range wrongReferences(name, pages, c) {
			t.Errorf("%s: %s", name, w)
		}
	}

	if !strings.Contains(pages["device-bpi-r4.html"], "a rate above its port") {
		t.Error("the doubt of a device is not on its page")
	}
}

// TestSiteFaults plants faults into a page: each must be found.
func TestSiteFaults(t *testing.T) {
	c := collection(t)
	pages := built(t, c)
	const name = "device-openwrt-one.html"
	want := numbersOf(c, "OpenWrt One")
	for _, fault := range [][2]string{{`09">2.36 Gbit/s<`, `09">2.63 Gbit/s<`}, {`data-value="2.36e&#43;09"`,
		`data-value="2.37e&#43;09"`}, {`data-cell="filogic 6"`, `data-cell="filogic 60"`}} {
		page := strings.Replace(pages[name], fault[0], fault[1], 1)
		if page == pages[name] {
			t.Errorf("%s was not planted", fault[1])
		}

		if len(wrongNumbers(page, want, true)) == 0 {
			t.Errorf("%s was not found", fault[1])
		}
	}

	for _, fault := range []string{`<a href="missing.html">x</a>`, `<img src="a.png"/>`,
		`<a href="https://example.com/">x</a>`, `<a href="#nowhere">x</a>`,
		`<link rel="icon" href="data:,"/>`} {
		changed := map[string]string{}
		for file, page := range pages {
			changed[file] = page
		}

		changed[name] = strings.Replace(pages[name], "</main>", fault+"</main>", 1)
		if len(wrongReferences(name, changed, c)) == 0 {
			t.Errorf("%s was not found", fault)
		}
	}
}

// TestPagesKeepTheirNames: no result of a bundle takes the page of a published one, and two pages of one
// name are refused.
func TestPagesKeepTheirNames(t *testing.T) {
	c := collection(t)
	before := built(t, c)
	other := c.Results[0]
	other.Device, other.Source = "bpi r4", "own-other"
	for _, tunnel := range []string{"WireGuard", "wire guard", "nat", "index.html"} {
		other.Tunnel = tunnel
		c.Results = append(c.Results, other)
	}

	after := built(t, c)
	for _, name := range []string{"compare-wireguard.html", "compare-nat.html", "device-bpi-r4.html"} {
		title := regexp.MustCompile(`<h1>.*?</h1>`)
		got, want := title.FindString(after[name]), title.FindString(before[name])
		if got != want {
			t.Errorf("%s: %q, before %q", name, got, want)
		}

		if strings.Contains(after[name], "own-other") && name != "compare-nat.html" {
			t.Errorf("%s shows a bundle's result", name)
		}
	}

	for _, name := range []string{"compare-wireguard-2.html", "compare-nat-2.html", "device-bpi-r4-2.html"} {
		if !strings.Contains(after[name], "own-other") {
			t.Errorf("%s: there is no such page of the results of a bundle", name)
		}
	}

	c = collection(t)
	c.Bundles = append(c.Bundles, c.Bundles[0])
	if _, err := Site(c); err == nil || !strings.Contains(err.Error(), "has that name") {
		t.Errorf("a page twice: got %v, want it refused", err)
	}
}

// FuzzSite: whatever is read as a bundle can be laid out, and soon.
func FuzzSite(f *testing.F) {
	for _, name := range []string{"quick", "sweep", "damaged"} {
		d := samples()[name]
		d.Run.ID = "20260102-030405-aaaa"
		if b, err := bundle.New("Box", "", "", d); err == nil {
			text, err := b.Encode()
			if err != nil {
				f.Fatal(err)
			}

			f.Add(text)
		}
	}

	f.Fuzz(func(t *testing.T, content []byte) {
		b, err := bundle.Read("f.json", content, sampleFactors())
		if err != nil {
			return
		}

		own := []*bundle.Bundle{b}
		c := Collection{Catalogue: bundle.Join(&catalogue.Catalogue{}, own), Bundles: own}
		pages := built(t, c)
		for name := range pages {
			for _, w := range wrongReferences(name, pages, c) {
				t.Errorf("%s: %s", name, w)
			}
		}
	})
}
