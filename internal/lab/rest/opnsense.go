package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// unneeded are members of answers that tell of the router's owner and whom he meets, or that nobody needs.
var unneeded = []string{"name", "ifname", "intf_description", "id", "public-key", "endpoint", "allowed-ips",
	"headers", "USERNAME", "PID", "THR", "PRI", "NICE", "SIZE", "RES", "STATE", "TIME"}

// reduced leaves those away; the command lines of programs; and of a list of threads those that do nothing,
// but for the idle ones and those that move packets, since a router has hundreds.
func reduced(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = reduced(v[i])
		}
		return slices.DeleteFunc(v, func(each any) bool {
			m, _ := each.(map[string]any)
			command, _ := m["COMMAND"].(string)
			return m["WCPU"] == "0.00%" && !strings.HasPrefix(command, "[idle") &&
				!strings.Contains(command, "_tqg_")
		})
	case map[string]any:
		for key := range v {
			if v[key] = reduced(v[key]); slices.Contains(unneeded, key) {
				delete(v, key)
			}
		}
		if command, ok := v["COMMAND"].(string); ok && !strings.HasPrefix(command, "[") {
			v["COMMAND"] = ""
		}
	}
	return v
}

// get asks OPNsense's API a question, which changes nothing, and returns the answer, reduced, on one line.
func (c *Connection) get(ctx context.Context, path string) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if e, known := c.forbidden.Load(path); known { // the router logs each try
		return nil, e.(error)
	}
	status, data, err := c.ask(ctx, http.MethodGet, "/api/"+path, nil)
	if err == nil && status == http.StatusForbidden { // the privileges of releases before 25.7 name it so
		status, data, err = c.ask(ctx, http.MethodGet, "/api/"+camelCase(path), nil)
	}
	if err != nil {
		return nil, err
	}
	switch e := (&Error{Status: status, Message: path}); status {
	case http.StatusOK:
		if len(bytes.TrimSpace(data)) == 0 { // of a program of the router that failed
			return []byte("null"), nil
		}
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		var v any
		if d.Decode(&v) != nil || d.More() {
			return nil, check.WithHint(fmt.Errorf("%w: %s is answered by %q, want JSON", host.ErrUnsupported,
				path, shorten(string(data))), "is it OPNsense? A router with RouterOS is https://USER@HOST")
		}
		return json.Marshal(reduced(v))
	case http.StatusUnauthorized:
		e.Message = "it does not take this API key"
		return nil, check.WithHint(e, "is it that of "+host.RouterPassword+", or in the lab file's "+
			"password_file? The router shows its keys in System, Access, Users")
	case http.StatusForbidden:
		err := check.WithHint(e, "the key's user lacks a privilege, of those in docs/howto/real-router.md")
		c.forbidden.Store(path, err)
		return nil, err
	case http.StatusNotFound:
		return nil, check.WithHint(fmt.Errorf("%w: %w", host.ErrUnsupported, e),
			"OPNsense 24.7 or later is needed; a router with RouterOS is https://USER@HOST")
	default:
		return nil, e
	}
}

// camelCase writes the command in a path, which is its third part, as OPNsense's controllers call it.
func camelCase(path string) string {
	parts := strings.SplitN(path, "/", 4)
	if len(parts) < 3 {
		return path
	}
	parts[2] = regexp.MustCompile("_.").ReplaceAllStringFunc(parts[2], func(s string) string {
		return strings.ToUpper(s[1:])
	})
	return strings.Join(parts, "/")
}

// answers asks the questions of a line, paths below /api, and returns what is answered, in their order, as a
// JSON array on one line; null where the router refuses one of several.
func (c *Connection) answers(ctx context.Context, line string) (string, error) {
	var all []string
	var refused error
	for _, path := range strings.Fields(line) {
		data, err := c.get(ctx, path)
		if _, answered := errors.AsType[*Error](err); answered {
			refused = errors.Join(refused, err)
			data, err = []byte("null"), nil
		}
		if err != nil {
			return "", err
		}
		all = append(all, string(data))
	}
	if len(all) == 1 && refused != nil {
		return "", refused
	}
	return "[" + strings.Join(all, ",") + "]", nil
}
