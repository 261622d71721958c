package knob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// noFault is the level of the factor fault in a cell without faults.
const noFault = "none"

// asFound is the prefix of a state that restores the settings that a fault has changed. The values before the
// fault follow the prefix as JSON.
const asFound = "found "

// FaultPlant injects faults from a table. Several faults are joined by "+", as in "loss=1%+cpu_hog=2". A
// fault consists of settings of other knobs, processes that run beside the agent of the node, or limits of
// the load generator.
func FaultPlant() Knob {
	return &faultKnob{declared{factor.Declaration{
		Policy:    true,
		Name:      "fault",
		Unit:      `none, or NAME=LEVEL, several joined by "+"`,
		Rank:      21,
		Doc:       "fault introduced on purpose, such as loss=1%, cpu_hog=2 or link_rate=50M+rules=2000",
		Without:   without(noFault, "without fault"),
		Long:      func(level string) string { return "fault " + level },
		Placed:    factor.Placed | factor.OnHost,
		OnCarrier: true,
		Value:     nodeFaults,
		Refuses:   faultRefuses,
	}}}
}

type faultKnob struct{ declared }

// planted is a fault, its index in Faults, and its level.
type planted struct {
	Fault
	rank  int
	level State
}

// setting is a setting of another knob that a fault applies. If Port is "", the setting applies to all ports
// of the place, or to the node.
type setting struct {
	Knob  string `json:"knob"`
	Port  string `json:"port,omitempty"`
	State State  `json:"state"`
}

// key identifies what a setting changes. Each setting in a family has a different key.
func (s setting) key() string {
	if strings.HasSuffix(s.Knob, ":") {
		member, _, _ := strings.Cut(s.State, "=")
		return s.Knob + member
	}
	return s.Knob
}

func parseFaults(text string) ([]planted, error) {
	if text = strings.TrimSpace(text); text == noFault {
		return nil, nil
	}

	var list []planted
	for part := range strings.SplitSeq(text, "+") {
		name, level, _ := strings.Cut(strings.TrimSpace(part), "=")
		rank := slices.Index(faultNames(), name)
		if rank < 0 {
			return nil, near(name, faultNames(), want("none, or NAME=LEVEL with a NAME of %s",
				strings.Join(faultNames(), ", ")))
		}

		f := Faults()[rank]
		s, err := f.parse(name, level)
		if err != nil {
			return nil, err
		}

		if slices.ContainsFunc(list, func(p planted) bool { return p.rank == rank }) {
			return nil, fmt.Errorf("%s is given twice", name)
		}

		list = append(list, planted{f, rank, s})
	}

	slices.SortFunc(list, func(a, b planted) int { return a.rank - b.rank })
	return list, nil
}

func spellFaults(list []planted) State {
	if len(list) == 0 {
		return noFault
	}

	var parts []string
	for _, p := range list {
		parts = append(parts, p.Name+"="+p.level)
	}

	return strings.Join(parts, "+")
}

// nodeFaults returns a level without the faults that are not implemented on a node. Those are the limits of
// the load generator and of the tunnel.
func nodeFaults(level string) string {
	list, err := parseFaults(level)
	if err != nil {
		return level
	}

	list = slices.DeleteFunc(list, func(p planted) bool { return p.at == atEnds || p.at == onPath })
	if len(list) == 0 {
		return ""
	}

	return spellFaults(list)
}

func (k *faultKnob) Parse(text string) (State, error) {
	canonical := text
	var err error
	if !strings.HasPrefix(text, asFound) {
		var list []planted
		list, err = parseFaults(text)
		canonical = spellFaults(list)
	}

	if err == nil {
		_, err = settingsOf(canonical)
	}

	if err != nil {
		return "", refuse(k.Name(), text, err)
	}

	return canonical, nil
}

// settingsOf returns the settings of a state in the order in which they are applied. It joins settings of the
// same knob.
func settingsOf(s State) (out []setting, err error) {
	text, found := strings.CutPrefix(s, asFound)
	if found {
		err = json.Unmarshal([]byte(text), &out)
	} else {
		out, err = settingsOfFaults(s)
	}

	for i := range out {
		if err == nil {
			var k Knob
			if k, err = faultPart(out[i].Knob); err == nil {
				out[i].State, err = k.Parse(out[i].State)
			}
		}
	}

	return out, err
}

func settingsOfFaults(text string) (out []setting, err error) {
	list, err := parseFaults(text)
	for _, p := range list {
		if p.parts == nil {
			continue
		}

		for _, one := range p.parts(p.level) {
			i := slices.IndexFunc(out, func(o setting) bool { return o.key() == one.key() })
			if i < 0 {
				out = append(out, one)
			} else if out[i].State, err = joined(one.Knob, out[i].State, one.State); err != nil {
				return nil, err
			}
		}
	}

	for i := range out {
		if out[i].Knob == "queue" {
			out[i].State = faultQueue(out[i].State)
		}
	}

	return out, err
}

// joined returns one state that combines the states a and b, which two faults want for the same knob.
func joined(knob string, a, b State) (State, error) {
	switch {
	case a == b:
		return a, nil
	case knob == "queue": // see faultQueue for the format of the states
		return a + " " + b, nil
	case knob == "firewall":
		f, err1 := ParseFirewall(a)
		g, err2 := ParseFirewall(b)
		f.Rules, f.Log, f.Stateful = max(f.Rules, g.Rules), f.Log || g.Log, f.Stateful || g.Stateful
		return spellFirewall(f), errors.Join(err1, err2)
	}
	return "", fmt.Errorf("two faults want %s to be %s and %s", knob, a, b)
}

// faultPart returns the knob with the given name, for use by faults. The knob of the faults themselves is not
// allowed.
func faultPart(name string) (Knob, error) {
	for _, k := range append(All(), silence()) {
		_, itself := k.(*faultKnob)
		if k.Name() == name && !itself {
			return k, nil
		}
	}
	return nil, fmt.Errorf("no fault makes use of a setting %q", name)
}

// placed holds a setting, its knob and its place.
type placed struct {
	setting
	knob Knob
	at   Place
}

// inPlace returns the settings of a state at a place. A setting that applies to several ports appears once
// for each port.
func (k *faultKnob) inPlace(p Place, s State) (out []placed, err error) {
	list, err := settingsOf(s)
	if err != nil {
		return nil, refuse(k.Name(), s, err)
	}

	for _, one := range list {
		// Check this, because s may come from a journal.
		if (p.Lab != "" || p.Node == factor.Host) != (one.Knob == "cpu_quota") {
			return nil, cannot("set fault on %s: %s is not set there", p.Node, one.Knob)
		}

		part, err := faultPart(one.Knob)
		if err != nil {
			return nil, err
		}

		ports := []string{one.Port}
		if OfPorts(part) && one.Port == "" {
			if ports, err = k.ports(p, one.Knob); err != nil {
				return nil, err
			}
		}

		for _, port := range ports {
			one.Port = port
			at := p
			at.Port = port
			out = append(out, placed{one, part, at})
		}
	}

	return out, nil
}

// ports returns the ports to which a setting applies.
func (k *faultKnob) ports(p Place, part string) ([]string, error) {
	ports := p.Ports
	switch {
	case p.Port != "":
		ports = []string{p.Port}
	case part == "link_mtu" && p.WAN != "": // because the narrow link is behind the router
		ports = []string{p.WAN}
	}

	if len(ports) == 0 {
		return nil, fmt.Errorf("set fault: no port named at %s", p.Node)
	}

	return ports, nil
}

// Read returns the current state of everything that applying want would change, in the order in which the
// changes must be undone.
func (k *faultKnob) Read(ctx context.Context, p Place, want State) (State, error) {
	list, err := k.inPlace(p, want)
	if err != nil || len(list) == 0 {
		return noFault, err
	}

	var now []setting
	for _, one := range slices.Backward(list) {
		if one.State, err = one.knob.Read(ctx, one.at, one.State); err != nil {
			return "", err
		}

		now = append(now, one.setting)
	}

	text, err := json.Marshal(now)
	return asFound + string(text), err
}

func (k *faultKnob) Apply(ctx context.Context, p Place, s State) error {
	list, err := k.inPlace(p, s)
	undoing := strings.HasPrefix(s, asFound)
	for _, one := range list {
		err = errors.Join(err, one.knob.Apply(ctx, one.at, one.State))
		if err != nil && !undoing {
			return err
		}
	}

	return err
}

func (k *faultKnob) Same(want, got State) bool {
	w, err1 := settingsOf(want)
	g, err2 := settingsOf(got)
	if err1 != nil || err2 != nil {
		return false
	}

	alike := func(a, b setting) bool {
		part, err := faultPart(a.Knob)
		return err == nil && a.key() == b.key() && (a.Port == "" || a.Port == b.Port) &&
			(a.State == b.State || part.Same(a.State, b.State))
	}
	for _, a := range w {
		if !slices.ContainsFunc(g, func(b setting) bool { return alike(a, b) }) {
			return false
		}
	}

	return !slices.ContainsFunc(g, func(b setting) bool {
		return !slices.ContainsFunc(w, func(a setting) bool { return alike(a, b) })
	})
}

func (k *faultKnob) Check(ctx context.Context, p Place, s State) check.Answer {
	list, err := k.inPlace(p, s)
	if err != nil {
		return check.Not("%v", err)
	}

	for _, one := range list {
		a := one.knob.Check(ctx, one.at, one.State)
		if a.State != check.Yes {
			return a
		}
	}

	return check.OK()
}

// Allowed returns an error if a fault is not allowed at its place. On the machine that hosts the lab, only
// faults that take CPU time are allowed.
func (k *faultKnob) Allowed(p Place, s State) error {
	list, err := parseFaults(s)
	if strings.HasPrefix(s, asFound) {
		return nil // because the original fault was allowed when it was injected
	}

	for _, f := range list {
		wrong := f.misplaced(p.Node == factor.Host, p.Port != "")
		if err == nil && wrong != "" {
			err = cannot("fault %s: %s", f.Name, wrong)
		}
	}

	return err
}

// Companion describes a process that runs beside the agent of a node as long as a setting is in effect. Verb
// starts the process, and Task is its request. The process replies once it has started.
type Companion struct {
	Verb string
	Task any
}

// Accompanied is implemented by knobs that have states with companions.
type Accompanied interface {
	Companions(p Place, s State) []Companion
}

func (k *faultKnob) Companions(p Place, s State) []Companion {
	var out []Companion
	list, _ := parseFaults(s) // an asFound state has no companions
	for _, f := range list {
		if f.companions != nil {
			out = append(out, f.companions(p, f.level)...)
		}
	}

	return out
}

// Companions returns the handlers for the verbs of companions.
func Companions() map[string]host.Handler {
	return map[string]host.Handler{verbHog: hog, verbTighten: host.Asked(tighten),
		verbCross: host.Asked(cross)}
}
