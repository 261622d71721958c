package knob

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// perPort is a knob that is set on devices: on Place.Port, or if that is empty on all of Place.Ports. Where
// they differ its state is a list, "eth0: 1500; eth1: 9000". Its functions deal with one device.
type perPort struct {
	declared
	parse func(text string) (State, error)
	read  func(dev string) (State, error)
	apply func(dev string, s State) error
	same  func(want, got State) bool             // nil: equal
	check func(dev string, s State) check.Answer // nil: nothing can lack

	tunnels bool // the setting of all ports is also that of tunnels' devices
}

func (k *perPort) OnTunnels() bool { return k.tunnels }

func (k *perPort) Parse(text string) (State, error) {
	text = strings.TrimSpace(text)
	if !strings.Contains(text, ":") {
		return k.parse(text)
	}
	each := map[string]State{}
	for part := range strings.SplitSeq(text, ";") {
		dev, value, ok := strings.Cut(part, ":")
		dev = strings.TrimSpace(dev)
		if !ok || !deviceLike(dev) || each[dev] != "" {
			return "", refuse(k.Name(), text, "each device once, as in eth0: VALUE; eth1: VALUE")
		}
		s, err := k.parse(strings.TrimSpace(value))
		if err != nil {
			return "", err
		}
		each[dev] = s
	}
	return join(each), nil
}

// deviceLike follows the kernel's dev_valid_name.
func deviceLike(dev string) bool {
	return dev != "" && dev != "." && dev != ".." && len(dev) < 16 && !strings.ContainsFunc(dev,
		func(r rune) bool {
			return r <= ' ' || r > '~' || r == '/' || r == ':' || r == ';'
		})
}

func (k *perPort) Read(_ context.Context, p Place) (State, error) {
	devs, err := k.ports(p)
	if err != nil {
		return "", err
	}
	each := map[string]State{}
	for _, dev := range devs {
		if each[dev], err = k.read(dev); err != nil {
			return "", conclude(err)
		}
	}
	first := each[devs[0]]
	for _, s := range each {
		if s != first {
			return join(each), nil
		}
	}
	return first, nil
}

// Apply sets every device; the first error ends it.
func (k *perPort) Apply(_ context.Context, p Place, s State) error {
	each, err := k.split(p, s)
	if err != nil {
		return err
	}
	for _, dev := range slices.Sorted(maps.Keys(each)) {
		if err := k.apply(dev, each[dev]); err != nil {
			return conclude(err)
		}
	}
	return nil
}

func (k *perPort) Same(want, got State) bool {
	w, g := parts(want), parts(got)
	if len(w) == 1 && w[""] != "" {
		return k.eachSame(g, func(string) State { return w[""] })
	}
	if len(g) == 1 && g[""] != "" {
		return k.eachSame(w, func(string) State { return g[""] })
	}
	return len(w) == len(g) && k.eachSame(g, func(dev string) State { return w[dev] })
}

func (k *perPort) eachSame(got map[string]State, want func(dev string) State) bool {
	for dev, s := range got {
		w := want(dev)
		if w != s && (k.same == nil || !k.same(w, s)) {
			return false
		}
	}
	return true
}

func (k *perPort) Check(_ context.Context, p Place, s State) check.Answer {
	each, err := k.split(p, s)
	if err != nil {
		return check.CouldNotTell("%v", err)
	}
	for _, dev := range slices.Sorted(maps.Keys(each)) {
		if _, err := k.read(dev); err != nil {
			return answer(err)
		}
		if k.check == nil {
			continue
		}
		if a := k.check(dev, each[dev]); a.State != check.Yes {
			return a
		}
	}
	return check.OK()
}

func (k *perPort) ports(p Place) ([]string, error) {
	if p.Port != "" {
		return []string{p.Port}, nil
	}
	if len(p.Ports) == 0 {
		return nil, errors.New("set " + k.Name() + ": no port named at " + p.Node)
	}
	return p.Ports, nil
}

// split is the state of each device at the place.
func (k *perPort) split(p Place, s State) (map[string]State, error) {
	each := parts(s)
	if all := each[""]; all != "" || len(each) == 0 {
		devs, err := k.ports(p)
		if err != nil {
			return nil, err
		}
		each = map[string]State{}
		for _, dev := range devs {
			each[dev] = all
		}
	}
	for dev, one := range each {
		if one == "" {
			return nil, fmt.Errorf("set %s of %s: no value", k.Name(), dev)
		}
	}
	return each, nil
}

func join(each map[string]State) State {
	var list []string
	for _, dev := range slices.Sorted(maps.Keys(each)) {
		list = append(list, dev+": "+string(each[dev]))
	}
	return State(strings.Join(list, "; "))
}

// parts takes a state apart; one for every device has the empty name.
func parts(s State) map[string]State {
	if !strings.Contains(string(s), ":") {
		return map[string]State{"": s}
	}
	each := map[string]State{}
	for part := range strings.SplitSeq(string(s), "; ") {
		dev, value, _ := strings.Cut(part, ": ")
		each[dev] = State(value)
	}
	return each
}
