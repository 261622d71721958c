package knob

import (
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// CPUQuota limits each vCPU of the lab's guests to a share of one core of this machine, such as "25%", in
// order to emulate slower routers. "off" removes the limit. The knob is set on the machine that runs QEMU. It
// does not limit QEMU's main thread, which moves packets into and out of the guest.
func CPUQuota() Knob {
	return &kernelKnob[kernel.Quota]{
		declared: declared{factor.Declaration{
			Policy:  true,
			Name:    "cpu_quota",
			Unit:    "off, or % of a core, 1% to 100%",
			Placed:  factor.OnHost,
			Target:  factor.Carrier,
			Doc:     "share of one core of this machine that each vCPU of the virtual routers may use",
			Needs:   factor.NeedsRouter,
			Without: without("off", "without quota"),
		}},
		spelling: spelling[kernel.Quota]{
			parse: parsePercent,
			spell: spellPercent,
			bound: func(q kernel.Quota) error {
				if q > 100*100 {
					return errQuota
				}
				return nil
			},
			// The kernel rounds the quota to whole microseconds.
			same: func(want, got kernel.Quota) bool { return max(want, got)-min(want, got) <= 1 },
		},
		read: func(p Place) (kernel.Quota, error) {
			if p.Lab == "" {
				return 0, nil
			}
			return kernel.CPUQuota(p.Lab)
		},
		apply: func(p Place, q kernel.Quota) error {
			switch {
			case p.Lab == "" && q == 0:
				return nil // because there is nothing to undo without a guest
			case p.Lab == "":
				return errors.New("set cpu_quota: no lab named at " + p.Node)
			}
			return kernel.SetCPUQuota(p.Lab, q)
		},
		check: func(p Place, q kernel.Quota) error {
			if p.Lab == "" {
				return cannot("only the machine that carries a lab of virtual machines has it: " +
					"cpu_quota@host")
			}

			err := kernel.ProbeCPUQuota(p.Lab)
			if err != nil && strings.Contains(err.Error(), "writable") {
				return check.WithHint(err, "run as root, or in a cgroup that is delegated to you")
			}

			return err
		},
		always: "off",
	}
}

var errQuota = want("off, or a share of one core from 1%% to 100%%")

func parsePercent(text string) (kernel.Quota, error) {
	if text == "off" {
		return 0, nil
	}

	percent, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || !(percent >= 1 && percent <= 1e4) || strings.ContainsAny(text, "eExXpP_+") {
		return 0, errQuota
	}

	return kernel.Quota(math.Round(percent * 100)), nil
}

func spellPercent(q kernel.Quota) State {
	if q == 0 {
		return "off"
	}
	return strconv.FormatFloat(float64(q)/100, 'f', -1, 64) + "%"
}
