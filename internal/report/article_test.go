package report

import (
	"bytes"
	"encoding/csv"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// articleDocument returns the sample with what only an article shows.
func articleDocument() *analysis.Document {
	d := sampleDocument()
	for i := range d.Cells {
		c := &d.Cells[i]
		if c.Factors["tunnel"] == "wireguard" {
			c.OfBaseline = &analysis.Share{Ratio: .181, Of: "same without tunnel", Cell: d.Cells[0].Factors}
			c.OfDefaultMTU = &analysis.Share{Ratio: .9, Of: "default MTU 1420", Cell: d.Cells[4].Factors}
		}
	}

	d.Run.Device = "Archer C7"
	d.Uses = []analysis.UseCase{
		{Use: "Internet line", Verdict: "enough for lines up to 1.11 Gbit/s", Because: "one cell: 1.05 Gbit/s",
			Rule: "the slowest cell"},
		{Use: "Many users", Verdict: "not measured", Rule: "the fastest cell"},
	}
	return d
}

// TestCautionOnce: a caption says once what a share is.
func TestCautionOnce(t *testing.T) {
	v := newView(articleDocument())
	caption := resultCaption(v, v.all)
	if strings.Count(caption, "the median of the ratios") != 1 {
		t.Errorf("got %q, want one caution about shares", caption)
	}
}

var imageForm = regexp.MustCompile(`!\[([^]]+)\]\((charts/[a-z0-9-]+)\.svg\)`)

// TestArticle: the text has each part, shows each picture with words in its place, and refers to no file that
// is not in the folder.
func TestArticle(t *testing.T) {
	files, err := Article(articleDocument(), "name: quick\n")
	if err != nil {
		t.Fatal(err)
	}

	text := string(files[0].Content)
	for _, want := range []string{"# Archer C7: plan quick\n", "\n## Summary\n", "\n## Topology\n",
		"\n## Hardware and software\n", "\n## Method\n", "\n## Results\n", "\n## What held the traffic back\n",
		"\n## Verdict by use\n",
		"\n## Limits of this study\n", "\n## How to repeat it\n", "% of baseline", "18.1 % · without tunnel",
		"% against the default MTU", "90.0 % · MTU 1420",
		"| Internet line | enough for lines up to 1.11 Gbit/s | one cell: 1.05 Gbit/s |",
		"- Not measured: Many users.", "shared-cores", "Seed", "8812739501134",
		"chokepoint run quick --set method.seed=8812739501134",
		"## Summary\n\nThis machine acting as a router",
		"share the cores of this machine; a real router has its own.\n\n- ", "[plan.yaml](plan.yaml)", "[cells.csv](cells.csv)"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q", want)
		}
	}

	names := map[string][]byte{}
	for _, f := range files {
		names[f.Name] = f.Content
	}

	images := imageForm.FindAllStringSubmatch(text, -1)
	csvText, err := CSV(articleDocument())
	if err != nil || !bytes.Equal(names[cellsFile], csvText) || string(names[planFile]) != "name: quick\n" {
		t.Errorf("the folder has no plan, or not the cells: %v", err)
	}

	if len(images) < 4 || len(files) != 3+2*len(images) {
		t.Errorf("%d pictures in the text, %d files", len(images), len(files))
	}

	for _, m := range images {
		if len(m[1]) < 10 {
			t.Errorf("%s: words in place of the picture: %q", m[2], m[1])
		}

		if !bytes.HasPrefix(names[m[2]+".svg"], []byte("<svg ")) ||
			!bytes.HasPrefix(names[m[2]+".png"], []byte("\x89PNG")) {
			t.Errorf("%s: no picture in both forms", m[2])
		}
	}

	again, err := Article(articleDocument(), "name: quick\n")
	if err != nil || !bytes.Equal(files[0].Content, again[0].Content) {
		t.Errorf("a second text of the same document differs: %v", err)
	}
}

// TestArticleOfAnyDocument: a run without results, or with text of others in it, makes an article too, and
// nothing in it is taken for markup.
func TestArticleOfAnyDocument(t *testing.T) {
	for name, d := range samples() {
		files, err := Article(d, "")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}

		text := string(files[0].Content)
		if strings.Contains(text, "<script>") || strings.Contains(text, "\x1b") {
			t.Errorf("%s: markup of others in the text", name)
		}

		for _, c := range d.Caveats {
			if !strings.Contains(text, escape(c.Text)) {
				t.Errorf("%s: the caveat %s is missing", name, c.Kind)
			}
		}
	}
}

// TestSubject: the title of an article is the device, not the processor that carries it.
func TestSubject(t *testing.T) {
	facts := map[string]string{"product": "Archer C7", "cpu_model": "MIPS 74Kc", "distribution": "OpenWrt",
		"distribution_version": "24.10"}
	for _, test := range []struct {
		node   record.NodeFacts
		device string
		want   string
	}{
		{record.NodeFacts{Name: "router"}, "", "One machine in all three roles, OpenWrt 24.10"},
		{record.NodeFacts{Name: "router", OwnKernel: true, CPUs: record.CPUsVirtual}, "",
			"A virtual router, OpenWrt 24.10"},
		{record.NodeFacts{Name: "router", OwnKernel: true, CPUs: record.CPUsOwn}, "", "Archer C7, OpenWrt 24.10"},
		{record.NodeFacts{Name: "router"}, "my router", "my router"},
		{record.NodeFacts{Name: "other"}, "", ""},
	} {
		d := &analysis.Document{
			Nodes: []record.NodeFacts{test.node},
			Topologies: []record.Topology{
				{Nodes: []record.TopoNode{{Name: "client"}, {Name: "router", Router: true}}},
			},
			Environment: []record.Environment{{Node: "router", Facts: facts}},
		}
		d.Run.Device = test.device
		if got := newView(d).subject(); got != test.want {
			t.Errorf("%+v: got %q, want %q", test.node, got, test.want)
		}
	}
}

// TestEscape: nothing in a text is a mention, a formula or markup.
func TestEscape(t *testing.T) {
	for text, want := range map[string]string{
		"@root paid $5 of $10": "@\u2060root paid &#36;5 of &#36;10",
		"link_mtu@router":      `link\_mtu@router`,
		"(@team) <b>":          "(@\u2060team) &lt;b&gt;",
	} {
		if got := escape(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// TestSharesInCSV: the shares of a cell stand behind its numbers, in columns that a run without any has not.
func TestSharesInCSV(t *testing.T) {
	read := func(d *analysis.Document) [][]string {
		t.Helper()
		text, err := CSV(d)
		if err != nil {
			t.Fatal(err)
		}

		lines, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		return lines
	}
	lines := read(articleDocument())
	at := func(name string) int { return slices.Index(lines[0], name) }
	if at("of_baseline_ratio") < 0 || at("of_default_mtu_ratio") < 0 {
		t.Fatalf("columns: %q", lines[0])
	}

	for _, l := range lines[1:] {
		want := []string{"", ""}
		if l[at("tunnel")] == "wireguard" {
			want = []string{"0.181", "0.9"}
		}

		got := []string{l[at("of_baseline_ratio")], l[at("of_default_mtu_ratio")]}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", l[at("label")], got, want)
		}
	}

	if head := read(sampleDocument())[0]; slices.Contains(head, "of_baseline_ratio") {
		t.Errorf("a run without shares has %q", head)
	}
}
