// Package routeros emulates a router with MikroTik RouterOS and its console, for tests.
package routeros

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// Row holds an entry of a menu: its values by parameter.
type Row = map[string]string

// Device emulates the console of RouterOS: a part of its scripting language, as documented in the manual,
// and menus with text values. It rejects parameters that are not in the manual. Its clock advances with
// each command and at reboots, so that tests need not wait for the scheduler. :timestamp returns the real
// time.
type Device struct {
	Tables map[string][]Row // rows by menu
	Logged []string
	Broken string        // commands of a session that contain this text fail
	Stuck  string        // commands of the scheduler that contain this text fail
	Each   time.Duration // time by which the clock advances with each command
	// Counters returns the counters of a device, with the names that /interface/print stats uses. If Counters
	// is nil, all counters increase with each query.
	Counters func(device string) map[string]uint64
	// Changed, if not nil, is called when a row is added to a menu or, with gone set, removed from it.
	// Pinged, if not nil, is called with the address of each ping. Moved, if not nil, returns the counters of
	// the WireGuard peer with a public key, with the names that the peer's print uses.
	Changed func(menu string, row Row, gone bool)
	Pinged  func(address string)
	Moved   func(key string) Row

	mu     sync.Mutex
	last   int
	uptime time.Duration
	moved  uint64 // value of all port counters if Counters is nil
}

// parameters lists the parameters of each menu, from the manual's command line reference (RouterOS 7.24).
var parameters = func() map[string]string {
	const filter = "chain action comment disabled src-address src-address-list jump-target log-prefix " +
		"connection-state place-before"
	out := map[string]string{"/ip/firewall/filter": filter, "/ipv6/firewall/filter": filter}
	for line := range strings.Lines(`/interface name mtu l2mtu
/queue/interface queue
/queue/type name kind pfifo-limit bfifo-limit mq-pfifo-limit codel-limit codel-interval codel-target codel-ecn ` +
		`fq-codel-limit fq-codel-interval fq-codel-target fq-codel-ecn fq-codel-flows fq-codel-memlimit ` +
		`fq-codel-quantum cake-bandwidth cake-overhead cake-mpu cake-atm cake-rtt cake-diffserv cake-flowmode ` +
		`cake-nat cake-wash cake-ack-filter cake-memlimit
/ip/settings ip-forward
/ipv6/settings forward
/ip/firewall/nat chain action comment disabled out-interface place-before
/ip/firewall/address-list list address timeout comment
/ipv6/firewall/address-list list address timeout comment
/system/scheduler name start-time interval on-event policy comment disabled
/system/script name policy source comment
/system/resource
/system/resource/cpu
/ip/firewall/connection/tracking
/ip/address address interface comment
/ipv6/address address interface advertise comment
/ip/route dst-address gateway comment
/ipv6/route dst-address gateway comment
/interface/wireguard name mtu listen-port private-key comment
/interface/wireguard/peers interface public-key allowed-address preshared-key endpoint-address ` +
		`endpoint-port comment
/system/device-mode
/system/routerboard/settings cpu-frequency
 address count interval`) { // address, count and interval are for /ping
		menu, names, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		out[menu] = names
	}

	return out
}()

// modes maps menus to the device-mode feature that must be enabled to change them (manual, Device-mode).
var modes = map[string]string{"/system/scheduler": "scheduler", "/system/routerboard/settings": "routerboard"}

// WireGuardSecret is part of every secret on the router. Commands of the driver must never print one.
const WireGuardSecret = "c2VjcmV0"

// settings lists the menus that have a single row.
var settings = []string{"/ip/settings", "/ipv6/settings", "/system/resource",
	"/ip/firewall/connection/tracking", "/system/device-mode", "/system/routerboard/settings"}

// tables parses a text that contains menus. The rows of a menu are on the lines that follow its name.
func tables(text string) map[string][]Row {
	out := map[string][]Row{}
	menu := ""
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "/") {
			menu = line
			out[menu] = []Row{}
			continue
		}

		row := Row{}
		for property := range strings.SplitSeq(line, "|") {
			name, value, _ := strings.Cut(property, "=")
			row[name] = value
		}

		out[menu] = append(out[menu], row)
	}

	return out
}

// New returns a router with two ports in use: lan and wan.
func New() *Device {
	d := &Device{
		Each: 2 * time.Second,
		Tables: tables(`/interface
name=lan|type=ether|mtu=1500|actual-mtu=1500|running=true
name=wan|type=ether|mtu=1500|actual-mtu=1500|running=true
name=odd "$name\|type=ether|mtu=1500|running=false
name=bridge|type=bridge|mtu=0|actual-mtu=1500|running=true
name=office|type=wg|mtu=1420|actual-mtu=1420|running=true
/interface/wireguard
name=office|mtu=1420|listen-port=13231|private-key=` + WireGuardSecret + `|public-key=b2ZmaWNl
/interface/wireguard/peers
interface=office|public-key=cGVlcjA=|preshared-key=` + WireGuardSecret +
			`|allowed-address=10.255.255.2/32|rx=5427|tx=1472|last-handshake=1m23s
interface=office|public-key=cGVlcjE=|disabled=true|rx=0|tx=0
interface=office|public-key=cGVlcjI=|rx=0|tx=740
/system/device-mode
mode=advanced|allowed-versions=7.13+,6.49.8+|flagged=no|scheduler=yes|sniffer=yes|routerboard=no|attempt-count=0
/system/routerboard/settings
auto-upgrade=no|boot-device=nand-if-fail-then-ethernet|cpu-frequency=1400MHz|memory-frequency=1066DDR
/queue/type
name=default|kind=pfifo|pfifo-limit=50
name=ethernet-default|kind=pfifo|pfifo-limit=50
name=only-hardware-queue|kind=none
/queue/interface
interface=lan|queue=only-hardware-queue
interface=wan|queue=ethernet-default
interface=bridge|queue=no-queue
/ip/settings
ip-forward=yes
/ipv6/settings
forward=yes
/ip/firewall/filter
chain=forward|action=passthrough|dynamic=true
chain=input|action=accept
chain=forward|action=fasttrack-connection|comment=def "conf" $1
chain=forward|action=fasttrack-connection|disabled=yes|comment=not used
/ipv6/firewall/filter
/ip/firewall/nat
/ip/firewall/address-list
/ipv6/firewall/address-list
/system/scheduler
/system/script
/system/resource
platform=MikroTik|version=7.20.8 (long-term)|free-memory=871346176|total-memory=1073741824|cpu-frequency=1400
/system/resource/cpu
cpu=cpu0|load=75|irq=50
cpu=cpu1|load=5|irq=0
/ip/firewall/connection/tracking
total-entries=87|max-entries=1048576
/ip/address
address=192.0.2.1/24
address=198.51.100.1/24
/ip/route
dst-address=0.0.0.0/0|immediate-gw=198.51.100.254%wan|active=true
dst-address=192.0.2.0/24|immediate-gw=lan|active=true|local-address=192.0.2.1%lan
dst-address=192.0.2.0/25|immediate-gw=bridge|active=false
/ipv6/address
/ipv6/route`),
	}
	for _, menu := range slices.Sorted(maps.Keys(d.Tables)) {
		for _, row := range d.Tables[menu] {
			d.last++
			row[".id"] = fmt.Sprintf("*%X", d.last)
		}
	}
	return d
}

// Config returns the persistent configuration, without ids.
func (d *Device) Config() map[string][]Row {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[string][]Row{}
	for menu, rows := range d.Tables {
		for _, row := range rows {
			if row["timeout"] != "" {
				continue
			}

			row = maps.Clone(row)
			delete(row, ".id")
			if row["disabled"] == "no" {
				delete(row, "disabled")
			}

			out[menu] = append(out[menu], row)
		}
	}

	return out
}

// Pass advances the clock: the scheduler runs, and temporary addresses expire.
func (d *Device) Pass(t time.Duration) {
	d.mu.Lock()
	end := d.uptime + t
	d.mu.Unlock()
	for {
		d.mu.Lock()
		next := end
		var run []string
		for _, e := range d.Tables["/system/scheduler"] {
			interval, _ := time.ParseDuration(e["interval"])
			due, _ := time.ParseDuration(e["due"])
			if interval > 0 && e["disabled"] != "yes" && due <= end {
				if due < next {
					next, run = due, nil
				}

				if due == next {
					run = append(run, e["on-event"])
					runs, _ := strconv.Atoi(e["run-count"])
					e["run-count"], e["due"] = strconv.Itoa(runs+1), (due + interval).String()
				}
			}
		}

		d.uptime = max(d.uptime, next)
		for menu := range d.Tables {
			d.Tables[menu] = slices.DeleteFunc(d.Tables[menu], func(row Row) bool {
				expires, err := time.ParseDuration(row["expires"])
				return err == nil && expires <= d.uptime
			})
		}

		d.mu.Unlock()
		for _, event := range run {
			d.background(event)
		}

		if next >= end && len(run) == 0 {
			return
		}
	}
}

// background runs a script as the scheduler does, with no terminal.
func (d *Device) background(script string) {
	r := &running{d: d, out: io.Discard, inside: true}
	if err := r.block(script, &scope{}); err != nil {
		d.mu.Lock()
		d.Logged = append(d.Logged, err.Error())
		d.mu.Unlock()
	}
}

// Reboot discards all state that is only in memory, and runs the scheduler's start-up entries. Entries
// with an interval do not run, because the router's clock was lost.
func (d *Device) Reboot() {
	d.mu.Lock()
	var run []string
	for menu := range d.Tables {
		d.Tables[menu] = slices.DeleteFunc(d.Tables[menu], func(row Row) bool {
			return row["timeout"] != ""
		})
	}

	for _, e := range d.Tables["/system/scheduler"] {
		e["run-count"], e["due"] = "0", (1000 * time.Hour).String()
		if e["start-time"] == "startup" && e["interval"] == "0s" {
			run = append(run, e["on-event"])
		}
	}

	d.uptime = 0
	d.mu.Unlock()
	for _, event := range run {
		d.background(event)
	}
}

// Name implements host.Host.
func (d *Device) Name() string { return "router" }

// ReadFile implements host.Host.
func (d *Device) ReadFile(context.Context, string) ([]byte, error) { return nil, host.ErrUnsupported }

// WriteFile implements host.Host.
func (d *Device) WriteFile(context.Context, string, []byte) error { return host.ErrUnsupported }

// Start implements host.Host.
func (d *Device) Start(ctx context.Context, c host.Command) (host.Process, error) {
	if len(c.Args) > 0 {
		return nil, host.ErrUnsupported
	}

	d.Pass(d.Each)
	p := &session{done: make(chan struct{})}
	var w *io.PipeWriter
	p.out, w = io.Pipe()
	ctx, p.kill = context.WithCancel(ctx)
	go func() {
		defer close(p.done)
		r := &running{d: d, out: w, stopped: ctx.Done()}
		if err := r.block(c.Path, &scope{}); err != nil {
			fmt.Fprintln(w, err)
		}

		w.Close()
	}()
	context.AfterFunc(ctx, func() { w.Close() })
	return p, nil
}

type session struct {
	out  *io.PipeReader
	kill context.CancelFunc
	done chan struct{}
}

func (p *session) Stdout() io.Reader         { return p.out }
func (p *session) Stderr() io.Reader         { return strings.NewReader("") }
func (p *session) Wait() (host.Usage, error) { <-p.done; p.kill(); return host.Usage{}, nil }
func (p *session) Kill() error               { p.kill(); return nil }

func (r *running) run(menu, verb string, bare []any, values map[string]string, s *scope) any {
	d := r.d
	one := slices.Contains(settings, menu)
	matching := func() []Row {
		return slices.DeleteFunc(slices.Clone(d.Tables[menu]), func(row Row) bool {
			for name, v := range values {
				have := row[name]
				if name == "disabled" || name == "dynamic" {
					have = map[bool]string{true: "yes", false: "no"}[have == "yes" || have == "true"]
				}

				if name != "proplist" && have != v {
					return true
				}
			}
			return slices.ContainsFunc(bare, func(flag any) bool {
				return (flag == "running" || flag == "active") && row[flag.(string)] != "true"
			})
		})
	}
	chosen := func() []Row {
		if one {
			return d.Tables[menu]
		}

		if len(bare) == 0 {
			r.fail("expected item id (line 1 column %d)", r.at)
		}

		ids, isList := bare[0].([]any)
		if !isList {
			ids = []any{bare[0]}
		}

		return slices.DeleteFunc(slices.Clone(d.Tables[menu]), func(row Row) bool {
			named := row["name"] != "" && slices.Contains(ids, any(row["name"]))
			return !named && !slices.Contains(ids, any(row[".id"]))
		})
	}
	only := func() Row {
		rows := chosen()
		if len(rows) == 0 {
			r.fail("no such item")
		}
		return rows[0]
	}
	switch verb {
	case "ping", "add", "set":
		for name := range values {
			if !slices.Contains(strings.Fields(parameters[menu]), name) {
				r.fail("bad parameter %s (line 1 column %d)", name, r.at)
			}
		}
	}

	if verb != "find" && verb != "print" && verb != "get" && modes[menu] != "" &&
		d.Tables["/system/device-mode"][0][modes[menu]] == "no" {
		r.fail("failure: not allowed by device-mode")
	}

	switch verb {
	case "ping":
		if d.Pinged != nil {
			d.Pinged(values["address"])
		}

		fmt.Fprintf(r.out, "  SEQ HOST                                     SIZE TTL TIME       STATUS\n"+
			"    0 %s timeout\n    sent=1 received=0 packet-loss=100%%\n", values["address"])
	case "find":
		ids := []any{}
		for _, row := range matching() {
			ids = append(ids, row[".id"])
		}
		return ids
	case "print":
		if menu == "/interface" && slices.Contains(bare, any("stats")) {
			d.moved += 1000
		}

		out := []any{}
		for _, row := range matching() {
			fields := map[string]any{}
			for name, v := range row {
				fields[name] = printed(v)
			}

			if menu == "/interface" && slices.Contains(bare, any("stats")) {
				for _, c := range []string{"rx-byte", "rx-packet", "tx-byte", "tx-packet"} {
					fields[c] = d.moved
				}

				if d.Counters != nil {
					for c, n := range d.Counters(row["name"]) {
						fields[c] = n
					}
				}
			}

			if menu == "/interface/wireguard/peers" && d.Moved != nil {
				for name, v := range d.Moved(row["public-key"]) {
					fields[name] = printed(v)
				}
			}

			list := strings.Split(values["proplist"], ",")
			if list[0] != "" {
				maps.DeleteFunc(fields, func(name string, _ any) bool { return !slices.Contains(list, name) })
			}

			out = append(out, fields)
		}

		if one {
			return out[0]
		}

		return out
	case "get":
		return only()[text(bare[len(bare)-1])]
	case "add":
		row := maps.Clone(values)
		delete(row, "place-before")
		if row["name"] != "" && slices.ContainsFunc(d.Tables[menu], func(have Row) bool {
			return have["name"] == row["name"]
		}) {
			r.fail("failure: already have such name")
		}

		d.last++
		row[".id"] = fmt.Sprintf("*%X", d.last)
		if menu == "/interface/wireguard" { // the device generates the keys
			public := sha256.Sum256([]byte(row[".id"]))
			row["private-key"] = WireGuardSecret
			row["public-key"] = base64.StdEncoding.EncodeToString(public[:])
			d.Tables["/interface"] = append(d.Tables["/interface"], Row{".id": row[".id"],
				"name": row["name"], "type": "wg", "mtu": row["mtu"], "actual-mtu": row["mtu"],
				"running": "true"})
		}

		if d.Changed != nil {
			d.Changed(menu, row, false)
		}

		for _, of := range [...][2]string{{"timeout", "expires"}, {"interval", "due"}} {
			if t, err := time.ParseDuration(row[of[0]]); err == nil {
				row[of[1]] = (d.uptime + t).String()
			}
		}

		at := slices.IndexFunc(d.Tables[menu], func(have Row) bool {
			return have[".id"] == values["place-before"]
		})
		if at < 0 {
			at = len(d.Tables[menu])
		}

		d.Tables[menu] = slices.Insert(d.Tables[menu], at, row)
	case "set":
		for _, row := range chosen() {
			maps.Copy(row, values)
		}
	case "remove":
		gone := chosen()
		for _, row := range gone {
			if menu == "/interface/wireguard" {
				d.Tables["/interface"] = slices.DeleteFunc(d.Tables["/interface"],
					func(i Row) bool { return i[".id"] == row[".id"] })
			}

			if d.Changed != nil {
				d.Changed(menu, row, true)
			}
		}

		d.Tables[menu] = slices.DeleteFunc(d.Tables[menu], func(row Row) bool {
			return slices.ContainsFunc(gone, func(g Row) bool { return g[".id"] == row[".id"] })
		})
	case "run":
		source := only()["source"]
		d.mu.Unlock()
		err := r.block(source, nil)
		d.mu.Lock()
		if err != nil {
			r.fail("%v", err)
		}
	default:
		r.fail("bad command name %s (line 1 column %d)", verb, r.at)
	}

	return nil
}

// printed converts a value as :serialize does: numbers and booleans are not strings.
func printed(v string) any {
	if n, err := strconv.ParseUint(v, 10, 64); err == nil {
		return n
	}

	switch v {
	case "yes", "true":
		return true
	case "no", "false":
		return false
	}
	return v
}
