package knob

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// perPort is a knob of devices: of Place.Port, or if that is empty of all of Place.Ports or the one that is
// picked. Where they differ its state is a list, "eth0: 1500; eth1: 9000". Its functions deal with one.
type perPort[T any] struct {
	declared
	spelling[T]
	read    func(dev string) (T, error)
	readFor func(dev string, want T) (T, error) // nil: read, whatever is wanted
	apply   func(dev string, v T) error
	check   func(dev string, v T) check.Answer // nil: nothing can lack
	trying  bool                               // whether it can be set shows only when it is: what there is
	always  State                              // what every device can; "" = nothing
	pick    func(p Place) string               // of the one port where none is named
	tunnels bool                               // the setting of all ports is also that of tunnels' devices
}

func (k *perPort[T]) OnTunnels() bool { return k.tunnels }

// ofPorts marks a knob of devices.
func (k *perPort[T]) ofPorts() {}

// OfPorts reports whether a knob sets devices.
func OfPorts(k Knob) bool {
	_, ok := k.(interface{ ofPorts() })
	return ok
}

func (k *perPort[T]) Parse(text string) (State, error) {
	text = strings.TrimSpace(text)
	if !eachNamed(text) {
		return k.canonical(k.Name(), text)
	}
	if k.pick != nil { // only one port is read, so that only one could be put back
		return "", refuse(k.Name(), text, want("one value; name the port as in %s@router.lan", k.Name()))
	}
	each := map[string]State{}
	for part := range strings.SplitSeq(text, ";") {
		dev, value, ok := strings.Cut(part, ":")
		dev = strings.TrimSpace(dev)
		if !ok || !deviceLike(dev) || each[dev] != "" {
			return "", refuse(k.Name(), text, want("each device once, as in eth0: VALUE; eth1: VALUE"))
		}
		s, err := k.canonical(k.Name(), strings.TrimSpace(value))
		if err != nil {
			return "", err
		}
		each[dev] = s
	}
	return join(each), nil
}

// deviceLike follows the kernel's dev_valid_name.
func deviceLike(dev string) bool {
	other := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("/:;", r) }
	return dev != "" && dev != "." && dev != ".." && len(dev) < 16 && !strings.ContainsFunc(dev, other)
}

// eachNamed reports whether a state is a list of devices, "eth0: VALUE; eth1: VALUE", rather than one value,
// which may have a colon behind a space.
func eachNamed(text string) bool {
	first, _, listed := strings.Cut(text, ":")
	return listed && !strings.Contains(strings.TrimSpace(first), " ")
}

func (k *perPort[T]) Read(_ context.Context, p Place, want State) (State, error) {
	devs, err := k.ports(p)
	if err != nil {
		return "", err
	}
	wanted := parts(want)
	each := map[string]State{}
	for _, dev := range devs {
		v, err := k.readOf(dev, of(wanted, dev))
		if err != nil {
			return "", conclude(err)
		}
		each[dev] = k.spell(v)
	}
	return OfAll(each), nil
}

// readOf reads what a state of a device would take the place of.
func (k *perPort[T]) readOf(dev string, want State) (T, error) {
	if k.readFor == nil || want == "" {
		return k.read(dev)
	}
	w, err := k.value(k.Name(), want)
	if err != nil {
		return w, err
	}
	return k.readFor(dev, w)
}

// Apply sets every device; the first error ends it.
func (k *perPort[T]) Apply(_ context.Context, p Place, s State) error {
	each, err := Each(s, func() ([]string, error) { return k.ports(p) })
	if err != nil {
		return err
	}
	for _, dev := range slices.Sorted(maps.Keys(each)) {
		v, err := k.value(k.Name(), each[dev])
		if err == nil {
			err = conclude(k.apply(dev, v))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (k *perPort[T]) Same(want, got State) bool {
	w, g := parts(want), parts(got)
	devs := g
	if g[""] != "" {
		devs = w
	} else if w[""] == "" && len(w) != len(g) {
		return false
	}
	for dev := range devs {
		if !k.alike(of(w, dev), of(g, dev)) {
			return false
		}
	}
	return true
}

func (k *perPort[T]) Check(_ context.Context, p Place, s State) check.Answer {
	each, err := Each(s, func() ([]string, error) { return k.ports(p) })
	if err != nil && k.pick != nil {
		return check.Not("%v", err)
	}
	if err != nil {
		return check.CouldNotTell("%v", err)
	}
	for _, dev := range slices.Sorted(maps.Keys(each)) {
		now, err := k.readOf(dev, each[dev])
		if err == nil && k.trying {
			err = k.apply(dev, now)
		}
		if err != nil {
			return answer(err)
		}
		if k.check == nil || each[dev] == k.always {
			continue
		}
		v, err := k.value(k.Name(), each[dev])
		if err != nil {
			return check.Not("%v", err)
		}
		if a := k.check(dev, v); a.State != check.Yes {
			return a
		}
	}
	return check.OK()
}

func (k *perPort[T]) ports(p Place) ([]string, error) {
	switch {
	case p.Port != "":
		return []string{p.Port}, nil
	case k.pick == nil && len(p.Ports) > 0:
		return p.Ports, nil
	case k.pick == nil:
		return nil, errors.New("set " + k.Name() + ": no port named at " + p.Node)
	}
	if picked := k.pick(p); picked != "" {
		return []string{picked}, nil
	}
	return nil, errors.New("set " + k.Name() + ": name the port at " + p.Node)
}

// OfAll is the state of devices with these states: the one, or the list where they differ.
func OfAll(each map[string]State) State {
	states := slices.Compact(slices.Sorted(maps.Values(each)))
	if len(states) == 1 {
		return states[0]
	}
	return join(each)
}

func join(each map[string]State) State {
	var list []string
	for _, dev := range slices.Sorted(maps.Keys(each)) {
		list = append(list, dev+": "+string(each[dev]))
	}
	return State(strings.Join(list, "; "))
}

// Each is the state of each device, of those that a state for all of them is about.
func Each(s State, devices func() ([]string, error)) (map[string]State, error) {
	each := parts(s)
	all, ok := each[""]
	if !ok {
		return each, nil
	}
	delete(each, "")
	devs, err := devices()
	for _, dev := range devs {
		each[dev] = all
	}
	return each, err
}

// parts takes a state apart; one for every device has the empty name.
func parts(s State) map[string]State {
	if !eachNamed(string(s)) {
		return map[string]State{"": s}
	}
	each := map[string]State{}
	for part := range strings.SplitSeq(string(s), "; ") {
		dev, value, _ := strings.Cut(part, ": ")
		each[dev] = State(value)
	}
	return each
}

// of is the part of a device.
func of(each map[string]State, dev string) State {
	if s, ok := each[dev]; ok {
		return s
	}
	return each[""]
}
