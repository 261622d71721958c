package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// firmwareTime limits the time from the installation step until the router reports the requested version.
// firmwareStays is a shorter limit for a router that reports another version. Such a router may not have
// rebooted yet.
const (
	firmwareTime  = 5 * time.Minute
	firmwareStays = 2 * time.Minute
	firmwarePause = time.Second
)

// nobodyInstalls is the reason given if Campaign.Install is nil.
const nobodyInstalls = "nobody is there to install it: the lab file has no firmware: {command: […]}, and " +
	"there is no terminal to ask at"

// canHave returns the reason why the lab's router cannot run a firmware, and reports whether the router
// already runs it.
func (c *Campaign) canHave(ctx context.Context, l *lab.Lab, level string) (no check.Answer, there bool,
	err error) {
	n, err := l.Node(ctx, l.Topology.Routers[0])
	switch {
	case err != nil:
		return no, false, err
	case !n.HasAgent() && !n.HasDriver():
		return check.Not("firmware on %s: %s", n.Name, n.Describe().Unreachable), false, nil
	case !n.Facts.OwnMachine():
		return check.Not("firmware on %s: the router is part of the lab, not a machine with a system to "+
			"replace", n.Name).Hinted("name a real router in a lab file; a virtual one boots another " +
			"system by --image or --kernel, in a run of its own"), false, nil
	}

	if c.version == "" {
		if c.version, err = c.firmware(ctx, l); err != nil {
			return check.Not("firmware on %s: %v", n.Name, err), false, nil
		}
	}

	if there = factor.Tells(c.version, level); !there && c.Install == nil {
		return check.Not("firmware %s on %s, which has %s: %s", level, n.Name, c.version, nobodyInstalls),
			false, nil
	}

	return no, there, nil
}

// firmware returns the version that the lab's router reports.
func (c *Campaign) firmware(ctx context.Context, l *lab.Lab) (string, error) {
	n, err := l.Node(ctx, l.Topology.Routers[0])
	if err != nil {
		return "", err
	}

	e, err := c.describe(ctx, l, n)
	if err == nil && e.Facts[firmwareFact] == "" {
		err = errors.New("it does not report its version")
		why := e.Missing["system"]
		if why != "" {
			err = fmt.Errorf("%w: %s", err, why)
		}
	}

	return e.Facts[firmwareFact], err
}

// equip makes sure that the router runs the firmware of a row. If that is impossible, it skips all cells
// with that firmware, and reports and stores the reason. An error ends the campaign.
func (c *Campaign) equip(ctx context.Context, row record.Row) error {
	level := factor.Firmware.Of(row.Factors)
	if level == "" || level == c.equipped {
		return nil
	}

	c.equipped = level
	b := c.testbeds[placeOf(row.Factors)]
	var err error
	if c.version, err = c.firmware(ctx, b.lab); err != nil || !factor.Tells(c.version, level) {
		if err = c.install(ctx, b, level); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}

	var no []record.Skipped
	answers := map[string]check.Answer{}
	for _, cell := range c.Plan.Cells() {
		if !factor.Firmware.Is(cell, level) || c.skip[cell.Key()] {
			continue
		}

		s := record.Skipped{Factors: cell}
		if err != nil {
			s.Reason, s.Hint = fmt.Sprintf("firmware %s: %v", level, err), check.HintOf(err)
		} else if can, wrong := c.impossible(ctx, cell, answers); wrong != nil {
			return wrong
		} else {
			s.Reason = can.Reason
			s.Hint = can.Hint
		}

		if s.Reason != "" {
			c.skip[cell.Key()] = true
			no = append(no, s)
		}
	}

	if len(no) == 0 {
		return nil
	}

	c.Run.Skipped = append(c.Run.Skipped, no...)
	c.reportSkipped(no)
	return c.Learnt(ctx, no, nil)
}

// install has a firmware installed. It then reconnects to the router and reads the router's version.
func (c *Campaign) install(ctx context.Context, b *testbed, level string) error {
	if c.Install == nil {
		return errors.New(nobodyInstalls)
	}

	// Restore the settings first, because the installation would lose them, and nothing must be restored
	// while it runs.
	if err := b.lab.Clear(ctx); err != nil {
		return err
	}

	err := b.watch.Close()
	b.watch, c.discovered = nil, nil
	if err != nil {
		return err
	}

	c.tell(record.Event{
		Event: "step",
		Text: fmt.Sprintf("install firmware %s on the router, which has %s",
			level, orUnknown(c.version)),
	})
	before := c.version
	failed := c.Install(ctx, level)
	if failed != nil {
		failed = fmt.Errorf("the step that installs it: %w", failed)
	}

	err = c.meetAgain(ctx, b.lab, level, failed != nil)
	c.installed = c.installed || failed == nil || c.version != before // a failed step may have installed it
	if failed != nil {
		return check.WithHint(fmt.Errorf("%w; the router has %s", failed, orUnknown(c.version)),
			check.HintOf(failed))
	}

	if err == nil {
		err = c.ensureWatch(ctx, b)
	}

	return err
}

func orUnknown(version string) string { return cmp.Or(version, "one that is not known") }

// meetAgain waits until the router answers, and then rediscovers the router and its version. If the step
// failed, any version is accepted.
func (c *Campaign) meetAgain(ctx context.Context, l *lab.Lab, level string, failed bool) error {
	begun := time.Now()
	most := cmp.Or(c.InstallWait, firmwareTime)
	for {
		c.version = ""
		within, cancel := context.WithTimeout(ctx, l.ReconnectTime())
		err := l.Rediscover(within)
		if err == nil {
			c.version, err = c.firmware(within, l)
		}

		cancel()
		patience := most
		if err == nil {
			if failed || factor.Tells(c.version, level) {
				return nil
			}

			patience = min(most, firmwareStays)
			err = fmt.Errorf("the router has %s", c.version)
		}

		if time.Since(begun) >= patience || host.Pause(ctx, min(patience, firmwarePause)) != nil {
			return fmt.Errorf("after the step that installs it: %w", err)
		}
	}
}

// keepFirmware records which firmware the router runs at the end of the run, if a step has installed one,
// because the original firmware is not restored.
func (c *Campaign) keepFirmware(ctx context.Context) error {
	if !c.installed {
		return nil
	}

	text := fmt.Sprintf("firmware was installed between the trials, one level after the other, so that what "+
		"changes with time is in the difference; it is not put back: the router has %s now",
		orUnknown(c.version))
	c.tell(record.Event{Event: "warning", Text: text})
	caveat := record.Caveat{Kind: "firmware-in-turn", Text: text}
	c.Run.Caveats = append(c.Run.Caveats, caveat)
	return c.Learnt(context.WithoutCancel(ctx), nil, []record.Caveat{caveat})
}
