package knob

import (
	"context"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

const maxCPUCount = 64

// CPUCount is how many of its CPUs a guest works with, the first ones; its kernel takes the others
// offline. It takes effect at once, without another boot. A guest has as many as the lab was made with.
func CPUCount() Knob {
	return cpuCount{declared{&factor.Declaration{
		Name:   "cpu_count",
		Unit:   "CPUs",
		Placed: factor.Placed | factor.OnHost, Scales: true,
		Doc:   "CPUs that the virtual router works with, of those that its lab gave it",
		Needs: factor.NeedsRouter,
	}}}
}

type cpuCount struct{ declared }

func (cpuCount) Parse(text string) (State, error) { return number("cpu_count", text, 1, maxCPUCount) }

func (cpuCount) Read(context.Context, Place) (State, error) {
	online, _, err := kernel.OnlineCPUs()
	s, err := state(online, err)
	return s, conclude(err)
}

func (cpuCount) Apply(_ context.Context, p Place, s State) error {
	n, err := strconv.Atoi(string(s))
	if err != nil {
		return refuse("cpu_count", string(s), "a number")
	}
	if online, _, err := kernel.OnlineCPUs(); err == nil && online == n {
		return nil
	}
	if !p.OwnKernel {
		return notItsOwn("cpu_count", p)
	}
	return conclude(kernel.SetOnlineCPUs(n))
}

func (cpuCount) Check(_ context.Context, p Place, s State) check.Answer {
	if !p.OwnKernel {
		return check.Not("%v", notItsOwn("cpu_count", p)).Hinted("take a lab whose router has a kernel of " +
			"its own, such as vm")
	}
	_, has, err := kernel.OnlineCPUs()
	if n, convErr := strconv.Atoi(string(s)); err == nil && convErr == nil && n > has {
		return check.Not("%s has %d CPUs", p.Node,
			has).Hinted("--cpus %d makes a lab whose routers have as many", n)
	}
	return answer(err)
}
