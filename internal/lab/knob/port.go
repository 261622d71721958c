package knob

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// OfPorts reports whether a knob applies to devices, and not to the node.
func OfPorts(k Knob) bool {
	x, ok := k.(interface{ ofPorts() bool })
	return ok && x.ofPorts()
}

func (k *kernelKnob[T]) ofPorts() bool   { return k.perPort }
func (k *kernelKnob[T]) OnTunnels() bool { return k.tunnels }

func (k *kernelKnob[T]) Parse(text string) (State, error) {
	text = strings.TrimSpace(text)
	if !k.perPort || !eachNamed(text) {
		return k.canonical(k.Name(), text)
	}

	if k.pick != nil { // because only one port is read, and therefore only one can be restored
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

// deviceLike reports whether the kernel accepts dev as a device name (dev_valid_name).
func deviceLike(dev string) bool {
	other := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("/:;", r) }
	return dev != "" && dev != "." && dev != ".." && len(dev) < 16 && !strings.ContainsFunc(dev, other)
}

// eachNamed reports whether a state is a list of devices, such as "eth0: VALUE; eth1: VALUE". Otherwise, it
// is a single value, which may contain a colon, but only after a space.
func eachNamed(text string) bool {
	first, _, listed := strings.Cut(text, ":")
	return listed && !strings.Contains(strings.TrimSpace(first), " ")
}

func (k *kernelKnob[T]) Read(_ context.Context, p Place, want State) (State, error) {
	devs, err := k.devices(p)
	if err != nil {
		return "", err
	}

	wanted := k.parts(want)
	each := map[string]State{}
	for _, dev := range devs {
		p.Port = dev
		v, err := k.readOf(p, of(wanted, dev))
		if err != nil {
			return "", conclude(err)
		}

		each[dev] = k.spell(v)
	}

	return OfAll(each), nil
}

// readOf returns the current value of a device or of the node. Of that value, it returns only the part that
// applying want would replace.
func (k *kernelKnob[T]) readOf(p Place, want State) (T, error) {
	if k.readFor == nil || want == "" && k.read != nil {
		return k.read(p)
	}

	w, err := k.value(k.Name(), want)
	if err != nil {
		return w, err
	}

	return k.readFor(p, w)
}

// Apply sets the value on all devices, and stops at the first error.
func (k *kernelKnob[T]) Apply(_ context.Context, p Place, s State) error {
	each, err := k.each(p, s)
	for _, dev := range slices.Sorted(maps.Keys(each)) {
		p.Port = dev
		var v T
		if err == nil {
			v, err = k.value(k.Name(), each[dev])
		}

		if err == nil {
			err = conclude(k.apply(p, v))
		}
	}

	return err
}

func (k *kernelKnob[T]) Same(want, got State) bool {
	w := k.parts(want)
	g := k.parts(got)
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

func (k *kernelKnob[T]) Check(_ context.Context, p Place, s State) check.Answer {
	each, err := k.each(p, s)
	if err != nil && k.pick != nil {
		err = impossible{err}
	}

	for _, dev := range slices.Sorted(maps.Keys(each)) {
		p.Port = dev
		if err == nil {
			err = k.checkOf(p, each[dev])
		}
	}

	return answer(err)
}

// checkOf returns the reason why a state is impossible for one device or for the node.
func (k *kernelKnob[T]) checkOf(p Place, s State) error {
	if k.perPort {
		now, err := k.readOf(p, s)
		if err == nil && k.trying {
			err = k.apply(p, now)
		}

		if err != nil {
			return err
		}
	}

	if k.check == nil || s == k.always {
		return nil
	}

	v, err := k.value(k.Name(), s)
	if err != nil {
		return impossible{err}
	}

	return k.check(p, v)
}

// devices returns the devices to read and set. For a setting of the node, the only element is the place's
// port, even if that is empty.
func (k *kernelKnob[T]) devices(p Place) ([]string, error) {
	if p.Port == "" && k.perPort && k.pick != nil {
		p.Port = k.pick(p)
	}

	switch {
	case p.Port != "", !k.perPort:
		return []string{p.Port}, nil
	case k.pick == nil && len(p.Ports) > 0:
		return p.Ports, nil
	}

	return nil, errors.New("set " + k.Name() + ": name the port at " + p.Node)
}

// parts splits a state into the states of devices. The key "" stands for all devices, or for the node.
func (k *kernelKnob[T]) parts(s State) map[string]State {
	if !k.perPort {
		return map[string]State{"": s}
	}
	return parts(s)
}

// each returns the state of each device at the place.
func (k *kernelKnob[T]) each(p Place, s State) (map[string]State, error) {
	switch {
	case !k.perPort:
		return map[string]State{p.Port: s}, nil
	case eachNamed(s):
		return parts(s), nil
	}

	devices, err := k.devices(p)
	return Each(s, devices), err
}

// OfAll returns the combined state of several devices. It is a single value if their states are equal, and a
// list otherwise.
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
		list = append(list, dev+": "+each[dev])
	}
	return strings.Join(list, "; ")
}

// Each returns the state of each device. If s applies to all devices, these are the given devices.
func Each(s State, devices []string) map[string]State {
	each := parts(s)
	if all, ok := each[""]; ok {
		delete(each, "")
		for _, dev := range devices {
			each[dev] = all
		}
	}

	return each
}

// parts splits a state into the states of devices. The key "" stands for all devices.
func parts(s State) map[string]State {
	if !eachNamed(s) {
		return map[string]State{"": s}
	}

	each := map[string]State{}
	for part := range strings.SplitSeq(s, "; ") {
		dev, value, _ := strings.Cut(part, ": ")
		each[dev] = value
	}

	return each
}

// of returns the state for a device.
func of(each map[string]State, dev string) State {
	if s, ok := each[dev]; ok {
		return s
	}
	return each[""]
}
