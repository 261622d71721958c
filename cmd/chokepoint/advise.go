package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/model"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// adviceDocument is the output of advise --json.
type adviceDocument struct {
	Format     string         `json:"format"`
	Need       model.Need     `json:"need"`
	GoodputBps float64        `json:"needed_goodput_bps"` // TCP goodput that the line carries
	Devices    []model.Advice `json:"devices"`
}

func newAdviseCommand(p *program) *cobra.Command {
	n := model.Need{}
	var wan, bundles string
	cmd := &cobra.Command{
		Use:   "advise --line RATE",
		Short: "List which published routers are fast enough for a line",
		Long: `List which routers of the catalogue are fast enough for a line. The verdict comes from
published results or, if a router has none, from a model; such a verdict is marked.
"Enough": even the worst comparable result reaches 95 % of the line's TCP goodput.
"Enough if": it does so with the named setting of the router, such as its clock or
queue. "Not enough": even the best result does not reach 80 %. "Borderline": between
these. "Cannot tell": there is neither a comparable result nor enough data for a model.
Below each router, "unknown" lists what nobody measured. The energy per year is computed
from the published power, with --busy hours a day at full load.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rate, err := unit.ParseBitrate(wan)
			switch {
			case wan == "":
				return app.Usage("give the rate of the line, such as --line 1G", "advise wants --line")
			case err != nil || rate < 1e6 || rate > 1e12:
				return app.Usage("give bits per second with M or G, such as 300M",
					"--line %q is not a rate from 1M to 1000G", wan)
			}

			n.Tunnel = tunnelCalled(n.Tunnel)
			err = cmp.Or(between("", "users", n.Users, 1, 100000), asksForZero(cmd, "mtu"),
				knownLevels(n.Tunnel, "", "", 0, n.MTU), checkPower(n.BusyHours, n.Price))
			if err != nil {
				return err
			}

			c, aside, scores, err := p.soundCatalogue(bundles)
			if err != nil {
				return err
			}

			n.WANBps = float64(rate)
			n.OnlyMTU = n.MTU > 0
			n.MTU = cmp.Or(n.MTU, model.FittingMTU(n.Tunnel))
			d := adviceDocument{"chokepoint-advice/1", n, n.GoodputBps(), model.Advise(c, n, scores)}
			for i := range d.Devices {
				d.Devices[i].Uncounted = uncounted(aside, d.Devices[i].Device)
			}

			return p.document(d, p.fitted(adviceText(d, p.width())))
		},
	}
	f := cmd.Flags()
	f.StringVar(&wan, "line", "", "`RATE` of the line, such as 1G")
	f.StringVar(&n.Tunnel, "tunnel", "none", "the tunnel `NAME`: "+catalogTunnelWords())
	f.IntVar(&n.MTU, "mtu", 0, "inner MTU in `BYTES` (default: the usual one; other MTUs count as settings)")
	f.IntVar(&n.Users, "users", 1, "number `N` of simultaneous users")
	f.Float64Var(&n.BusyHours, "busy", 2, "`HOURS` a day at full load, for the energy per year")
	f.Float64Var(&n.Price, "price", 0, "`PRICE` of a kWh, for the cost of a year's energy")
	addBundles(cmd, &bundles)
	return addJSON(cmd, "print one JSON document")
}

// checkPower returns an error if the hours or the price are out of range.
func checkPower(hours, price float64) error {
	switch {
	case !(hours >= 0 && hours <= 24):
		return app.Usage("a day has 24 hours", "--busy %g is not from 0 to 24", hours)
	case !(price >= 0 && price <= 1e6):
		return app.Usage("give the price of one kWh, such as 0.3", "--price %g is not from 0 to 1000000",
			price)
	}
	return nil
}

// adviceText formats advice for a width in columns; 0 means unlimited.
func adviceText(d adviceDocument, width int) string {
	var b builder
	b.printf("A line of %s carries %s of TCP, tunnel %s, MTU %d. %s at once.\n",
		unit.Bitrate(d.Need.WANBps), unit.Bitrate(d.GoodputBps), d.Need.Tunnel, d.Need.MTU,
		unit.Count(d.Need.Users, "user"))
	common := slices.Clone(d.Devices[0].Missing) // what all devices lack is shown only once
	for _, a := range d.Devices {
		common = slices.DeleteFunc(common, func(m string) bool { return !slices.Contains(a.Missing, m) })
	}

	verdict := ""
	var rows grid
	for _, a := range d.Devices {
		if a.Verdict != verdict {
			verdict = a.Verdict
			rows.add()
			rows.add(verdict)
		}

		why := a.Why
		if a.Watts != "" {
			why += "; draws " + a.Watts
		}

		lines := []string{why}
		for _, s := range a.If {
			lines = append(lines, "enough if: "+settingWords(s))
		}

		if a.Nearest != nil {
			lines = append(lines, "nearly enough if: "+settingWords(*a.Nearest))
		}

		if a.Year != nil {
			lines = append(lines, a.Year.Text()+" ("+a.Year.Basis+")")
		}

		for _, why := range a.Impossible {
			lines = append(lines, "not counted, impossible: "+why)
		}

		if a.Uncounted != "" {
			lines = append(lines, a.Uncounted)
		}

		missing := without(a.Missing, func(m string) bool { return slices.Contains(common, m) })
		if len(missing) > 0 {
			lines = append(lines, "unknown: "+list(missing))
		}

		rows.add("  "+a.Device, lines[0])
		for _, line := range lines[1:] {
			rows.add("", "  "+line)
		}
	}

	b.WriteString(layout(rows, width))
	if len(common) > 0 {
		b.printf("\nunknown of all: %s\n", list(common))
	}

	return b.String()
}

// settingWords describes a setting and the lowest rate measured with it.
func settingWords(s model.Settings) string {
	return fmt.Sprintf("%s (%s or more, %s of the need)", s.Words, unit.Bitrate(s.LowBps),
		unit.Percent(s.Share))
}
