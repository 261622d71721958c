package knob

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// CPUCount sets how many CPUs a guest uses. The guest's kernel takes the other CPUs offline, without a
// reboot. The maximum is the number of CPUs with which the guest was started.
func CPUCount() Knob {
	return &kernelKnob[int]{
		declared: ofRouter(factor.Declaration{
			Policy: true,
			Name:   "cpu_count",
			Unit:   "CPUs",
			Placed: factor.OnHost,
			Scales: true,
			Doc:    "number of the virtual router's vCPUs that are online",
		}),
		spelling: numbers(1, 64),
		read: func(Place) (int, error) {
			online, _, err := kernel.OnlineCPUs()
			return online, err
		},
		apply: func(p Place, n int) error {
			if online, _, err := kernel.OnlineCPUs(); err == nil && online == n {
				return nil
			}

			if err := ownCPUs(p); err != nil {
				return err
			}
			return kernel.SetOnlineCPUs(n)
		},
		check: func(p Place, n int) error {
			if err := ownCPUs(p); err != nil {
				return err
			}

			_, has, err := kernel.OnlineCPUs()
			if err == nil && n > has {
				return check.WithHint(cannot("%s has %d CPUs", p.Node, has),
					fmt.Sprintf("--cpus %d makes a lab whose routers have as many", n))
			}

			return err
		},
	}
}

func ownCPUs(p Place) error {
	return itsOwn("cpu_count", p, "take a lab whose router has a kernel of its own, such as vm")
}
