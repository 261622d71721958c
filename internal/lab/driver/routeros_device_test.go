package driver_test

import (
	"context"
	"encoding/json"
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

// device plays a router with RouterOS' console: a part of its scripting language, as the manual describes it,
// over menus that hold texts. It refuses parameters that the manual does not have. Its own time passes with
// each command and at reboots, so that the scheduler need not be waited for; :timestamp is the real one.
type device struct {
	mu     sync.Mutex
	tables map[string][]map[string]string
	last   int
	uptime time.Duration
	logged []string
	moved  uint64 // what its ports count up
	broken string // what a session's command with this in it fails at
	stuck  string // the same of the scheduler's commands
}

// parameters are those of the menus, from the manual's command line reference (RouterOS 7.24).
var parameters = map[string]string{
	"/interface":       "name mtu l2mtu",
	"/queue/interface": "queue",
	"/queue/type": "name kind pfifo-limit bfifo-limit mq-pfifo-limit codel-limit codel-interval " +
		"codel-target codel-ecn fq-codel-limit fq-codel-interval fq-codel-target fq-codel-ecn " +
		"fq-codel-flows fq-codel-memlimit fq-codel-quantum cake-bandwidth cake-overhead cake-mpu " +
		"cake-atm cake-rtt " +
		"cake-diffserv cake-flowmode cake-nat cake-wash cake-ack-filter cake-memlimit",
	"/ip/settings": "ip-forward", "/ipv6/settings": "forward",
	"/ip/firewall/filter": "chain action comment disabled src-address src-address-list jump-target " +
		"log-prefix connection-state place-before",
	"/ipv6/firewall/filter": "chain action comment disabled src-address src-address-list jump-target " +
		"log-prefix connection-state place-before",
	"/ip/firewall/nat":            "chain action comment disabled out-interface place-before",
	"/ip/firewall/address-list":   "list address timeout comment",
	"/ipv6/firewall/address-list": "list address timeout comment",
	"/system/scheduler":           "name start-time interval on-event policy comment disabled",
	"/system/script":              "name policy source comment",
	"/system/resource":            "", "/system/resource/cpu": "", "/ip/firewall/connection/tracking": "",
	"/ip/address": "", "/ipv6/address": "", "/ip/route": "", "/ipv6/route": "",
}

// settings are the menus without a list.
var settings = []string{"/ip/settings", "/ipv6/settings", "/system/resource",
	"/ip/firewall/connection/tracking"}

func newDevice() *device {
	d := &device{tables: map[string][]map[string]string{
		"/interface": {
			{"name": "lan", "type": "ether", "mtu": "1500", "running": "true"},
			{"name": "wan", "type": "ether", "mtu": "1500", "running": "true"},
			{"name": "odd \"$name\\", "type": "ether", "mtu": "1500", "running": "false"},
			{"name": "bridge", "type": "bridge", "mtu": "0", "running": "true"}},
		"/queue/type": {{"name": "default", "kind": "pfifo", "pfifo-limit": "50"},
			{"name": "ethernet-default", "kind": "pfifo", "pfifo-limit": "50"},
			{"name": "only-hardware-queue", "kind": "none"}},
		"/queue/interface": {{"interface": "lan", "queue": "only-hardware-queue"},
			{"interface": "wan", "queue": "ethernet-default"}, {"interface": "bridge", "queue": "no-queue"}},
		"/ip/settings": {{"ip-forward": "yes"}}, "/ipv6/settings": {{"forward": "yes"}},
		"/ip/firewall/filter": {{"chain": "forward", "action": "passthrough", "dynamic": "true"},
			{"chain": "input", "action": "accept"},
			{"chain": "forward", "action": "fasttrack-connection", "comment": "def \"conf\" $1"},
			{"chain": "forward", "action": "fasttrack-connection", "disabled": "yes", "comment": "not used"}},
		"/ipv6/firewall/filter": {}, "/ip/firewall/nat": {}, "/ip/firewall/address-list": {},
		"/ipv6/firewall/address-list": {}, "/system/scheduler": {}, "/system/script": {},
		"/system/resource": {{"platform": "MikroTik", "version": "7.20.8 (long-term)",
			"free-memory": "871346176", "total-memory": "1073741824", "cpu-frequency": "1400"}},
		"/system/resource/cpu": {{"cpu": "cpu0", "load": "75", "irq": "50"}, {"cpu": "cpu1", "load": "5",
			"irq": "0"}},
		"/ip/firewall/connection/tracking": {{"total-entries": "87", "max-entries": "1048576"}},
		"/ip/address":                      {{"address": "192.0.2.1/24"}, {"address": "198.51.100.1/24"}},
		"/ip/route": {{"dst-address": "0.0.0.0/0", "immediate-gw": "198.51.100.254%wan", "active": "true"},
			{"dst-address": "192.0.2.0/24", "immediate-gw": "lan", "active": "true",
				"local-address": "192.0.2.1%lan"},
			{"dst-address": "192.0.2.0/25", "immediate-gw": "bridge", "active": "false"}},
		"/ipv6/address": {}, "/ipv6/route": {},
	}}
	for _, menu := range slices.Sorted(maps.Keys(d.tables)) {
		for _, row := range d.tables[menu] {
			d.last++
			row[".id"] = fmt.Sprintf("*%X", d.last)
		}
	}
	return d
}

// config is what the router holds for good, without numbers.
func (d *device) config() map[string][]map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[string][]map[string]string{}
	for menu, rows := range d.tables {
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

// pass lets time pass, in which the scheduler runs and addresses expire.
func (d *device) pass(t time.Duration) {
	for end := d.uptime + t; ; {
		d.mu.Lock()
		next := end
		var run []string
		for _, e := range d.tables["/system/scheduler"] {
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
		for menu := range d.tables {
			d.tables[menu] = slices.DeleteFunc(d.tables[menu], func(row map[string]string) bool {
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

// background runs a script without a terminal.
func (d *device) background(script string) {
	r := &running{d: d, out: io.Discard, inside: true}
	if err := r.block(script, &scope{}); err != nil {
		d.mu.Lock()
		d.logged = append(d.logged, err.Error())
		d.mu.Unlock()
	}
}

// reboot forgets what is only in memory, and starts what is to be started then. Entries with an interval
// whose time has not come, because the clock was lost, do not run.
func (d *device) reboot() {
	d.mu.Lock()
	var run []string
	for menu := range d.tables {
		d.tables[menu] = slices.DeleteFunc(d.tables[menu], func(row map[string]string) bool {
			return row["timeout"] != ""
		})
	}
	for _, e := range d.tables["/system/scheduler"] {
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
func (d *device) Name() string { return "router" }

// ReadFile implements host.Host.
func (d *device) ReadFile(context.Context, string) ([]byte, error) { return nil, host.ErrUnsupported }

// WriteFile implements host.Host.
func (d *device) WriteFile(context.Context, string, []byte) error { return host.ErrUnsupported }

// Start implements host.Host.
func (d *device) Start(ctx context.Context, c host.Command) (host.Process, error) {
	if len(c.Args) > 0 {
		return nil, host.ErrUnsupported
	}
	d.pass(2 * time.Second)
	p := &session{done: make(chan struct{})}
	var w *io.PipeWriter
	p.out, w = io.Pipe()
	ctx, p.kill = context.WithCancel(ctx)
	go func() {
		defer close(p.done)
		r := &running{d: d, out: w, ctx: ctx}
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

// scope holds variables; a block sees those around it.
type scope struct {
	around *scope
	vars   map[string]any
}

func (s *scope) holding(name string) *scope {
	for ; s != nil; s = s.around {
		if _, ok := s.vars[name]; ok {
			return s
		}
	}
	return nil
}

func (s *scope) declare(name string, v any) {
	if s.vars == nil {
		s.vars = map[string]any{}
	}
	s.vars[name] = v
}

// running interprets a script.
type running struct {
	d      *device
	ctx    context.Context // of a session; nil in the background
	out    io.Writer
	inside bool // of the scheduler: time passes without it
	src    string
	at     int
}

type consoleError string

func (e consoleError) Error() string { return string(e) }

func (r *running) fail(format string, args ...any) {
	panic(consoleError(fmt.Sprintf(format, args...)))
}

// block runs a script in a scope of its own.
func (r *running) block(src string, around *scope) (err error) {
	defer func() {
		if p := recover(); p != nil {
			e, ok := p.(consoleError)
			if !ok {
				panic(p)
			}
			err = e
		}
	}()
	(&running{d: r.d, ctx: r.ctx, out: r.out, inside: r.inside, src: src}).statements(&scope{around: around})
	return nil
}

// do is block, whose error ends what it is in.
func (r *running) do(src string, around *scope) {
	if err := r.block(src, around); err != nil {
		panic(err)
	}
}

func (r *running) blanks() {
	for r.at < len(r.src) && strings.IndexByte(" \t", r.src[r.at]) >= 0 {
		r.at++
	}
}

func (r *running) has(prefix string) bool {
	r.blanks()
	if strings.HasPrefix(r.src[r.at:], prefix) {
		r.at += len(prefix)
		return true
	}
	return false
}

func (r *running) want(prefix string) {
	if !r.has(prefix) {
		r.fail("expected %s (line 1 column %d) at %.40q", prefix, r.at+1, r.src[r.at:])
	}
}

const wordBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:,*%"

func (r *running) word(also string) string {
	r.blanks()
	from := r.at
	for r.at < len(r.src) && strings.IndexByte(wordBytes+also, r.src[r.at]) >= 0 {
		r.at++
	}
	if from == r.at {
		r.fail("syntax error (line 1 column %d) at %.40q", r.at+1, r.src[r.at:])
	}
	return r.src[from:r.at]
}

// braced is what stands between { and }.
func (r *running) braced() string {
	r.want("{")
	from, depth, quoted := r.at, 1, false
	for ; r.at < len(r.src); r.at++ {
		switch c := r.src[r.at]; {
		case quoted && c == '\\':
			r.at++
		case c == '"':
			quoted = !quoted
		case !quoted && c == '{':
			depth++
		case !quoted && c == '}':
			if depth--; depth == 0 {
				r.at++
				return r.src[from : r.at-1]
			}
		}
	}
	r.fail("expected closing brace (line 1 column %d)", r.at)
	return ""
}

func (r *running) statements(s *scope) {
	for {
		for r.at < len(r.src) && strings.IndexByte(" \t\n;", r.src[r.at]) >= 0 {
			r.at++
		}
		if r.at == len(r.src) {
			return
		}
		r.statement(s)
		if r.blanks(); r.at < len(r.src) && r.src[r.at] != ';' && r.src[r.at] != '\n' {
			r.fail("expected end of command (line 1 column %d) at %.40q", r.at+1, r.src[r.at:])
		}
	}
}

func (r *running) condition(s *scope) bool {
	v := r.primary(s)
	b, ok := v.(bool)
	if !ok {
		r.fail("conditional not boolean: %v", v)
	}
	return b
}

func (r *running) statement(s *scope) {
	if r.ctx != nil && r.ctx.Err() != nil {
		r.fail("interrupted")
	}
	if !strings.HasPrefix(r.src[r.at:], ":") {
		r.command(s)
		return
	}
	r.at++
	switch name := r.word(""); name {
	case "put":
		fmt.Fprintln(r.out, text(r.primary(s)))
	case "local":
		name := r.word("")
		s.declare(name, r.primary(s))
	case "set":
		name := r.word("")
		held := s.holding(name)
		if held == nil {
			r.fail("syntax error: variable %s is not declared", name)
		}
		held.vars[name] = r.primary(s)
	case "error":
		r.fail("%s", text(r.primary(s)))
	case "log":
		topic := r.word("")
		message := text(r.primary(s))
		r.d.mu.Lock()
		r.d.logged = append(r.d.logged, topic+": "+message)
		r.d.mu.Unlock()
	case "delay":
		t, err := time.ParseDuration(r.word(""))
		if err != nil {
			r.fail("invalid time")
		}
		if !r.inside {
			_ = host.Pause(r.ctx, t/20) // the next statement looks whether it was interrupted
			return
		}
		r.d.mu.Lock()
		r.d.uptime += t
		r.d.mu.Unlock()
	case "if":
		ok := r.condition(s)
		r.want("do=")
		then, other := r.braced(), ""
		if r.has("else=") {
			other = r.braced()
		}
		if ok {
			r.do(then, s)
		} else {
			r.do(other, s)
		}
	case "while":
		from := r.at
		for {
			r.at = from
			ok := r.condition(s)
			r.want("do=")
			body := r.braced()
			if !ok {
				return
			}
			r.do(body, s)
		}
	case "for":
		name := r.word("")
		r.want("from=")
		from := r.number(r.primary(s))
		r.want("to=")
		to := r.number(r.primary(s))
		r.want("do=")
		body := r.braced()
		for i := from; i <= to; i++ {
			r.do(body, &scope{s, map[string]any{name: i}})
		}
	case "foreach":
		name := r.word("")
		r.want("in=")
		list, _ := r.primary(s).([]any)
		r.want("do=")
		body := r.braced()
		for _, v := range list {
			r.do(body, &scope{s, map[string]any{name: v}})
		}
	case "do":
		body := r.braced()
		err := r.block(body, s)
		switch {
		case r.has("on-error="):
			if other := r.braced(); err != nil {
				r.do(other, s)
			}
		case err != nil:
			panic(err)
		}
	default:
		r.fail("bad command name %s (line 1 column %d)", name, r.at)
	}
}

func (r *running) number(v any) int64 {
	n, err := strconv.ParseInt(text(v), 10, 64)
	if err != nil {
		r.fail("invalid value %v, want a number", v)
	}
	return n
}

// text is a value as it is printed.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case []any:
		var words []string
		for _, e := range v {
			words = append(words, text(e))
		}
		return strings.Join(words, ";")
	}
	return fmt.Sprint(v)
}

// primary is one value.
func (r *running) primary(s *scope) any {
	r.blanks()
	if r.at == len(r.src) {
		r.fail("expected a value")
	}
	switch r.src[r.at] {
	case '"':
		return r.quoted()
	case '$':
		r.at++
		from := r.at
		for r.at < len(r.src) && (r.src[r.at] >= '0' && r.src[r.at] <= '9' || r.src[r.at]|0x20 >= 'a' &&
			r.src[r.at]|0x20 <= 'z') {
			r.at++
		}
		name := r.src[from:r.at]
		held := s.holding(name)
		if held == nil {
			r.fail("syntax error: variable %s is not declared", name)
		}
		return held.vars[name]
	case '[':
		r.at++
		v := r.substitution(s)
		r.want("]")
		return v
	case '(':
		r.at++
		v := r.operand(s)
		r.want(")")
		return v
	}
	switch w := r.word("/"); {
	case w == "true" || w == "false":
		return w == "true"
	default:
		if n, err := strconv.ParseInt(w, 10, 64); err == nil {
			return n
		}
		return w
	}
}

// quoted is a string; a $ in it that is not escaped would be a variable, which no script here has.
func (r *running) quoted() string {
	r.want(`"`)
	var b strings.Builder
	for ; r.at < len(r.src); r.at++ {
		switch c := r.src[r.at]; c {
		case '"':
			r.at++
			return b.String()
		case '$':
			r.fail("syntax error: a variable in a string")
		case '\\':
			r.at++
			escapes := map[byte]byte{'n': '\n', 'r': '\r', 't': '\t', '"': '"', '\\': '\\', '$': '$',
				'_': ' '}
			e, ok := escapes[r.src[r.at]]
			if !ok {
				n, err := strconv.ParseUint(r.src[r.at:min(r.at+2, len(r.src))], 16, 8)
				if err != nil {
					r.fail("syntax error: unknown escape")
				}
				e = byte(n)
				r.at++
			}
			b.WriteByte(e)
		default:
			b.WriteByte(c)
		}
	}
	r.fail("expected closing quote")
	return ""
}

// operand is what stands in round brackets: values between operators of one kind.
func (r *running) operand(s *scope) any {
	v := r.primary(s)
	for {
		switch {
		case r.has("->"):
			list, _ := v.([]any)
			i := r.number(r.primary(s))
			if v = nil; i < int64(len(list)) {
				v = list[i]
			}
		case r.has("="):
			v = text(v) == text(r.primary(s))
		case r.has(">"):
			v = r.number(v) > r.number(r.primary(s))
		case r.has("/ "):
			v = r.number(v) / r.number(r.primary(s))
		case r.has("% "):
			v = r.number(v) % r.number(r.primary(s))
		case r.has(". "):
			v = text(v) + text(r.primary(s))
		default:
			return v
		}
	}
}

// substitution is a command between square brackets.
func (r *running) substitution(s *scope) any {
	if !r.has(":") {
		return r.command(s)
	}
	switch name := r.word(""); name {
	case "len":
		if v := r.primary(s); v != nil {
			if list, ok := v.([]any); ok {
				return int64(len(list))
			}
			return int64(len(text(v)))
		}
		return int64(0)
	case "tostr":
		return text(r.primary(s))
	case "pick":
		t := text(r.primary(s))
		from, to := r.number(r.primary(s)), r.number(r.primary(s))
		return t[min(int(from), len(t)):min(int(to), len(t))]
	case "timestamp":
		return "now"
	case "tonsec":
		if r.primary(s) != "now" {
			r.fail("invalid time")
		}
		return time.Now().UnixNano()
	case "serialize":
		r.want("to=json options=json.no-string-conversion value=")
		b, err := json.Marshal(r.primary(s))
		if err != nil {
			r.fail("%v", err)
		}
		return string(b)
	default:
		r.fail("bad command name %s (line 1 column %d)", name, r.at)
	}
	return nil
}

// command runs one of a menu.
func (r *running) command(s *scope) any {
	from := r.at
	r.want("/")
	r.at--
	path := r.word("/")
	cut := strings.LastIndexByte(path, '/')
	menu, verb := path[:cut], path[cut+1:]
	if _, known := parameters[menu]; !known {
		r.fail("bad command name %s (line 1 column %d)", menu, r.at)
	}
	var bare []any
	values := map[string]string{}
	for {
		r.blanks()
		if r.at == len(r.src) || strings.IndexByte(";\n]})", r.src[r.at]) >= 0 {
			break
		}
		if strings.IndexByte(`"$[(`, r.src[r.at]) >= 0 {
			bare = append(bare, r.primary(s))
			continue
		}
		name := r.word("")
		if r.at < len(r.src) && r.src[r.at] == '=' {
			r.at++
			values[name] = text(r.primary(s))
			continue
		}
		bare = append(bare, name)
	}
	d := r.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if bad := map[bool]string{false: d.broken, true: d.stuck}[r.inside]; bad != "" &&
		strings.Contains(r.src[from:r.at], bad) {
		r.fail("failure: %s is broken", bad)
	}
	return r.run(menu, verb, bare, values, s)
}

func (r *running) run(menu, verb string, bare []any, values map[string]string, s *scope) any {
	d := r.d
	known := func() {
		for name := range values {
			if !slices.Contains(strings.Fields(parameters[menu]), name) {
				r.fail("bad parameter %s (line 1 column %d)", name, r.at)
			}
		}
	}
	matching := func() (out []map[string]string) {
		for _, row := range d.tables[menu] {
			ok := true
			for name, v := range values {
				have := row[name]
				if name == "disabled" || name == "dynamic" {
					have = map[bool]string{true: "yes", false: "no"}[have == "yes" || have == "true"]
				}
				ok = ok && (name == "proplist" || have == v)
			}
			for _, flag := range bare {
				isFlag := flag == "running" || flag == "active"
				ok = ok && (!isFlag || row[flag.(string)] == "true")
			}
			if ok {
				out = append(out, row)
			}
		}
		return out
	}
	chosen := func() (out []map[string]string) {
		if slices.Contains(settings, menu) {
			return d.tables[menu]
		}
		if len(bare) == 0 {
			r.fail("expected item id (line 1 column %d)", r.at)
		}
		ids, isList := bare[0].([]any)
		if !isList {
			ids = []any{bare[0]}
		}
		for _, row := range d.tables[menu] {
			if slices.Contains(ids, any(row[".id"])) {
				out = append(out, row)
			}
		}
		return out
	}
	switch verb {
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
			}
			out = append(out, fields)
		}
		if slices.Contains(settings, menu) {
			return out[0]
		}
		return out
	case "get":
		if slices.Contains(settings, menu) {
			return d.tables[menu][0][text(bare[0])]
		}
		for _, row := range chosen() {
			return row[text(bare[1])]
		}
		r.fail("no such item")
	case "add":
		known()
		row := maps.Clone(values)
		delete(row, "place-before")
		if row["name"] != "" && slices.ContainsFunc(d.tables[menu], func(have map[string]string) bool {
			return have["name"] == row["name"]
		}) {
			r.fail("failure: already have such name")
		}
		d.last++
		row[".id"] = fmt.Sprintf("*%X", d.last)
		for _, of := range [...][2]string{{"timeout", "expires"}, {"interval", "due"}} {
			if t, err := time.ParseDuration(row[of[0]]); err == nil {
				row[of[1]] = (d.uptime + t).String()
			}
		}
		at := slices.IndexFunc(d.tables[menu], func(have map[string]string) bool {
			return have[".id"] == values["place-before"]
		})
		if at < 0 {
			at = len(d.tables[menu])
		}
		d.tables[menu] = slices.Insert(d.tables[menu], at, row)
	case "set":
		known()
		for _, row := range chosen() {
			maps.Copy(row, values)
		}
	case "remove":
		gone := chosen()
		d.tables[menu] = slices.DeleteFunc(d.tables[menu], func(row map[string]string) bool {
			return slices.ContainsFunc(gone, func(g map[string]string) bool { return g[".id"] == row[".id"] })
		})
	case "run":
		at := slices.IndexFunc(d.tables[menu], func(row map[string]string) bool {
			return row["name"] == text(bare[0])
		})
		if at < 0 {
			r.fail("no such item")
		}
		source := d.tables[menu][at]["source"]
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

// printed is a value as :serialize writes it: numbers and flags are not texts.
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
