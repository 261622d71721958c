package knob

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// CPUQuota is how much of one core of this machine each vCPU of the lab's guests may use, such as
// "25%": a slower router of the same kind. "off" is without a limit. Its place is the machine that runs
// QEMU. QEMU's own thread, which carries the packets in and out, is not limited.
func CPUQuota() Knob {
	return cpuQuota{declared{&factor.Declaration{
		Name:   "cpu_quota",
		Unit:   "off, or % of a core, 1% to 100%",
		Placed: factor.OnHost,
		Target: factor.Carrier,
		Doc:    "share of one core of this machine that each CPU of the virtual routers may use; or off",
		Needs:  factor.NeedsRouter,
	}}}
}

type cpuQuota struct{ declared }

func (cpuQuota) Parse(text string) (State, error) {
	if text == "off" {
		return "off", nil
	}
	percent, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || !(percent >= 1 && percent <= 100) || strings.ContainsAny(text, "eExXpP_+") {
		return "", refuse("cpu_quota", text, "off, or a share of one core from 1% to 100%")
	}
	return spellPercent(kernel.Quota(math.Round(percent * 100))), nil
}

func spellPercent(q kernel.Quota) State {
	if q == 0 {
		return "off"
	}
	return State(strconv.FormatFloat(float64(q)/100, 'f', -1, 64) + "%")
}

func (cpuQuota) Read(_ context.Context, p Place) (State, error) {
	if p.Lab == "" {
		return "off", nil
	}
	q, err := kernel.CPUQuota(p.Lab)
	if err != nil {
		return "", conclude(err)
	}
	return spellPercent(q), nil
}

func (cpuQuota) Apply(_ context.Context, p Place, s State) error {
	switch {
	case p.Lab == "" && s == "off":
		return nil // nothing here has it
	case p.Lab == "":
		return errors.New("set cpu_quota: no lab named at " + p.Node)
	case s == "off":
		return conclude(kernel.SetCPUQuota(p.Lab, 0))
	}
	percent, err := strconv.ParseFloat(strings.TrimSuffix(string(s), "%"), 64)
	if err != nil {
		return refuse("cpu_quota", string(s), "off, or a share such as 25%")
	}
	return conclude(kernel.SetCPUQuota(p.Lab, kernel.Quota(math.Round(percent*100))))
}

// Same allows for the rounding of a period to microseconds.
func (cpuQuota) Same(want, got State) bool {
	w, err1 := strconv.ParseFloat(strings.TrimSuffix(string(want), "%"), 64)
	g, err2 := strconv.ParseFloat(strings.TrimSuffix(string(got), "%"), 64)
	return want == got || err1 == nil && err2 == nil && math.Abs(w-g) < 0.015
}

func (cpuQuota) Check(_ context.Context, p Place, s State) check.Answer {
	if s == "off" {
		return check.OK()
	}
	if p.Lab == "" {
		return check.Not("only the machine that carries a lab of virtual machines has it: cpu_quota@host")
	}
	a := answer(kernel.ProbeCPUQuota(p.Lab))
	if a.State == check.No && strings.Contains(a.Reason, "writable") {
		return a.Hinted("run as root, or in a cgroup that is delegated to you")
	}
	return a
}
