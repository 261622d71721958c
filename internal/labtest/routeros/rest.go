package routeros

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// REST is the router's REST API, as far as scripts go, for one user. It answers as RouterOS 7.23 was seen to:
// what the console refuses is an answer like any other (github.com/tikoci/routeros-skills/pull/20), and lines
// end in CR LF (github.com/napalm-automation-community/napalm-ros/pull/165). A script may take as long as
// limit.
func (d *Device) REST(user, password string, limit time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		answer := func(status int, v any) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(v) // who asked may be gone
		}
		refuse := func(status int, detail string) {
			answer(status, map[string]any{"error": status, "message": http.StatusText(status),
				"detail": detail})
		}
		who, secret, _ := q.BasicAuth()
		var asked struct {
			Script   string `json:"script"`
			AsString any    `json:"as-string"`
		}
		switch {
		case who != user || secret != password:
			refuse(http.StatusUnauthorized, "")
			return
		case q.Method != http.MethodPost || q.URL.Path != "/rest/execute":
			refuse(http.StatusNotFound, "no such command or directory")
			return
		case q.Header.Get("Content-Type") != "application/json",
			json.NewDecoder(q.Body).Decode(&asked) != nil:
			refuse(http.StatusBadRequest, "bad JSON")
			return
		case asked.AsString == nil: // then it runs by itself
			answer(http.StatusOK, map[string]string{"ret": "*B546"})
			return
		}
		ctx, cancel := context.WithTimeout(q.Context(), limit)
		defer cancel()
		p, err := d.Start(ctx, host.Command{Path: asked.Script})
		if err != nil {
			refuse(http.StatusInternalServerError, err.Error())
			return
		}
		out, _ := io.ReadAll(p.Stdout()) // of a pipe in memory
		_, _ = p.Wait()
		if ctx.Err() != nil {
			refuse(http.StatusBadRequest, "Session closed")
			return
		}
		answer(http.StatusOK, map[string]string{
			"ret": strings.ReplaceAll(strings.TrimSuffix(string(out), "\n"), "\n", "\r\n")})
	})
}
