package driver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// OPNsense looks into a router by questions to its API, on a host that hands them over (see
// rest.Connection.Commands), and sets nothing: the API changes the configuration, which outlives a reboot.
// Over ssh the driver is FreeBSD. Paths and answers are those of the controllers in
// github.com/opnsense/core, src/opnsense/mvc/app/controllers.
type OPNsense struct{}

// Questions, by their paths below /api.
const (
	opnSystem     = "diagnostics/system/system_information"
	opnProcessor  = "diagnostics/cpu_usage/get_c_p_u_type"
	opnMemory     = "diagnostics/system/system_resources"
	opnInterfaces = "diagnostics/traffic/interface"
	opnRoutes     = "diagnostics/interface/get_routes"
)

// Name implements Driver.
func (OPNsense) Name() string { return "opnsense" }

// Check implements Driver.
func (OPNsense) Check(ctx context.Context, h host.Host) check.Answer {
	all, err := opnAsk(ctx, h, opnSystem)
	switch {
	case errors.Is(err, host.ErrUnsupported):
		return check.Not("%s has no API of OPNsense: %v", h.Name(), err).Hinted("%s", check.HintOf(err))
	case err != nil:
		return check.CouldNotTell("%v", err).Hinted("%s", check.HintOf(err))
	case opnFacts(all)["distribution_version"] == "":
		return check.Not("%s tells no version of OPNsense", h.Name())
	}
	return check.OK()
}

// opnAsk returns the answers to questions, nil where one of several is refused.
func opnAsk(ctx context.Context, h host.Host, paths ...string) (map[string]any, error) {
	out, err := host.Run(ctx, h, host.Command{Path: strings.Join(paths, " ")})
	if err != nil {
		if code, exited := host.ExitCode(err); exited && (code == 126 || code == 127) || errors.Is(err,
			fs.ErrNotExist) { // a shell's
			err = fmt.Errorf("%w: it is asked by https alone", host.ErrUnsupported)
		}
		return nil, fmt.Errorf("ask %s: %w", h.Name(), err)
	}
	return opnAnswers(out, paths...)
}

// opnAnswers reads a JSON array of answers.
func opnAnswers(data []byte, paths ...string) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var list []any
	if err := d.Decode(&list); err != nil || len(list) != len(paths) {
		return nil, fmt.Errorf("%d questions are answered by %q, want as many answers in a JSON array",
			len(paths), told(string(data)))
	}
	all := map[string]any{}
	for i, path := range paths {
		all[path] = list[i]
	}
	return all, nil
}

// within is what is found below names; nil where there is no such thing, for which PHP may write [] or "".
func within(v any, names ...string) any {
	for _, name := range names {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

// word is a text or number; their kinds differ by version.
func word(v any, names ...string) string {
	switch v := within(v, names...).(type) {
	case string:
		return strings.TrimSpace(v)
	case json.Number:
		return v.String()
	}
	return ""
}

// elements are those of a list, or of a map.
func elements(v any) []any {
	if m, ok := v.(map[string]any); ok {
		return slices.Collect(maps.Values(m))
	}
	list, _ := v.([]any)
	return list
}

// opnDevices are the devices of interfaces that are assigned and on, with what is told of each.
func opnDevices(all map[string]any) map[string]any {
	out := map[string]any{}
	for _, i := range elements(within(all[opnInterfaces], "interfaces")) {
		if dev := word(i, "device"); deviceLike(dev) && len(out) < mostDevices {
			out[dev] = i
		}
	}
	return out
}

// Facts implements Describing.
func (OPNsense) Facts(ctx context.Context, h host.Host) (map[string]string, error) {
	all, err := opnAsk(ctx, h, opnSystem, opnProcessor, opnMemory, opnInterfaces)
	return opnFacts(all), err
}

// opnFacts leaves out the router's name.
func opnFacts(all map[string]any) map[string]string {
	facts := map[string]string{"os": "freebsd", "distribution": "opnsense"}
	// "OPNsense 26.1.6-amd64", "FreeBSD 14.3-RELEASE-p10"
	for _, v := range elements(within(all[opnSystem], "versions")) {
		switch name, version, _ := strings.Cut(word(v), " "); {
		case name == "FreeBSD":
			addFact(facts, "kernel", word(v))
		case strings.HasPrefix(name, "OPNsense"):
			version, machine, _ := strings.Cut(version[strings.LastIndexByte(version, ' ')+1:], "-")
			addFact(facts, "distribution_version", version)
			addFact(facts, "machine", machine)
		}
	}
	if cpu := elements(all[opnProcessor]); len(cpu) == 1 { // "AMD Ryzen Embedded V1500B (4 cores, 8 threads)"
		model, counts := word(cpu[0]), ""
		if i := strings.LastIndex(model, " ("); i >= 0 {
			model, counts = model[:i], model[i:]
		}
		addFact(facts, "cpu_model", model)
		numbers := strings.FieldsFunc(counts, func(r rune) bool { return r < '0' || r > '9' })
		if len(numbers) == 2 {
			addFact(facts, "cpu_cores", numbers[0])
			addFact(facts, "cpu_threads", numbers[1])
		}
	}
	addFact(facts, "memory_bytes", word(all[opnMemory], "memory", "total"))
	for dev, i := range opnDevices(all) {
		addFact(facts, "device:"+dev+":mtu", word(i, "mtu"))
		addFact(facts, "device:"+dev+":driver", word(i, "driver"))
		rate, _, _ := strings.Cut(word(i, "line rate"), " ")
		if bits, err := strconv.ParseUint(rate, 10, 64); err == nil && bits >= 1e6 {
			addFact(facts, "device:"+dev+":speed_mbps", strconv.FormatUint(bits/1e6, 10))
		}
	}
	return facts
}

// WithoutNAT implements Advising.
func (OPNsense) WithoutNAT() string {
	return "set Firewall, NAT, Outbound (Source NAT from 26.1 on) to disable outbound NAT"
}

// opnSettings says of each setting how else it is made.
var opnSettings = settings{of: func(name string) (setting, error) {
	if _, err := bsdSettingOf(name); err != nil {
		return setting{}, err
	}
	return setting{}, fmt.Errorf("%w: the API does not tell it, and sets the configuration alone, which "+
		"outlives a reboot; name the router ssh://HOST, and driver freebsd reads and sets it",
		host.ErrUnsupported)
}}

// Read implements Driver: there is nothing that could be set.
func (OPNsense) Read(ctx context.Context, h host.Host, s record.Setting) (string, error) {
	return opnSettings.read(ctx, h, s)
}

// Apply implements Driver.
func (OPNsense) Apply(ctx context.Context, h host.Host, s record.Setting) error {
	return opnSettings.apply(ctx, h, s)
}

// opnCounters are what the kernel counts of a device (struct if_data), and the stems of probe netdev.
var opnCounters = [...][2]string{{"bytes received", "rx_bytes"}, {"packets received", "rx_packets"},
	{"input errors", "rx_errors"}, {"input queue drops", "rx_dropped"}, {"bytes transmitted", "tx_bytes"},
	{"packets transmitted", "tx_packets"}, {"output errors", "tx_errors"}, {"send queue drops", "tx_dropped"},
	{"collisions", "tx_collisions"}}

// Counters implements Counting.
func (OPNsense) Counters(ctx context.Context, h host.Host, devices []string) (map[string]kernel.LinkCounters,
	error) {
	all, err := opnAsk(ctx, h, opnInterfaces)
	if err != nil {
		return nil, err
	}
	told := opnDevices(all)
	out, err := linkCounters(h, devices, opnCounters[:], func(dev, name string) (uint64, error) {
		return strconv.ParseUint(word(told[dev], name), 10, 64)
	})
	if err != nil {
		err = check.WithHint(err, "it tells those of interfaces that are assigned and enabled")
	}
	return out, err
}

// Ways implements Routing, by the routes that the router lists: it looks none up for us, and does not tell
// from which address packets leave.
func (OPNsense) Ways(ctx context.Context, h host.Host, to []netip.Addr) (ways []kernel.Way, own []netip.Addr,
	err error) {
	all, err := opnAsk(ctx, h, opnRoutes)
	if err != nil {
		return nil, nil, err
	}
	ways = make([]kernel.Way, len(to))
	longest := make([]int, len(to))
	for _, r := range elements(all[opnRoutes]) {
		prefix, dev := opnPrefix(word(r, "destination"), word(r, "proto")), word(r, "netif")
		flags := word(r, "flags")
		if !prefix.IsValid() || !deviceLike(dev) {
			continue
		}
		if a := prefix.Addr(); prefix.IsSingleIP() && strings.HasPrefix(dev, "lo") && a.IsGlobalUnicast() {
			own = append(own, a)
		}
		for i, a := range to {
			if prefix.Contains(a) && prefix.Bits() >= longest[i] {
				longest[i] = prefix.Bits()
				if ways[i] = (kernel.Way{}); strings.ContainsAny(flags, "RB") { // it is refused there
					continue
				}
				// The gateway is "link#2" on the link itself.
				ways[i] = kernel.Way{Device: dev, Via: bsdAddress(word(r, "gateway"))}
			}
		}
	}
	return ways, own, nil
}

// opnPrefix reads a destination of netstat -rnW: "default", "192.0.2.0/24", "192.0.2.1", "fe80::%igc0/64".
func opnPrefix(text, proto string) netip.Prefix {
	if text == "default" {
		return netip.PrefixFrom(map[bool]netip.Addr{true: netip.IPv6Unspecified(),
			false: netip.IPv4Unspecified()}[proto == "ipv6"], 0)
	}
	address, length, whole := strings.Cut(text, "/")
	a := bsdAddress(address)
	bits, err := strconv.Atoi(length)
	if !whole && a.IsValid() {
		bits, err = a.BitLen(), nil
	}
	if err != nil {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a, bits)
}
