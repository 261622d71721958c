package labtest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// configFile is where the fake router keeps its settings: a line each, "name value", settings of a port as
// "port.name value".
const configFile = "/config"

// portSettings are made per port, nodeSettings per router; the texts are their defaults.
var (
	portSettings = map[string]string{"link_mtu": "1500", "queue": "noqueue", "txqueuelen": "1000",
		"offload": "super"}
	nodeSettings = map[string]string{"nat": "off", "firewall": "off", "ip_forward": "on"}
)

// NewRouter returns the machine of a router with no room for an agent: it has the commands "show" and "set
// NAME VALUE…", and nothing else. changed, which may be nil, is called with each setting that was made.
func NewRouter(name string, ports []string, changed func(setting, value string)) *Host {
	config := map[string]string{}
	maps.Copy(config, nodeSettings)
	for _, port := range ports {
		for setting, value := range portSettings {
			config[port+"."+setting] = value
		}
	}
	set := func(ctx context.Context, c Call) int {
		if len(c.Args) < 2 {
			fmt.Fprintln(c.Stderr, "usage: set NAME VALUE")
			return 2
		}
		b, err := c.Host.ReadFile(ctx, configFile)
		if err != nil {
			fmt.Fprintln(c.Stderr, err)
			return 1
		}
		settings, err := parseConfig(bytes.NewReader(b))
		if err != nil || settings[c.Args[0]] == "" {
			fmt.Fprintf(c.Stderr, "no setting %s\n", c.Args[0])
			return 1
		}
		value := strings.Join(c.Args[1:], " ")
		settings[c.Args[0]] = value
		if err := c.Host.WriteFile(ctx, configFile, []byte(printConfig(settings))); err != nil {
			fmt.Fprintln(c.Stderr, err)
			return 1
		}
		if changed != nil {
			changed(c.Args[0], value)
		}
		return 0
	}
	show := func(ctx context.Context, c Call) int {
		b, err := c.Host.ReadFile(ctx, configFile)
		if err != nil {
			fmt.Fprintln(c.Stderr, err)
			return 1
		}
		c.Stdout.Write(b)
		return 0
	}
	return NewHost(name, map[string]string{configFile: printConfig(config)}, map[string]Script{"show": show,
		"set": set})
}

func printConfig(settings map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s %s\n", name, settings[name])
	}
	return b.String()
}

// parseConfig reads what show prints. On error the map is nil.
func parseConfig(r io.Reader) (map[string]string, error) {
	out := map[string]string{}
	s := bufio.NewScanner(r)
	for n := 1; s.Scan(); n++ {
		if s.Text() == "" {
			continue
		}
		name, value, ok := strings.Cut(s.Text(), " ")
		if !ok || name == "" || value == "" || out[name] != "" || strings.Contains(s.Text(), "\r") {
			return nil, fmt.Errorf("parse router configuration, line %d: want each name once with its "+
				"value, got %q", n, s.Text())
		}
		out[name] = value
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("parse router configuration: %w", err)
	}
	return out, nil
}

// RouterDriver drives what NewRouter returns, by its commands.
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
	config, err := show(ctx, h)
	if err != nil {
		return "", err
	}
	lines, err := linesOf(config, s)
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
	config, err := show(ctx, h)
	if err != nil {
		return err
	}
	lines, err := linesOf(config, s)
	if err != nil {
		return err
	}
	for _, line := range lines {
		value := s.Value
		if port, _, _ := strings.Cut(line, "."); strings.Contains(s.Value, ": ") {
			value = valueOf(s.Value, port)
		}
		if value == "" || config[line] == value {
			continue
		}
		if _, err := host.Run(ctx, h, host.Command{Path: "set", Args: append([]string{line},
			strings.Fields(value)...)}); err != nil {
			return fmt.Errorf("set %s on %s: %w", line, h.Name(), err)
		}
	}
	return nil
}

// valueOf picks a port's value from "lan: a; wan: b".
func valueOf(text, port string) string {
	for part := range strings.SplitSeq(text, "; ") {
		if name, value, _ := strings.Cut(part, ": "); name == port {
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
	return parseConfig(bytes.NewReader(out))
}

// linesOf are the names in the configuration that a setting means.
func linesOf(config map[string]string, s record.Setting) ([]string, error) {
	var out []string
	for _, line := range slices.Sorted(maps.Keys(config)) {
		port, name, ofPort := strings.Cut(line, ".")
		if line == s.Knob || ofPort && name == s.Knob && (s.Port == "" || s.Port == port) {
			out = append(out, line)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("router has no setting %s: %w", s.Knob, host.ErrUnsupported)
	}
	return out, nil
}
