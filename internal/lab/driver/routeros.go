package driver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// RouterOS is the driver for MikroTik RouterOS 7.17 and later. It uses the console. A command is a line in
// the console's scripting language (https://help.mikrotik.com/docs/spaces/ROS/pages/47579229/Scripting). The
// host must pass the line on unchanged, as ssh.Connection.Commands does. Changes are persistent at once, so
// the driver marks whatever it adds, and a guard on the router can undo the changes even after a reboot.
type RouterOS struct{}

// Name implements Driver.
func (RouterOS) Name() string { return "routeros" }

// Check implements Driver.
func (RouterOS) Check(ctx context.Context, h host.Host) check.Answer {
	out, err := console(ctx, h, `:put [/system/resource/get platform]`,
		`:put [/system/resource/get version]`)
	platform, version, _ := strings.Cut(strings.TrimSpace(out), "\n")
	switch {
	case errors.Is(err, host.ErrUnsupported):
		return check.Not("%s has no RouterOS console: %v", h.Name(), err)
	case err != nil:
		return check.CouldNotTell("%v", err)
	case strings.TrimSpace(platform) != "MikroTik":
		return check.Not("%s is %q, not MikroTik RouterOS", h.Name(), check.Plain(platform))
	case !sinceVersion(version):
		return check.Not("%s has RouterOS %s", h.Name(), check.Plain(strings.TrimSpace(version))).
			Hinted("RouterOS 7.17 or later is needed")
	}

	return check.OK()
}

// rosFacts maps menus and their properties to names of facts.
var rosFacts = map[string]map[string]string{
	"/system/resource": {"version": "distribution_version", "board-name": "product", "cpu": "cpu_model",
		"cpu-count": "cpu_threads", "architecture-name": "machine", "total-memory": "memory_bytes"},
	"/system/device-mode": {"mode": "device_mode", "scheduler": "device_mode:scheduler",
		"routerboard": "device_mode:routerboard", "flagged": "device_mode:flagged"},
	"/system/routerboard/settings": {"cpu-frequency": "cpu_frequency_set"},
}

// Facts implements Describing. It omits properties that the router does not have. For example, a virtual
// router lacks some.
func (RouterOS) Facts(ctx context.Context, h host.Host) (map[string]string, error) {
	facts := map[string]string{"os": "routeros", "distribution": "routeros"}
	var wrong error
	list := func(print string) []item {
		all, err := items(ctx, h, print)
		if err != nil && !errors.Is(err, host.ErrUnsupported) {
			wrong = failed(h, "read facts", err)
		}
		return all
	}
	for menu, names := range rosFacts {
		for _, i := range list(menu + "/print as-value") {
			for told, name := range names {
				word := map[string]string{"true": "yes", "false": "no"}[i[told]]
				addFact(facts, name, cmp.Or(word, i[told]))
			}
		}
	}

	for _, i := range list("/interface/print detail as-value proplist=name,type,actual-mtu where running " +
		"dynamic=no") {
		addFact(facts, "device:"+check.Plain(i["name"])+":mtu", i["actual-mtu"])
		addFact(facts, "device:"+check.Plain(i["name"])+":type", i["type"])
	}

	for _, i := range list("/queue/interface/print as-value") {
		name := "device:" + check.Plain(i["interface"])
		if facts[name+":type"] != "" { // otherwise, the interface is not running
			addFact(facts, name+":queue", i["queue"])
		}
	}

	return facts, wrong
}

// sinceVersion reports whether a version such as "7.20.8 (long-term)" or "7.24rc1" is at least 7.17. That
// version introduced json.no-string-conversion for :serialize.
func sinceVersion(text string) bool {
	var major, minor int
	n, _ := fmt.Sscanf(strings.TrimSpace(text), "%d.%d", &major, &minor)
	return n == 2 && (major > 7 || major == 7 && minor >= 17)
}

// consoleDone marks the end of a successful command's output. It is needed because the console stops at the
// first error and has no reliable exit code.
const consoleDone = "chokepoint-done"

// console runs statements and returns their output. If one fails, the error contains the console's message.
func console(ctx context.Context, h host.Host, statements ...string) (string, error) {
	line := strings.Join(slices.Concat(statements, []string{":put " + quoteROS(consoleDone)}), "; ")
	ctx, cancel := host.Within(ctx, answerTime)
	defer cancel()
	out, err := host.Run(ctx, h, host.Command{Path: line})
	text, whole := strings.CutSuffix(strings.TrimSpace(string(out)), consoleDone)
	if whole {
		return text, nil
	}

	code, exited := host.ExitCode(err)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case errors.Is(err, host.ErrUnreachable):
		return "", fmt.Errorf("the console does not answer: %w", host.ErrUnreachable)
	case errors.Is(err, host.ErrUnsupported), errors.Is(err, fs.ErrNotExist),
		exited && (code == 126 || code == 127): // exit codes of a shell, not of a RouterOS console
		return "", lacks("it takes no command of RouterOS")
	case !exited:
		return "", err
	}

	return "", refused(text)
}

// refused returns an error with the message that the console printed instead of a result.
func refused(text string) error {
	said := told(text[max(0, len(text)-200):])
	err := fmt.Errorf("the console says %q", said)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(said, w) })
	}
	switch {
	case has("device-mode"):
		return check.WithHint(lacks("%w", err),
			"/system/device-mode/print shows what is allowed; /system/device-mode/update allows it, which "+
				"RouterOS has confirmed by a button or a power cycle")
	case has("not enough permissions"):
		return check.WithHint(err, "the user's group needs the policies read, write, test and policy, "+
			"and ssh")
	case has("bad command name", "bad parameter", "expected command name",
		"input does not match any value"):
		return lacks("%w", err)
	}

	return err
}

// quoteROS quotes a string for the console with double quotes, within which \, " and $ are special.
func quoteROS(word string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(word) {
		switch c := word[i]; {
		case c == '\n':
			b.WriteString(`\n`)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, `\%02X`, c)
		case strings.IndexByte(`\"$`, c) >= 0:
			b.WriteByte('\\')
			fallthrough
		default:
			b.WriteByte(c)
		}
	}

	b.WriteByte('"')
	return b.String()
}

// find returns an expression for the items of a menu that have the given properties. pairs alternates names
// and values. The values of flags are not quoted, because a flag never equals a string.
func find(menu string, pairs ...string) string {
	out := "[" + menu + "/find where"
	for i := 0; i+1 < len(pairs); i += 2 {
		value := pairs[i+1]
		flag := pairs[i] == "disabled" || pairs[i] == "dynamic"
		if !flag {
			value = quoteROS(value)
		}

		out += " " + pairs[i] + "=" + value
	}
	return out + "]"
}

// count returns the number of items in the result of an expression such as that of find.
func count(ctx context.Context, h host.Host, items string) (int, error) {
	out, err := console(ctx, h, ":put [:len "+items+"]")
	if err != nil {
		return 0, err
	}

	n, err := parseCounts(out, 1)
	if err != nil {
		return 0, err
	}

	return n[0], nil
}

// remove returns a statement that removes the items of a menu that have the given properties; see find.
func remove(menu string, pairs ...string) string { return menu + "/remove " + find(menu, pairs...) }

// item holds the properties of an entry in a menu. Flags are "true" and "false".
type item map[string]string

func (i item) yes(name string) bool { return i[name] == "true" || i[name] == "yes" }

// number returns an integer property. ok is false if the property is missing or invalid.
func (i item) number(name string) (uint64, bool) {
	n, err := strconv.ParseUint(strings.TrimSuffix(i[name], "%"), 10, 64)
	return n, err == nil
}

// toJSON returns a statement that prints, as JSON, the result of a print command such as "/interface/print
// stats as-value".
func toJSON(print string) string {
	return ":put [:serialize to=json options=json.no-string-conversion value=[" + print + "]]"
}

// items returns the result of a print command.
func items(ctx context.Context, h host.Host, print string) ([]item, error) {
	out, err := console(ctx, h, toJSON(print))
	if err != nil {
		return nil, err
	}
	return parseItems(out)
}

// first returns the first item in the result of a print command. A menu without a list has only one item.
func first(ctx context.Context, h host.Host, print string) (item, error) {
	all, err := items(ctx, h, print)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%s gives nothing", print)
	}

	if err != nil {
		return nil, err
	}

	return all[0], nil
}

// unwrapped removes the line breaks that a terminal inserts into long lines.
var unwrapped = strings.NewReplacer("\r", "", "\n", "")

// parseItems parses the JSON printed by toJSON: a list of objects, or one object for a menu without a list.
func parseItems(text string) ([]item, error) {
	text = strings.TrimSpace(unwrapped.Replace(text))
	if !strings.HasPrefix(text, "[") {
		text = "[" + text + "]"
	}

	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var list []map[string]any
	if err := d.Decode(&list); err != nil {
		return nil, fmt.Errorf("the console printed %q, want JSON objects", told(text))
	}

	var out []item
	for _, fields := range list {
		i := item{}
		for name, v := range fields {
			word, known := jsonWord(v)
			if known {
				i[name] = word
			}
		}

		if len(i) > 0 {
			out = append(out, i)
		}
	}

	return out, nil
}

// jsonWord returns a JSON value as text. It accounts for the console printing some integers as 2048.000000.
func jsonWord(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case json.Number:
		whole, fraction, _ := strings.Cut(v.String(), ".")
		if strings.Trim(fraction, "0") == "" {
			return whole, true
		}
		return v.String(), true
	case []any:
		var words []string
		for _, e := range v {
			word, known := jsonWord(e)
			if known {
				words = append(words, word)
			}
		}
		return strings.Join(words, ","), true
	}
	return "", false
}

// parseROSTime parses a duration such as "1w2d3h4m5s", "100ms", "00:00:00.100" or "1w2d00:00:05".
func parseROSTime(text string) (d time.Duration, err error) {
	rest := text
	for _, unit := range []struct {
		letter string
		length time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		if number, after, ok := strings.Cut(rest, unit.letter); ok {
			n, wrong := strconv.ParseUint(number, 10, 16)
			d, rest, err = d+time.Duration(n)*unit.length, after, errors.Join(err, wrong)
		}
	}

	clock := strings.Split(rest, ":")
	if len(clock) == 3 {
		rest = clock[0] + "h" + clock[1] + "m" + clock[2] + "s"
	}

	if rest != "" || text == "" {
		more, wrong := time.ParseDuration(rest)
		d, err = d+more, errors.Join(err, wrong)
	}

	if err != nil || strings.ContainsAny(text, "+-") {
		return 0, fmt.Errorf("%q is no duration", told(text))
	}

	return d, nil
}

func rosSettings(s record.Setting) map[string]setting {
	clock := setting{
		read: func(ctx context.Context, h host.Host, _, _ string) (string, error) {
			return "", clockByHand(ctx, h, s)
		},
		apply: func(ctx context.Context, h host.Host, _, _ string) error { return clockByHand(ctx, h, s) },
	}
	return map[string]setting{
		"link_mtu":   {true, readROSMTU, applyROSMTU},
		"queue":      {true, readROSQueue, applyROSQueue},
		"ip_forward": {false, readROSForwarding, applyROSForwarding},
		"firewall":   {false, readROSFirewall, applyROSFirewall},
		"nat":        {false, readROSNAT, applyROSNAT},
		"flowtable":  {false, readFastTrack, applyFastTrack},
		"tunnel_end": {false, readROSEnd, applyROSEnd},
		"governor":   clock,
		"cpu_quota":  clock,
	}
}

// rosByHand lists the owner's commands for knobs that have no equivalent in RouterOS.
var rosByHand = map[string]string{
	"conntrack_max": "RouterOS sets its limit by the size of its memory",
	"cpus":          "RouterOS steers packets for a port as a whole: /system/resource/irq/rps by hand",
	"irq_affinity":  "/system/resource/irq set … cpu=… by hand",
	"offload":       "RouterOS does not show its offloads; those of a switch are l3-hw-offloading, by hand",
}

// WithoutNAT implements Advising.
func (RouterOS) WithoutNAT() string {
	return "/ip/firewall/nat/print, and /ip/firewall/nat/disable for each rule of the path"
}

// Read implements Driver.
func (RouterOS) Read(ctx context.Context, h host.Host, s record.Setting) (string, error) {
	text, err := rosSetting(s).read(ctx, h, s)
	if err == nil && s.Value != "" { // a value means that the caller will set it
		if err = mayGuard(ctx, h); err != nil {
			return "", fmt.Errorf("set %s on %s: %w", s.Knob, h.Name(), err)
		}
	}
	return text, err
}

// Apply implements Driver.
func (RouterOS) Apply(ctx context.Context, h host.Host, s record.Setting) error {
	return rosSetting(s).apply(ctx, h, s)
}

func rosSetting(s record.Setting) settings {
	return settings{func(name string) (setting, error) {
		x, ok := rosSettings(s)[name]
		if !ok {
			return x, lacks("%s", cmp.Or(rosByHand[name], "driver routeros does not know it"))
		}
		return x, nil
	}, rosDevices}
}

// changeROS runs statements that change the router, or records them if h is a *written.
func changeROS(ctx context.Context, h host.Host, statements ...string) error {
	if w, ok := h.(*written); ok {
		w.statements = append(w.statements, statements...)
		return nil
	}

	_, err := console(ctx, h, statements...)
	return err
}

func rosDevices(ctx context.Context, h host.Host) (out []string, err error) {
	all, err := items(ctx, h, `/interface/print detail as-value where type="ether" running`)
	for _, i := range all {
		out = append(out, i["name"])
	}

	slices.Sort(out)
	return out, err
}

// counted maps counters of an interface to columns of probe netdev.
var counted = [...][2]string{{"rx-byte", "rx_bytes"}, {"rx-packet", "rx_packets"}, {"rx-error", "rx_errors"},
	{"rx-drop", "rx_dropped"}, {"tx-byte", "tx_bytes"}, {"tx-packet", "tx_packets"},
	{"tx-error", "tx_errors"}, {"tx-drop", "tx_dropped"}}

// interfaceStats returns the command that prints the counters of all interfaces.
func interfaceStats() string {
	names := "name,tx-queue-drop,fp-rx-packet"
	for _, c := range counted {
		names += "," + c[0]
	}
	return "/interface/print stats as-value proplist=" + names
}

// Counters implements Counting.
func (RouterOS) Counters(ctx context.Context, h host.Host, devices []string) (map[string]kernel.LinkCounters,
	error) {
	all, err := items(ctx, h, interfaceStats())
	counters := map[string]map[string]uint64{}
	for _, i := range all {
		of := map[string]uint64{}
		for _, c := range counted {
			n, known := i.number(c[0])
			if known {
				of[c[1]] = n
			}
		}

		counters[i["name"]] = of
	}

	return linkCounters(h, devices, counters, err)
}
