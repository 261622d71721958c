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

// The level nat=off changes nothing on a router, so that a router does not lose its owner's NAT. The level is
// therefore wrong on a path on which addresses are translated anyway. If the plan contains nat=off, cells
// with this level are skipped on such a path. If nat=off is only the default, it is removed from the cells.

// asksNATOff reports whether the plan contains nat=off.
func (c *Campaign) asksNATOff() bool {
	return slices.ContainsFunc(c.Run.Design.Factors, func(f record.FactorLevels) bool {
		return slices.ContainsFunc(f.Levels, func(level string) bool {
			return factor.NAT.Is(record.Factors{f.Name: level}, factor.Off)
		})
	})
}

// dropDefaultNAT removes the default nat=off from cells on whose path addresses are translated.
func (c *Campaign) dropDefaultNAT(ctx context.Context) error {
	if c.asksNATOff() || len(c.Done) > 0 { // because existing trials have the cells of the stored design
		return nil
	}

	translated := map[int]bool{} // whether addresses are translated, by IP version
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

// noNATOff returns the reason why a cell cannot be measured without NAT, and a hint. It returns no reason
// for cells that have nat=off only by default in a run that already has trials, because those trials were
// recorded with that level.
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

// pathIP returns the IP version of the cell's packets at the router.
func pathIP(cell record.Factors) int {
	if factor.Tunnel.Is(cell, factor.NoTunnel, "") {
		return cmp.Or(factor.IP.Number(cell), 4)
	}
	return cmp.Or(factor.OuterIP.Number(cell), 4)
}

// natPlace identifies a path that was checked for NAT.
type natPlace struct {
	labPlace
	ip int
}

// translated reports whether addresses are translated on the path of a cell with nat=off. In a lab that
// consists only of our own nodes, no node can translate them.
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
	if err != nil || far.Serves != "" { // the path is unknown, so assume that it does not translate
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
		put(&c.nat, at, translates(ctx, l, ip))
	}

	return c.nat[at], context.Cause(ctx)
}

// translates checks for NAT in a lab with its own network. If the check is inconclusive, it returns false.
func translates(ctx context.Context, l *lab.Lab, ip int) bool {
	w, err := gather(ctx, l, lab.Path{Resolved: "none"}, demand{
		ip:          ip,
		ports:       portsOf(l),
		probeOpener: "near",
	})
	if err != nil {
		return false
	}

	got, err := w.exchange(ctx, 0, agent.Reach{Sizes: []int{minTagged}, Tries: discoverTries})
	return err == nil && len(got.Back) > 0 && w.translates(ctx) == "near"
}
