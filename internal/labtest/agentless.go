package labtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// These are the settings of each port and of each router, with their defaults.
var (
	portSettings = map[string]string{"link_mtu": "1500", "queue": "noqueue", "txqueuelen": "1000",
		"offload": "super"}
	nodeSettings = map[string]string{"nat": "off", "firewall": "off", "ip_forward": "on"}
)

// NewRouter returns a router that cannot run an agent. It has only the commands "show" and "set NAME
// VALUE…". Settings of a port have the name "port.name". If changed is not nil, it is called after each
// change of a setting.
func NewRouter(name string, ports []string, changed func(setting, value string)) *Host {
	var mu sync.Mutex
	config := maps.Clone(nodeSettings)
	for _, port := range ports {
		for setting, value := range portSettings {
			config[port+"."+setting] = value
		}
	}

	set := func(_ context.Context, c Call) int {
		if len(c.Args) < 2 {
			fmt.Fprintln(c.Stderr, "usage: set NAME VALUE")
			return 2
		}

		value := strings.Join(c.Args[1:], " ")
		mu.Lock()
		known := config[c.Args[0]] != ""
		if known {
			config[c.Args[0]] = value
		}

		mu.Unlock()
		if !known {
			fmt.Fprintf(c.Stderr, "no setting %s\n", c.Args[0])
			return 1
		}

		if changed != nil {
			changed(c.Args[0], value)
		}

		return 0
	}
	show := func(_ context.Context, c Call) int {
		mu.Lock()
		defer mu.Unlock()
		io.WriteString(c.Stdout, printConfig(config))
		return 0
	}
	return NewHost(name, nil, map[string]Script{"show": show, "set": set})
}

// printConfig prints settings as the router does: one "name value" per line.
func printConfig(settings map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s %s\n", name, settings[name])
	}
	return b.String()
}

// parseConfig parses the output of the command show.
func parseConfig(text string) (map[string]string, error) {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok || name == "" || value == "" || out[name] != "" {
			return nil, fmt.Errorf("parse router configuration: want each name once with its value, got %q",
				line)
		}

		out[name] = value
	}
	return out, nil
}

// RouterDriver implements driver.Driver for routers made by NewRouter.
type RouterDriver struct{}

// Name implements driver.Driver.
func (RouterDriver) Name() string { return "fake" }

// Check implements driver.Driver.
func (RouterDriver) Check(ctx context.Context, h host.Host) check.Answer {
	switch _, err := host.Run(ctx, h, host.Command{Path: "show"}); {
	case errors.Is(err, host.ErrUnsupported):
		return check.Not("%s is not such a router: %v", h.Name(), err)
	case err != nil:
		return check.CouldNotTell("%v", err)
	}
	return check.OK()
}

// Read implements driver.Driver.
func (RouterDriver) Read(ctx context.Context, h host.Host, s record.Setting) (string, error) {
	config, lines, err := shown(ctx, h, s)
	if err != nil {
		return "", err
	}

	same := true
	each := make([]string, len(lines))
	for i, line := range lines {
		same = same && config[line] == config[lines[0]]
		port, _, _ := strings.Cut(line, ".")
		each[i] = port + ": " + config[line]
	}

	if same {
		return config[lines[0]], nil
	}

	return strings.Join(each, "; "), nil
}

// Apply implements driver.Driver.
func (RouterDriver) Apply(ctx context.Context, h host.Host, s record.Setting) error {
	config, lines, err := shown(ctx, h, s)
	if err != nil {
		return err
	}

	for _, line := range lines {
		value := s.Value
		port, _, _ := strings.Cut(line, ".")
		if strings.Contains(s.Value, ": ") {
			value = valueOf(s.Value, port)
		}

		if value == "" || config[line] == value {
			continue
		}

		if _, err := host.Run(ctx, h, host.Command{
			Path: "set",
			Args: append([]string{line},
				strings.Fields(value)...),
		}); err != nil {
			return fmt.Errorf("set %s on %s: %w", line, h.Name(), err)
		}
	}

	return nil
}

// valueOf returns a port's value from a text such as "lan: a; wan: b".
func valueOf(text, port string) string {
	for part := range strings.SplitSeq(text, "; ") {
		name, value, _ := strings.Cut(part, ": ")
		if name == port {
			return value
		}
	}
	return ""
}

func show(ctx context.Context, h host.Host) (map[string]string, error) {
	out, err := host.Run(ctx, h, host.Command{Path: "show"})
	if err != nil {
		return nil, fmt.Errorf("read the configuration of %s: %w", h.Name(), err)
	}
	return parseConfig(string(out))
}

// shown returns the configuration of a router, and the names of the router's settings that s refers to.
func shown(ctx context.Context, h host.Host, s record.Setting) (config map[string]string, out []string,
	err error) {
	if config, err = show(ctx, h); err != nil {
		return nil, nil, err
	}

	for _, line := range slices.Sorted(maps.Keys(config)) {
		port, name, ofPort := strings.Cut(line, ".")
		if line == s.Knob || ofPort && name == s.Knob && (s.Port == "" || s.Port == port) {
			out = append(out, line)
		}
	}

	if len(out) == 0 {
		err = fmt.Errorf("router has no setting %s: %w", s.Knob, host.ErrUnsupported)
	}

	return config, out, err
}
