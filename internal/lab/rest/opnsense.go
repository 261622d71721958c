package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// ofOwner are members of answers that tell of the router's owner and whom he meets, which nobody here needs.
var ofOwner = []string{"name", "ifname", "intf_description", "id", "public-key", "endpoint", "allowed-ips"}

// impersonal leaves those away.
func impersonal(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = impersonal(v[i])
		}
	case map[string]any:
		for key := range v {
			if v[key] = impersonal(v[key]); slices.Contains(ofOwner, key) {
				delete(v, key)
			}
		}
	}
	return v
}

// get asks OPNsense's API a question, which changes nothing, and returns the answer, on one line and without
// names and keys.
func (c *Connection) get(ctx context.Context, path string) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	status, data, err := c.ask(ctx, http.MethodGet, "/api/"+path, nil)
	if err != nil {
		return nil, err
	}
	switch e := (&Error{Status: status, Message: path}); status {
	case http.StatusOK:
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		var v any
		if d.Decode(&v) != nil || d.More() {
			return nil, check.WithHint(fmt.Errorf("%w: %s is answered by %q, want JSON", host.ErrUnsupported,
				path, shorten(string(data))), "is it OPNsense? A router with RouterOS is https://USER@HOST")
		}
		return json.Marshal(impersonal(v))
	case http.StatusUnauthorized:
		e.Message = "it does not take this API key"
		return nil, check.WithHint(e, "is it that of "+host.RouterPassword+", or in the lab file's "+
			"password_file? The router shows its keys in System, Access, Users")
	case http.StatusForbidden:
		return nil, check.WithHint(e, "the key's user lacks a privilege: see the router's page in the guide")
	case http.StatusNotFound:
		return nil, check.WithHint(fmt.Errorf("%w: %w", host.ErrUnsupported, e),
			"OPNsense 24.7 or later is needed; a router with RouterOS is https://USER@HOST")
	default:
		return nil, e
	}
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
