package main

import (
	"cmp"
	"slices"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/model"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// adviceDocument holds the output of advise --json.
type adviceDocument struct {
	Format     string         `json:"format"`
	Need       model.Need     `json:"need"`
	GoodputBps float64        `json:"needed_goodput_bps"` // what the line carries
	Devices    []model.Advice `json:"devices"`
}

func newAdviseCommand(p *program) *cobra.Command {
	n := model.Need{}
	var wan, bundles string
	cmd := &cobra.Command{
		Use:   "advise --line RATE",
		Short: "List which published routers are fast enough for a line",
		Long: `List which routers of the catalogue are fast enough for a line. The verdict comes from
published results or, if a router has none, from a model, which is marked. Enough: the
worst comparable result reaches 95 % of the TCP goodput of the line; not enough: the
best does not reach 80 %. Each router has a list of what was not measured.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rate, err := unit.ParseBitrate(wan)
			switch {
			case wan == "":
				return app.Usage("give the rate of the line, such as --line 1G", "advise wants --line")
			case err != nil || rate < 1e6 || rate > 1e12:
				return app.Usage("give bits per second with M or G, such as 300M",
					"--line %q is not a rate from 1M to 1000G", wan)
			}

			err = cmp.Or(between("", "users", n.Users, 1, 100000), asksForZero(cmd, "mtu"),
				knownLevels(n.Tunnel, "", "", 0, n.MTU))
			if err != nil {
				return err
			}

			c, aside, scores, err := p.soundCatalogue(bundles)
			if err != nil {
				return err
			}

			n.WANBps = float64(rate)
			n.MTU = cmp.Or(n.MTU, model.FittingMTU(n.Tunnel))
			d := adviceDocument{record.Format, n, n.GoodputBps(), model.Advise(c, n, scores)}
			for i := range d.Devices {
				d.Devices[i].Uncounted = uncounted(aside, d.Devices[i].Device)
			}

			return p.document(d, adviceText(d))
		},
	}
	f := cmd.Flags()
	f.StringVar(&wan, "line", "", "`RATE` of the line, such as 1G")
	f.StringVar(&n.Tunnel, "tunnel", "none", "the tunnel `NAME`: none, wireguard, openvpn")
	f.IntVar(&n.MTU, "mtu", 0, "the inner MTU in `BYTES` (default: the usual one)")
	f.IntVar(&n.Users, "users", 1, "number `N` of simultaneous users")
	addBundles(cmd, &bundles)
	return addJSON(cmd, "print one JSON document")
}

func adviceText(d adviceDocument) string {
	var b builder
	b.printf("A line of %s carries %s of TCP, tunnel %s, MTU %d. %s at once.\n",
		unit.Bitrate(d.Need.WANBps), unit.Bitrate(d.GoodputBps), d.Need.Tunnel, d.Need.MTU,
		unit.Count(d.Need.Users, "user"))
	common := slices.Clone(d.Devices[0].Missing) // of all: said once
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

		power := ""
		if a.Watts != "" {
			power = "; draws " + a.Watts
		}

		rows.add("  "+a.Device, a.Why+power)
		if a.Uncounted != "" {
			rows.add("", "  "+a.Uncounted)
		}

		missing := without(a.Missing, func(m string) bool {
			return slices.Contains(common, m)
		})
		if len(missing) > 0 {
			rows.add("", "  not measured: "+list(missing))
		}
	}

	b.WriteString(table(rows, 0))
	if len(common) > 0 {
		b.printf("\nnot measured of any: %s\n", list(common))
	}

	return b.String()
}
