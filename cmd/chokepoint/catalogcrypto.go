package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/ciphers"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/cipher"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

func newCatalogCryptoCommand(p *program) *cobra.Command {
	return catalogOfDevice(p, &cobra.Command{
		Use:   "crypto",
		Short: "List published speeds of ciphers, hashes and keys, and what suits a CPU",
		Long: `List published speeds of ciphers, hashes and key operations on one core, and recommend a
cipher and a VPN for each CPU. Bundles are included. With --beside, it lists only
results that a cell of your run also measures: the same algorithm, operation and block
size, with openssl and one thread; an AEAD counts only as a stream of data (cipher_mode
evp).`,
	},
		"the speed of ciphers", func(c *catalogue.Catalogue) int { return len(c.Speeds) },
		func(c *catalogue.Catalogue) error {
			err := printList(p, c.Speeds,
				"DEVICE | ALGORITHM | OPERATION | SPEED | BLOCK | SOURCE | MODE", speedRow)
			return p.withNote(err, cipherAdvice(c))
		},
		func(c *catalogue.Catalogue, d *analysis.Document) error { return p.besideSpeeds(c.Speeds, d) })
}

// catalogOfDevice adds the flags and the action to a command that lists the published figures of one or all
// devices, or compares a run with them. rows returns the number of figures.
func catalogOfDevice(p *program, cmd *cobra.Command, what string, rows func(*catalogue.Catalogue) int,
	list func(*catalogue.Catalogue) error,
	beside func(*catalogue.Catalogue, *analysis.Document) error) *cobra.Command {
	var device, run, bundles string
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := catalogue.Published() // without bundles, so that the run is not compared with itself
		if run == "" {
			c, _, err = p.joined(cmd.Context(), bundles, "")
		}

		if err == nil && device != "" {
			err = ofDevice(c, device)
		}

		switch {
		case err != nil:
			return err
		case rows(c) == 0:
			return fmt.Errorf("nothing is published of %s of %s", what, device)
		case run == "":
			return list(c)
		}

		d, err := p.Dirs.Document(cmd.Context(), run)
		if err != nil {
			return err
		}

		return beside(c, d)
	}
	addDevice(cmd, &device)
	addBeside(cmd, p, &run)
	addBundles(cmd, &bundles)
	cmd.MarkFlagsMutuallyExclusive("beside", "bundles")
	return addJSON(cmd, "print one JSON object per row")
}

func addDevice(cmd *cobra.Command, device *string) {
	cmd.Flags().StringVar(device, "device", "", "only the device `NAME`")
}

func addBeside(cmd *cobra.Command, p *program, run *string) {
	cmd.Flags().StringVar(run, "beside", "", "compare the stored `RUN` with the published values")
	cmd.RegisterFlagCompletionFunc("beside", completeRuns(p, 1))
}

// ofDevice removes the speeds and powers of other devices.
func ofDevice(c *catalogue.Catalogue, name string) error {
	if err := knownDevice(c, "--device", name); err != nil {
		return err
	}

	c.Speeds = slices.DeleteFunc(c.Speeds, func(s catalogue.Speed) bool {
		return !catalogue.IsDevice(s.Device, name)
	})
	c.Powers = c.PowersOf(name)
	return nil
}

// ownFigure is a figure of a cell of the user's run, for comparison with a published one.
type ownFigure struct {
	Label  string  `json:"label"`
	Median float64 `json:"median"`
	// Low and High are the bounds of the interval. Without an interval, both are equal to Median.
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	N     int     `json:"n"`
	Grade string  `json:"grade"`
}

// figureOf returns a cell's value of a metric, divided by scale. ok is false if the cell has no value.
func figureOf(c *analysis.Cell, metric string, scale float64) (f ownFigure, ok bool) {
	v, ok := c.Metrics[metric]
	f = ownFigure{c.Label, v.Median / scale, v.Low / scale, v.High / scale, v.N, c.Grade}
	if v.Low == 0 && v.High == 0 {
		f.Low, f.High = f.Median, f.Median
	}

	return f, ok && v.Median > 0
}

// besideSpeed compares a published speed with a cell's speed, in the published unit.
type besideSpeed struct {
	Published catalogue.Speed `json:"published"`
	Own       ownFigure       `json:"own"`
	Ratio     float64         `json:"ratio"` // own ÷ published
	Low       float64         `json:"ratio_low"`
	High      float64         `json:"ratio_high"`
	Differs   string          `json:"differs,omitempty"` // how the published speed was measured differently
}

func (p *program) besideSpeeds(speeds []catalogue.Speed, d *analysis.Document) error {
	var pairs []besideSpeed
	for _, s := range speeds {
		want, known := ciphers.CellOfPublished(s)
		if !known || s.Value == nil || *s.Value == 0 {
			continue
		}

		metric := metrics.CipherOps
		scale := 1.0
		if s.Unit == "B/s" {
			metric = metrics.CipherRate
			scale = 8
		}

		for i := range d.Cells {
			c := &d.Cells[i]
			own, ok := figureOf(c, metric, scale)
			ofCipher := factor.Engine.Is(c.Factors, factor.CipherEngine)
			if ok && ofCipher && cipher.CellOf(c.Factors, 0) == want {
				by := *s.Value
				pairs = append(pairs, besideSpeed{s, own, own.Median / by, own.Low / by, own.High / by,
					s.Mode})
			}
		}
	}

	if len(pairs) == 0 {
		return app.Hinted("a cell with engine: cipher, library: openssl, threads: 1 and block_size: 16384 "+
			"is; the plan crypto-full has such cells", "no cell of run %s is comparable with any of %s",
			d.Run.ID, unit.Count(len(speeds), "published speed"))
	}

	const head = "DEVICE | ALGORITHM | OPERATION | BLOCK | PUBLISHED | OWN CELL | OWN | OWN ÷ PUBLISHED | " +
		"INTERVAL | VALIDITY | PUBLISHED BY"
	err := printList(p, pairs, head, func(x besideSpeed) []any {
		s := x.Published
		own := s
		own.Value = &x.Own.Median
		interval := "-"
		if x.Own.N > 1 {
			interval = ratioText(x.Low) + " to " + ratioText(x.High)
		}

		return []any{s.Device, s.Algorithm, s.Operation, orDash(s.Block, " B"), s.Text(), x.Own.Label,
			own.Text(), ratioText(x.Ratio), interval, x.Own.Grade,
			cmp.Or(x.Differs, "openssl -evp")}
	})
	return p.withNote(err, inPlaceText(d))
}

func newCatalogPowerCommand(p *program) *cobra.Command {
	return catalogOfDevice(p, &cobra.Command{
		Use:   "power",
		Short: "List the published power of devices",
		Long: `List the published power of devices. Bundles are included. With --beside, the power of
your run under load, from its meter or the condition watts, is shown beside published
power under load, and the run's idle power beside power that a study calls normal.`,
	},
		"the power", func(c *catalogue.Catalogue) int { return len(c.Powers) },
		func(c *catalogue.Catalogue) error {
			return printList(p, c.Powers, "DEVICE | LOAD | POWER | SOURCE", func(w catalogue.Power) []any {
				return []any{w.Device, w.Load, cmp.Or(w.Watts(), "not given"), w.Source}
			})
		},
		func(c *catalogue.Catalogue, d *analysis.Document) error { return p.besidePowers(c.Powers, d) })
}

// besidePower compares a published power with a cell's power, in watts.
type besidePower struct {
	Published catalogue.Power `json:"published"`
	Own       ownFigure       `json:"own"`
	Low       float64         `json:"ratio_low"` // own ÷ upper bound of the published power
	High      float64         `json:"ratio_high"`
}

func (p *program) besidePowers(powers []catalogue.Power, d *analysis.Document) error {
	var pairs []besidePower
	for _, w := range powers {
		metric := metrics.PowerLoaded
		if w.Load == "normal" {
			metric = metrics.PowerIdle
		}

		for i := range d.Cells {
			if own, ok := figureOf(&d.Cells[i], metric, 1); ok && w.Low != nil && *w.Low > 0 {
				pairs = append(pairs, besidePower{w, own, own.Median / *w.High, own.Median / *w.Low})
			}
		}
	}

	if len(pairs) == 0 {
		return app.Hinted("a plan with a meter measures it, and the condition watts states it",
			"run %s has no power that is comparable with any of %s", d.Run.ID,
			unit.Count(len(powers), "published one"))
	}

	const head = "DEVICE | LOAD | PUBLISHED | OWN CELL | OWN | OWN ÷ PUBLISHED | VALIDITY | SOURCE"
	err := printList(p, pairs, head, func(x besidePower) []any {
		ratio := ratioText(x.Low)
		if x.Low != x.High {
			ratio += " to " + ratioText(x.High)
		}
		return []any{x.Published.Device, x.Published.Load, x.Published.Watts(), x.Own.Label,
			strconv.FormatFloat(x.Own.Median, 'g', 3, 64) + " W", ratio, x.Own.Grade, x.Published.Source}
	})
	return p.withNote(err, inPlaceText(d))
}
