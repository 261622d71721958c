package trial

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// The level nat=off sets nothing, so that no router loses the translation that its owner has made. It is true
// of no path on which addresses are translated all the same: a cell that asks for it is skipped there, and
// one that only has it as the default goes without.

// asksNATOff reports whether the plan says nat=off.
func (c *Campaign) asksNATOff() bool {
	return slices.ContainsFunc(c.Run.Design.Factors, func(f record.FactorLevels) bool {
		return slices.ContainsFunc(f.Levels, func(level string) bool {
			return factor.NAT.Is(record.Factors{f.Name: level}, factor.Off)
		})
	})
}

// dropDefaultNAT takes nat=off out of the cells of a plan that does not say it, where addresses are
// translated by what is there.
func (c *Campaign) dropDefaultNAT(ctx context.Context) error {
	if c.asksNATOff() || len(c.Done) > 0 { // trials that were made have the cells of the stored design
		return nil
	}

	translated := map[int]bool{} // by version of IP
	for _, cell := range c.Plan.Cells() {
		is, err := c.translated(ctx, cell)
		if err != nil {
			return err
		}

		translated[pathIP(cell)] = is || translated[pathIP(cell)]
	}

	is := func(cell record.Factors) bool { return translated[pathIP(cell)] }
	c.Run.Design.DropDefaultNAT(is)
	c.Plan.Design.DropDefaultNAT(is)
	return nil
}

// noNATOff is the reason why a cell cannot be without translation, and how it could; none where it can. Nor
// is there one of a run with trials whose cells have the level only as the default: versions before made
// them so, and the others are measured like them.
func (c *Campaign) noNATOff(ctx context.Context, cell record.Factors) (no check.Answer, err error) {
	if len(c.Done) > 0 && !c.asksNATOff() {
		return no, nil
	}

	if is, err := c.translated(ctx, cell); !is || err != nil {
		return no, err
	}

	b, err := c.testbed(ctx, cell)
	if err != nil {
		return no, err
	}

	t := b.lab.Topology
	router, err := b.lab.Node(ctx, t.Routers[0])
	if err != nil {
		return no, err
	}

	return check.Not("nat=off on %s: what is there translates addresses: %s does not see %s by its own one",
		router.Name, t.Far, t.Near).Hinted("if %s does so, by hand: %s; the way back to %s must lead by it "+
		"then; a plan without nat measures as found", router.Name, driver.WithoutNAT(router.Driver),
		t.Near), nil
}

// pathIP is the version of IP of what passes the router in a cell.
func pathIP(cell record.Factors) int {
	if factor.Tunnel.Is(cell, factor.NoTunnel, "") {
		return cmp.Or(factor.IP.Number(cell), 4)
	}
	return cmp.Or(factor.OuterIP.Number(cell), 4)
}

// natPlace is a path on which address translation was looked for.
type natPlace struct {
	labPlace
	ip int
}

// translated reports whether addresses are translated on the path of a cell with nat=off. Where a lab is of
// our making alone there is nothing that could.
func (c *Campaign) translated(ctx context.Context, cell record.Factors) (bool, error) {
	if !factor.NAT.Is(cell, factor.Off) || !factor.Sends(cell) {
		return false, nil
	}

	b, err := c.testbed(ctx, cell)
	_, no := errors.AsType[*lab.NoTopology](err)
	if no {
		return false, nil
	}

	if err != nil || len(b.lab.Topology.Routers) == 0 {
		return false, err
	}

	l := b.lab
	ip := pathIP(cell)
	far, err := l.Node(ctx, l.Topology.Far)
	if err != nil || far.Serves != "" { // nothing is known of its path
		return false, err
	}

	if !l.OwnNetwork() {
		x, err := c.discover(ctx, l, ip)
		return err == nil && x.translates(), err
	}

	if c.Run.Attached == "" && c.Run.Image == nil {
		return false, nil
	}

	at := natPlace{placeOf(cell), ip}
	_, known := c.nat[at]
	if !known {
		if c.nat == nil {
			c.nat = map[natPlace]bool{}
		}

		c.nat[at] = translates(ctx, l, ip)
	}

	return c.nat[at], context.Cause(ctx)
}

// translates asks the ends of a lab whose network is its own. What cannot be told is no yes.
func translates(ctx context.Context, l *lab.Lab, ip int) bool {
	w, err := gather(ctx, l, lab.Path{Resolved: "none"}, demand{
		ip:          ip,
		ports:       portsOf(l),
		probeOpener: "near",
	})
	if err != nil {
		return false
	}

	got, err := w.exchange(ctx, 0, agent.Reach{Sizes: []int{leastTold}, Tries: discoverTries})
	return err == nil && len(got.Back) > 0 && w.translates(ctx) == "near"
}
