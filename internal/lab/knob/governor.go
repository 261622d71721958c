package knob

import (
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// Governor sets the frequency governor of a machine's CPUs (Documentation/admin-guide/pm/cpufreq.rst):
// "performance", "schedutil" or another governor that the kernel supports. If the frequency domains have
// different governors, the state is "each" followed by the governors in numerical order of the domains, as in
// "each schedutil performance".
func Governor() Knob {
	wrong := want("a governor of the router's kernel, such as performance or schedutil")
	return &kernelKnob[[]string]{
		declared: ofRouter(factor.Declaration{
			Name:    "governor",
			Unit:    "name, such as performance or schedutil",
			Doc:     "cpufreq governor of the router's CPUs, by the kernel's name",
			Without: without("", "with the default governor"),
		}),
		spelling: spelling[[]string]{
			parse: func(text string) ([]string, error) {
				list, differ := strings.CutPrefix(text, eachDomain)
				names := strings.Fields(list)
				if len(names) == 0 || !differ && len(names) > 1 || slices.ContainsFunc(names, notAGovernor) {
					return nil, wrong
				}

				return names, nil
			},
			spell: func(names []string) State {
				if len(slices.Compact(slices.Clone(names))) == 1 {
					return names[0]
				}
				return eachDomain + strings.Join(names, " ")
			},
		},
		read: func(Place) ([]string, error) { return kernel.Governors.Read("") },
		apply: func(p Place, names []string) error {
			if err := ownClock(p); err != nil {
				return err
			}
			return kernel.Governors.Set("", names)
		},
		check: func(p Place, names []string) error {
			if err := ownClock(p); err != nil {
				return err
			}

			offered, err := kernel.GovernorsOffered()
			for _, name := range names {
				if err == nil && !slices.Contains(offered, name) {
					return cannot("%s has no governor %s; it offers %s", p.Node, name,
						strings.Join(offered, ", "))
				}
			}

			return err
		},
	}
}

func ownClock(p Place) error {
	return itsOwn("governor", p,
		"take a router that is a machine of its own, with a clock that its kernel sets")
}

// eachDomain is the prefix of a state in which frequency domains have different governors.
const eachDomain = "each "

// notAGovernor reports whether the kernel cannot have a governor with this name (CPUFREQ_NAME_LEN is 16).
func notAGovernor(name string) bool {
	return name == strings.TrimSpace(eachDomain) || len(name) > 15 ||
		strings.Trim(name, "_abcdefghijklmnopqrstuvwxyz") != ""
}
