package routeros

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// scope holds the variables of a block. A block also sees the variables of enclosing scopes.
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

// running holds the state of a script that is being interpreted.
type running struct {
	d       *Device
	stopped <-chan struct{} // closed when the session ends; nil for the scheduler
	out     io.Writer
	inside  bool // run by the scheduler, so :delay only advances the clock
	src     string
	at      int
}

type consoleError string

func (e consoleError) Error() string { return string(e) }

func (r *running) fail(format string, args ...any) {
	panic(consoleError(fmt.Sprintf(format, args...)))
}

// block runs a script with its own scope.
func (r *running) block(src string, around *scope) (err error) {
	defer func() {
		p := recover()
		if p != nil {
			e, ok := p.(consoleError)
			if !ok {
				panic(p)
			}

			err = e
		}
	}()
	inner := running{d: r.d, stopped: r.stopped, out: r.out, inside: r.inside, src: src}
	inner.statements(&scope{around: around})
	return nil
}

// do is like block, but an error also ends the enclosing block.
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

// declare is the command to declare a variable.
const declare = "local"

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

// braced returns the source between the next pair of braces.
func (r *running) braced() string {
	r.want("{")
	from := r.at
	depth := 1
	quoted := false
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
	select {
	case <-r.stopped:
		r.fail("interrupted")
	default:
	}

	if !strings.HasPrefix(r.src[r.at:], ":") {
		r.command(s)
		return
	}

	r.at++
	switch name := r.word(""); name {
	case "put":
		fmt.Fprintln(r.out, text(r.primary(s)))
	case declare:
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
		r.d.Logged = append(r.d.Logged, topic+": "+message)
		r.d.mu.Unlock()
	case "delay":
		t, err := time.ParseDuration(r.word(""))
		if err != nil {
			r.fail("invalid time")
		}

		if !r.inside {
			select { // the next statement checks stopped
			case <-r.stopped:
			case <-time.After(t / 20):
			}
			return
		}

		r.d.mu.Lock()
		r.d.uptime += t
		r.d.mu.Unlock()
	case "if":
		ok := r.condition(s)
		r.want("do=")
		then := r.braced()
		other := ""
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
			other := r.braced()
			if err != nil {
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

// text formats a value as :put does.
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

// primary parses one value.
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

// quoted parses a string. An unescaped $, which would begin a variable, is an error, because our scripts
// have none in strings.
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

// operand evaluates an expression in parentheses, from left to right.
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

// substitution evaluates a command in square brackets.
func (r *running) substitution(s *scope) any {
	if !r.has(":") {
		return r.command(s)
	}

	switch name := r.word(""); name {
	case "len":
		v := r.primary(s)
		if v != nil {
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
		from := r.number(r.primary(s))
		to := r.number(r.primary(s))
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

// command runs a menu command.
func (r *running) command(s *scope) any {
	from := r.at
	if !r.has("/") {
		r.fail("bad command name %s (line 1 column %d)", r.word("/"), from+1)
	}

	r.at--
	path := r.word("/")
	cut := strings.LastIndexByte(path, '/')
	menu := path[:cut]
	verb := path[cut+1:]
	_, known := parameters[menu]
	if !known {
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
	bad := map[bool]string{false: d.Broken, true: d.Stuck}[r.inside]
	if bad != "" &&
		strings.Contains(r.src[from:r.at], bad) {
		r.fail("failure: %s is broken", bad)
	}

	return r.run(menu, verb, bare, values, s)
}
