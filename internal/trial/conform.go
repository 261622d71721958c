package trial

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// conformWatch is the time for which Conform samples telemetry.
const conformWatch = 3 * time.Second

// Conformance describes a router: facts about it, and the result of trying each capability. It contains no
// addresses, host names or keys.
type Conformance struct {
	Format  string            `json:"format"` // "chokepoint-conformance/1"
	Driven  string            `json:"driven"` // "agent" or the name of the driver
	Facts   map[string]string `json:"facts"`
	Missing map[string]string `json:"missing,omitempty"` // reasons by name of the missing fact
	Tried   []Capability      `json:"tried"`             // areas: machine, setting, tunnel, counters, samples
	Sampled []string          `json:"sampled"`           // names of the sampled metrics
	// NotSampled maps each probe without samples to the reason.
	NotSampled map[string]string `json:"not_sampled,omitempty"`
	// Outputs lists the output of each command that the driver runs to read something.
	Outputs []Output `json:"outputs,omitempty"`

	of     *lab.Node
	trying string // purpose of the current commands
	kept   int    // total length of Outputs in bytes
}

// Output holds the output of a command that the driver ran to read something.
type Output struct {
	For     string   `json:"for"`     // Capability.Name, or "facts"
	Command []string `json:"command"` // words of the command; long scripts are truncated
	Printed string   `json:"printed"`
	Cut     bool     `json:"cut,omitempty"` // the output is truncated
}

// Limits of Outputs, in bytes.
const (
	maxOutput  = 16 << 10
	maxOutputs = 1 << 20
	maxWord    = 2000 // of one word of a command
)

// hear records the output of a command. It is called for each command that the driver runs.
func (c *Conformance) hear(command host.Command, printed []byte, whole bool) {
	o := Output{For: c.trying, Printed: c.anonymous(string(printed)), Cut: !whole}
	for _, word := range append([]string{command.Path}, command.Args...) {
		o.Command = append(o.Command, c.anonymous(word[:min(len(word), maxWord)]))
	}

	known := slices.ContainsFunc(c.Outputs, func(have Output) bool {
		return have.Printed == o.Printed && slices.Equal(have.Command, o.Command)
	})
	size := len(o.Printed) + len(strings.Join(o.Command, " "))
	if !known && c.kept+size <= maxOutputs {
		c.Outputs, c.kept = append(c.Outputs, o), c.kept+size
	}
}

// Conform tries everything that a run may need from a router. It applies, reads back and restores each
// setting that the router supports, reads counters and takes samples. It calls tell with each result at once.
// A capability that is missing or does not work is a result, not an error. Conform returns an error if the
// router could not be restored or is unreachable.
func Conform(ctx context.Context, l *lab.Lab, router string, probes []probe.Probe,
	tell func(Capability) error) (*Conformance, error) {
	n, err := l.Node(ctx, router)
	if err != nil {
		return nil, err
	}

	out := &Conformance{
		Format:     "chokepoint-conformance/1",
		Driven:     n.Describe().Driven,
		Facts:      map[string]string{},
		Missing:    map[string]string{},
		NotSampled: map[string]string{},
		of:         n,
		trying:     "facts",
	}
	if n.HasDriver() {
		n.Reader = host.Overhear(n.Host, maxOutput, out.hear)
		defer func() { n.Reader = nil }()
	}

	e, err := (&Campaign{}).describe(ctx, l, n)
	if err != nil {
		return nil, err
	}

	for name, value := range e.Facts {
		out.Facts[name] = out.anonymous(value)
	}

	for name, why := range e.Missing {
		out.Missing[name] = out.anonymous(why)
	}

	add := func(area, name string, a check.Answer, err error) error {
		if err != nil {
			return err
		}

		shown := Capability{area, name, a}
		a.Reason, a.Hint = out.anonymous(a.Reason), out.anonymous(a.Hint)
		out.Tried = append(out.Tried, Capability{area, name, a})
		return tell(shown)
	}
	if by, ok := n.Driver.(driver.Restricted); ok {
		if err := add("machine", router, check.OKBecause("%s", by.Restrictions(e.Facts)), nil); err != nil {
			return out, err
		}
	}

	for _, s := range examined {
		name, level, _ := strings.Cut(s, "=")
		switch targetOf(name) {
		case factor.Carrier, factor.WANLink: // not tried, because it affects other nodes, too
			continue
		}

		out.trying = s
		a, err := try(ctx, l, record.Setting{Knob: name, Node: router, Value: level})
		if err := add("setting", s, a, err); err != nil {
			return out, err
		}
	}

	out.trying = "tunnel"
	if near, err := l.Node(ctx, l.Topology.Tunnel[0]); err == nil && near.HasAgent() {
		a, err := tryTunnel(ctx, l)
		if err := add("tunnel", conformTunnel, a, err); err != nil {
			return out, err
		}
	}

	out.trying = "counters"
	ports := l.Ports(router)
	counted, err := l.Counters(ctx, router, ports...)
	a := check.OK()
	switch {
	case err != nil:
		a = check.Not("%v", err)
	case len(counted) < len(ports):
		a = check.Not("%d of %d ports have any", len(counted), len(ports))
	}

	if err := add("counters", "of its ports", a, ctx.Err()); err != nil {
		return out, err
	}

	a, err = out.sample(ctx, l, n, probes)
	err = add("samples", conformWatch.String(), a, err)
	out.nameDevices()
	return out, err
}

// try applies a setting, which the lab reads back, and restores the previous value.
func try(ctx context.Context, l *lab.Lab, s record.Setting) (check.Answer, error) {
	a := l.CheckSetting(ctx, s)
	if a.State == check.No {
		return a, ctx.Err()
	}

	made := l.Reconcile(ctx, []record.Setting{s})
	if err := l.Reconcile(context.WithoutCancel(ctx), nil); err != nil {
		return check.Answer{}, errors.Join(made, err)
	}

	switch {
	case ctx.Err() != nil:
		return check.Answer{}, ctx.Err()
	case errors.Is(made, host.ErrUnsupported), errors.Is(made, fs.ErrPermission):
		return check.Not("%v", made), nil
	case made != nil: // failed although the check was positive
		return check.CouldNotTell("%v", made), nil
	}

	return check.OK(), nil
}

// conformTunnel is the kind of tunnel that Conform tries if the other end has an agent.
const conformTunnel = "wireguard"

// tryTunnel creates a tunnel to the router, and removes it.
func tryTunnel(ctx context.Context, l *lab.Lab) (check.Answer, error) {
	spec := lab.TunnelSpec{Kind: conformTunnel}
	a := l.CheckTunnel(ctx, spec)
	if a.State != check.Yes {
		return a, ctx.Err()
	}

	_, laid := l.Path(ctx, spec)
	if err := l.Clear(context.WithoutCancel(ctx)); err != nil {
		return a, errors.Join(laid, err)
	}

	switch {
	case errors.Is(laid, host.ErrUnsupported):
		a = check.Not("%v", laid)
	case laid != nil: // failed although the check was positive
		a = check.CouldNotTell("%v", laid).Hinted("%s", check.HintOf(laid))
	}

	return a, ctx.Err()
}

// sample takes samples of the router for conformWatch, and records which metrics they contain.
func (c *Conformance) sample(ctx context.Context, l *lab.Lab, n *lab.Node, probes []probe.Probe) (
	a check.Answer, err error) {
	w := newWatches(l)
	if err := w.open(ctx, n, probes); err != nil {
		return check.Not("%v", err), ctx.Err()
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	one := w.watchers[n.Name]
	if one == nil {
		return check.Not("%s", w.missing[n.Name]), nil
	}

	from := host.Monotonic()
	if err := host.Pause(ctx, conformWatch); err != nil {
		return a, err
	}

	data, err := one.Collect(ctx, from, host.Monotonic())
	if err != nil {
		return check.Not("%v", err), ctx.Err()
	}

	names := map[string]bool{}
	for _, s := range data.Samples {
		for _, m := range s.Metrics {
			names[m.Name] = true
		}

		if s.Unavailable != "" {
			c.NotSampled[s.Probe] = c.anonymous(s.Unavailable)
		}
	}

	c.Sampled = slices.Sorted(maps.Keys(names))
	if len(names) == 0 {
		return check.Not("nothing was sampled"), nil
	}

	return check.OKBecause("%d metrics", len(names)), nil
}
