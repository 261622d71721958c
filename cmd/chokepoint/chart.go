package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/report"
)

// pictureFormats lists the formats of a single chart.
var pictureFormats = []string{"svg", "png"}

// pictureOptions select a part of a report.
type pictureOptions struct {
	chart, size string
	brief       bool
	pixels      report.Size
}

func (o *pictureOptions) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.chart, "chart", "",
		"with svg or png: the chart of this `NAME` (default: the first); an unknown name lists all names")
	cmd.Flags().StringVar(&o.size, "size", "",
		"with svg or png: `WIDTHxHEIGHT` in pixels, or social for 1200x630, the size of link previews")
	cmd.Flags().BoolVar(&o.brief, "brief", false, "with md: only the table and five lines")
}

// validate returns an error if the options do not apply to the format.
func (o *pictureOptions) validate(format string) error {
	switch picture := slices.Contains(pictureFormats, format); {
	case !picture && o.chart != "":
		return app.Usage("add --format png, or svg", "--chart is for a single chart")
	case !picture && o.size != "":
		return app.Usage("add --format png, or svg", "--size is for a single chart")
	case o.brief && format != "md":
		return app.Usage("add --format md", "--brief is for md")
	case o.size == "social":
		o.pixels = report.Social()
	case o.size != "":
		w, h, _ := strings.Cut(o.size, "x")
		width, err := factor.ParseWhole(w, 200, 4096)
		height, err2 := factor.ParseWhole(h, 200, 4096)
		if err != nil || err2 != nil {
			return app.Usage("a size is 1200x630, of 200 to 4096 pixels, or social", "--size %q is no size",
				o.size)
		}

		o.pixels = report.Size{Width: int(width), Height: int(height)}
	}
	return nil
}

// render returns the report in the selected format.
func (o *reportOptions) render(d *analysis.Document) ([]byte, error) {
	switch {
	case slices.Contains(pictureFormats, o.format):
		err := known("run "+d.Run.ID+" has no chart %q", o.chart, "its charts", report.Charts(d)...)
		if err != nil {
			return nil, err
		}
		return report.Chart(d, o.chart, o.format, o.pixels)
	case o.brief:
		return report.Brief(d)
	case o.format == junitFormat:
		return report.JUnit(d, o.strict)
	}
	return layouts[o.format](d)
}
