package serve

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/history"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/report"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

const (
	pageLength  = 50 // number of runs on a page of the list
	perDevice   = 5  // number of newest runs shown for a device
	maxChoices  = 500
	maxWords    = 200 // maximum length of the search text in bytes
	reloadAfter = 60  // reload interval in seconds while a run in the list is running
)

// links returns the links that every page has. The parameter here is the path of the current page.
func links(here string) []report.Link {
	all := []report.Link{{Href: "/", Text: "Runs"}, {Href: "/devices", Text: "Devices"},
		{Href: "/compare", Text: "Compare"}, {Href: "/history", Text: "History"},
		{Href: "/beds", Text: "Testbeds"}, {Href: "/alarms", Text: "Alarms"}}
	for i := range all {
		all[i].Here = all[i].Href == here
	}
	return all
}

// linkTo returns a local link with parameters. Names and values of the parameters alternate.
func linkTo(path string, parameters ...string) string {
	v := url.Values{}
	for pair := range slices.Chunk(parameters, 2) {
		v.Set(pair[0], pair[1])
	}
	return path + "?" + v.Encode()
}

// heads lists the runs, newest first.
func (s *Server) heads(r *http.Request) ([]app.Head, error) {
	heads, err := s.app.Dirs.Runs(r.Context())
	unlisted := ""
	if err != nil && len(heads) > 0 { // some runs could be read
		unlisted = err.Error()
		err = nil
	}

	s.noteOnce(unlisted)
	return heads, err
}

// noteOnce reports an error unless it equals the previous one, because browsers request lists and events
// again and again. The text "" means that there was no error.
func (s *Server) noteOnce(text string) {
	before, _ := s.unlisted.Swap(text).(string)
	if text != "" && text != before {
		s.note("%s", text)
	}
}

// runOf returns the run with the given id.
func runOf(heads []app.Head, id string) (app.Head, error) {
	i := slices.IndexFunc(heads, func(h app.Head) bool { return h.ID == id && h.Damaged == "" })
	if i < 0 {
		return app.Head{}, notFound("run")
	}
	return heads[i], nil
}

// run returns the run that the path of a request names.
func (s *Server) run(r *http.Request) (app.Head, error) {
	heads, err := s.heads(r)
	if err != nil {
		return app.Head{}, err
	}
	return runOf(heads, r.PathValue("id"))
}

// device returns the device of a run as lists show it. If the device is unknown, it returns the lab.
func device(h app.Head) string { return cmp.Or(h.Device, h.Lab) }

// filters lists the parameters that select runs by an exact value.
var filters = []struct {
	name, label string
	of          func(app.Head) string
}{
	{"device", "Device", device},
	{"plan", "Plan", func(h app.Head) string { return h.Plan }},
	{"lab", "Lab", func(h app.Head) string { return h.Lab }},
	{"status", "Status", func(h app.Head) string { return h.Status }},
}

// matches reports whether a run contains all words of the parameter q and has the values of the filters.
func matches(h app.Head, q url.Values) bool {
	_, in := app.BestWords(h)
	texts := append([]string{h.ID, h.Name, h.Device, h.Plan, h.Lab, h.Status, app.VariedWords(h.Varied), in},
		h.Notes...)
	ok := app.HasWords(strings.Join(texts, " "), q.Get("q"))
	for _, f := range filters {
		want := q.Get(f.name)
		ok = ok && (want == "" || f.of(h) == want)
	}
	return ok
}

// part describes the page of a list that a request asks for.
type part struct {
	Found int `json:"found"` // number of entries on all pages
	Page  int `json:"page"`
	Pages int `json:"pages"`
}

// partOf returns the part that the parameter "page" selects.
func partOf(q url.Values) (p part, err error) {
	p.Page, err = strconv.Atoi(cmp.Or(q.Get("page"), "1"))
	if err != nil || p.Page < 1 {
		return p, badRequest("page is a number from 1 on")
	}
	return p, nil
}

// add counts one more entry of the list and reports whether the entry is in this part.
func (p *part) add() bool {
	p.Found++
	return (p.Found-1)/pageLength == p.Page-1
}

// end returns an error if the list has no such part.
func (p *part) end() error {
	p.Pages = max(1, (p.Found+pageLength-1)/pageLength)
	if p.Page > p.Pages {
		return notFound("page of this list")
	}
	return nil
}

// links returns links to the previous and the next part.
func (p *part) links(path string, q url.Values, before, after string) (all []report.Link) {
	if p.Page > 1 {
		all = append(all, report.Link{Href: with(path, q, "page", p.Page-1), Text: before})
	}

	if p.Page < p.Pages {
		text := fmt.Sprintf("%s (page %d of %d)", after, p.Page+1, p.Pages)
		all = append(all, report.Link{Href: with(path, q, "page", p.Page+1), Text: text})
	}

	return all
}

// runList is the part of a list of runs that a request asks for.
type runList struct {
	Format string `json:"format"`
	part
	Runs []app.Listed `json:"runs"`
}

// selected returns all runs, and the part of the list that the request asks for.
func (s *Server) selected(r *http.Request) (all []app.Head, l runList, err error) {
	q := r.URL.Query()
	l = runList{Format: "chokepoint-runs/1", Runs: []app.Listed{}}
	if l.part, err = partOf(q); err != nil {
		return nil, l, err
	}

	if len(q.Get("q")) > maxWords {
		return nil, l, badRequest(fmt.Sprintf("q has at most %d bytes", maxWords))
	}

	if all, err = s.heads(r); err != nil {
		return nil, l, err
	}

	for _, h := range all {
		if matches(h, q) && l.add() {
			l.Runs = append(l.Runs, app.ListedOf(h))
		}
	}

	return all, l, l.end()
}

func (s *Server) runsPage(r *http.Request) ([]byte, error) {
	all, l, err := s.selected(r)
	if err != nil {
		return nil, err
	}

	q := r.URL.Query()
	p := report.ServedPage{
		Links: links("/"),
		Title: "Runs",
		Lead:  fmt.Sprintf("%d of %s, the newest first.", l.Found, unit.Count(len(all), "run")),
		Form: &report.Form{Action: "/", Button: "Show", Fields: []report.Field{
			{Name: "q", Label: "Search", Value: q.Get("q")},
		}},
	}
	for _, f := range filters {
		p.Form.Fields = append(p.Form.Fields, report.Field{
			Name:    f.name,
			Label:   f.label,
			Value:   q.Get(f.name),
			Options: choices(all, f.of),
		})
	}

	if len(all) == 0 {
		p.Alerts = []report.Item{{Text: "Nothing is stored yet. chokepoint run measures and stores a run."}}
	}

	if l.Found > 0 {
		t := runTable("runs-table", l.Runs)
		p.Sections = []report.Section{{ID: "runs", Title: "Stored runs", Blocks: []report.Block{t}}}
	}

	p.More = l.links("/", q, "Newer runs", "Older runs")
	running := slices.ContainsFunc(l.Runs, func(x app.Listed) bool { return x.Alive })
	if running && !q.Has("still") {
		p.Refresh = reloadAfter
		text := fmt.Sprintf("a run is being recorded. This page reloads every %d s; the last link stops "+
			"that.", reloadAfter)
		p.Alerts = append(p.Alerts, report.Item{Kind: "running", Text: text})
		p.More = append(p.More, report.Link{Href: with("/", q, "still", 1), Text: "Stop reloading"})
	}

	return p.HTML()
}

// with returns a link to the list with one parameter changed.
func with(path string, q url.Values, name string, value int) string {
	changed := maps.Clone(q)
	changed.Set(name, strconv.Itoa(value))
	return path + "?" + changed.Encode()
}

// choices lists the values that occur in the runs, and "" for any value.
func choices(heads []app.Head, of func(app.Head) string) []report.Option {
	var values []string
	for _, h := range heads {
		values = append(values, of(h))
	}

	slices.Sort(values)
	options := []report.Option{{Value: "", Text: "any"}}
	for _, v := range slices.Compact(values) {
		if v != "" {
			options = append(options, report.Option{Value: v, Text: v})
		}
	}

	return options
}

// runTable returns a table with a row for each run. It has the columns of the command list and the validity.
func runTable(id string, runs []app.Listed) report.Table {
	t := report.Table{ID: id, Cards: true}
	for _, head := range []string{"Run", "When", "Device", "Plan", "Varied", "Best", "In", "Validity"} {
		t.Columns = append(t.Columns, report.Column{Head: head})
	}

	for _, x := range runs {
		h := x.Head
		run := report.TableCell{Text: cmp.Or(h.Name, app.ShownID(h.ID))}
		if h.Name != "" {
			run.Sub = app.ShownID(h.ID)
		}

		if h.Damaged == "" {
			run.Href = "/runs/" + h.ID
		}

		tested, plan := cell(device(h)), cell(h.Plan)
		tested.Href = linkTo("/", "device", device(h))
		plan.Href = linkTo("/", "plan", h.Plan)
		if h.Device != "" {
			tested.Sub = "lab " + h.Lab
		}

		best, in := app.BestWords(h)
		row := []report.TableCell{run, cell(h.Started.Local().Format("2006-01-02 15:04")), tested, plan,
			cell(app.VariedWords(h.Varied)), cell(best), cell(in), cell("")}
		if h.Headline != nil {
			row[7] = cell(h.Headline.Grade)
			if h.Headline.Grade != evidence.GradeValid {
				row[7].Tone = report.Doubt
			}
		}

		t.Rows = append(t.Rows, report.TableRow{Cells: row})
	}

	return t
}

// cell returns a cell that shows a text, or a dash if there is none.
func cell(text string) report.TableCell {
	if text == "" || text == "-" {
		return report.TableCell{Text: "–", Tone: report.Quiet}
	}
	return report.TableCell{Text: text}
}

func (s *Server) runPage(r *http.Request) ([]byte, error) {
	h, err := s.run(r)
	if err != nil {
		return nil, err
	}

	more := append(links("")[:2], report.Link{Href: linkTo("/compare", "b", h.ID), Text: "Compare this run"},
		report.Link{Href: linkTo("/history", "plan", h.Plan), Text: "History of its plan"},
		report.Link{Href: "/api/v1/runs/" + h.ID, Text: "JSON"})
	return s.made(r.Context(), "page", h, func(d *analysis.Document) ([]byte, error) {
		return report.LinkedHTML(d, more)
	})
}

func (s *Server) devicesPage(r *http.Request) ([]byte, error) {
	q := r.URL.Query()
	l, err := partOf(q)
	if err != nil {
		return nil, err
	}

	heads, err := s.heads(r)
	if err != nil {
		return nil, err
	}

	var names []string // names in this part of the list
	runs := map[string]int{}
	newest := map[string][]app.Listed{}
	for _, h := range heads {
		name := device(h)
		runs[name]++
		if runs[name] == 1 && l.add() {
			names = append(names, name)
		}

		if len(newest[name]) < perDevice {
			newest[name] = append(newest[name], app.ListedOf(h))
		}
	}

	p := report.ServedPage{
		Links: links("/devices"),
		Title: "Devices",
		Lead:  unit.Count(l.Found, "device") + ". A run without a known device counts for its lab.",
	}
	for i, name := range names {
		p.Sections = append(p.Sections, report.Section{
			ID:    fmt.Sprint("device-", i),
			Title: cmp.Or(name, "unknown"),
			Lead: fmt.Sprintf("%d of %s; the device's name leads to all.", len(newest[name]),
				unit.Count(runs[name], "run")),
			Blocks: []report.Block{runTable(fmt.Sprint("runs-", i), newest[name])},
		})
	}

	if err := l.end(); err != nil {
		return nil, err
	}

	p.More = l.links("/devices", q, "Devices before", "More devices")
	return p.HTML()
}

// compared compares the runs that the parameters a and b name. It returns what render makes of the comparison
// and of the documents of both runs.
func (s *Server) compared(r *http.Request, heads []app.Head,
	render func(*analysis.RunComparison, [2]*analysis.Document) ([]byte, error)) (content []byte, err error) {
	q := r.URL.Query()
	if q.Get("a") == q.Get("b") {
		return nil, badRequest("a and b are the ids of two runs")
	}

	for _, name := range []string{"a", "b"} {
		if _, err := runOf(heads, q.Get(name)); err != nil {
			return nil, err
		}
	}

	err = s.alone(r.Context(), func() error {
		c, docs, err := s.app.Compare(r.Context(), q.Get("a"), q.Get("b"))
		if err == nil {
			content, err = render(c, docs)
		}
		return err
	})
	return content, err
}

func (s *Server) comparePage(r *http.Request) ([]byte, error) {
	heads, err := s.heads(r)
	if err != nil {
		return nil, err
	}

	q := r.URL.Query()
	a, b := q.Get("a"), q.Get("b")
	_, err = runOf(heads, b)
	if a == "" && (b == "" || err == nil) { // propose the runs that the command compare would choose
		older, newer, err := s.app.Dirs.Pair(r.Context(), b)
		if err == nil {
			a, b = older, newer
		}
	}

	p := report.ServedPage{
		Links: links("/compare"),
		Title: "Compare",
		Lead:  "B is compared with A: the ratios are those of B to A.",
		Form: &report.Form{Action: "/compare", Button: "Compare", Fields: []report.Field{
			{Name: "a", Label: "Run A", Value: a, Options: runChoices(heads, a)},
			{Name: "b", Label: "Run B", Value: b, Options: runChoices(heads, b)},
		}},
	}
	if q.Get("a") == "" {
		return p.HTML()
	}

	return s.compared(r, heads, func(c *analysis.RunComparison, docs [2]*analysis.Document) ([]byte, error) {
		p.Kind, p.Title = "Compare", cmp.Or(c.B.Name, c.B.ID)+" with "+cmp.Or(c.A.Name, c.A.ID)
		p.Sections = report.ComparisonSections(c, docs)
		p.More = []report.Link{{Href: "/runs/" + c.A.ID, Text: "Run A"},
			{Href: "/runs/" + c.B.ID, Text: "Run B"},
			{Href: linkTo("/api/v1/compare", "a", c.A.ID, "b", c.B.ID), Text: "JSON"}}
		return p.HTML()
	})
}

// runChoices lists the newest runs with results, and the run that is already chosen.
func runChoices(heads []app.Head, chosen string) (options []report.Option) {
	for _, h := range heads {
		if h.Damaged == "" && h.Trials > 0 && len(options) < maxChoices || h.ID == chosen {
			options = append(options, report.Option{
				Value: h.ID,
				Text:  cmp.Or(h.Name, app.ShownID(h.ID)) + " · " + device(h) + " · " + h.Plan,
			})
		}
	}

	if len(options) == 0 {
		return []report.Option{{Text: "no run has results"}}
	}

	return options
}

func (s *Server) historyPage(r *http.Request) ([]byte, error) {
	q := r.URL.Query()
	if q.Has("plan") {
		content, err := s.history(r, func(h *history.History) ([]byte, error) {
			data := linkTo("/api/v1/history", "plan", h.Plan, "device", h.Device, "cell", q.Get("cell"),
				"metric", q.Get("metric"))
			more := append(links("/history"), report.Link{Href: data, Text: "JSON"})
			return report.HistoryHTML(h, more...)
		})
		if many, ok := errors.AsType[*app.ManyResultsError](err); ok {
			return cellsPage(many, q)
		}

		return content, err
	}

	heads, err := s.heads(r)
	if err != nil {
		return nil, err
	}

	plans := choices(heads, func(h app.Head) string { return h.Plan })
	plans[0].Text = "that of the newest run"
	metric := []report.Option{{Text: "the rate"}}
	for _, name := range comparison.ComparedMetrics {
		metric = append(metric, report.Option{Value: name, Text: metrics.Label(name)})
	}

	p := report.ServedPage{
		Links: links("/history"),
		Title: "History",
		Lead: "How the results of a plan on a device changed from run to run. Name the device without its " +
			"firmware; without a name it is that of the newest run.",
		Form: &report.Form{Action: "/history", Button: "Show", Fields: []report.Field{
			{Name: "plan", Label: "Plan", Options: plans},
			{Name: "device", Label: "Device, or lab"},
			{Name: "cell", Label: "Words of the cell, or its id"},
			{Name: "metric", Label: "Metric", Options: metric},
		}},
	}
	return p.HTML()
}

// cellsPage lets the reader choose a cell when a history would have too many results.
func cellsPage(many *app.ManyResultsError, q url.Values) ([]byte, error) {
	p := report.ServedPage{
		Links: links("/history"),
		Kind:  "History",
		Title: many.Plan,
		Lead: fmt.Sprintf("%s on %s in %s are too many for one page. Choose a cell.",
			unit.Count(len(many.Cells), "cell"), many.Device, unit.Count(many.Runs, "run")),
		Form: &report.Form{Action: "/history", Button: "Show", Fields: []report.Field{
			{Name: "cell", Label: "Words of the cell", Value: q.Get("cell")},
		}},
	}
	for _, name := range []string{"plan", "device", "metric"} {
		p.Form.Hidden = append(p.Form.Hidden, report.Field{Name: name, Value: q.Get(name)})
	}

	t := report.Table{ID: "cells-table", Cards: true, Columns: []report.Column{{Head: "Cell"}, {Head: "Id"}}}
	for _, c := range many.Cells[:min(len(many.Cells), maxChoices)] {
		id := c.Factors.ID()
		label := cell(c.Label)
		label.Href = linkTo("/history", "plan", many.Plan, "device", many.Device, "cell", id, "metric",
			q.Get("metric"))
		addRow(&t, label, cell(id))
	}

	p.Sections = []report.Section{{ID: "cells", Title: "Cells", Blocks: []report.Block{t}}}
	return p.HTML()
}
