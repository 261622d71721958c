package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
)

// console is a connection without input.
type console struct{ bytes.Buffer }

func (*console) Read([]byte) (int, error) { panic("nothing reads here") }
func (*console) Close() error             { return nil }

func TestCommands(t *testing.T) {
	tests := []struct {
		args          string
		code          int
		out, messages string
	}{
		{"", 2, "", "no command"},
		{"frob", 2, "", `unknown command "frob"`},
		{"--help", 0, "USAGE", ""},
		{"version", 0, "chokepoint-agent ", ""},
		{"probe --frob", 2, "", "frob"},
		{"probe --interval 0s", 2, "", "not possible"},
		{"probe --count -1", 2, "", "not possible"},
		{"probe frob", 2, "", `no source "frob"; there are cpu`},
		{"probe", 0, "cpu        host  yes", ""},
		{"probe cpu netdev", 0, "netdev     node  yes", ""},
		{"environment", 0, `"kernel"`, ""},
		{"environment now", 2, "", `got "now"`},
		{"agent now", 2, "", `got ["now"]`},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			var out console
			var messages strings.Builder
			code := run(t.Context(), strings.Fields(tt.args), &out, &messages)
			if code != tt.code {
				t.Errorf("exit code: got %d, want %d (%s)", code, tt.code, messages.String())
			}

			if !strings.Contains(out.String(), tt.out) || tt.out == "" && out.Len() > 0 {
				t.Errorf("output: got %q, want %q in it", out.String(), tt.out)
			}

			if !strings.Contains(messages.String(), tt.messages) || tt.messages == "" && messages.Len() > 0 {
				t.Errorf("messages: got %q, want %q in it", messages.String(), tt.messages)
			}

			if code == codeUsage && !strings.Contains(messages.String(), "\nhint: ") {
				t.Errorf("messages: got %q, want a hint", messages.String())
			}
		})
	}
}

// TestProbeJSON samples the clock of this machine's cores, which never stops, and checks what
// docs/reference/agent-protocol.md says of the lines.
func TestProbeJSON(t *testing.T) {
	var out console
	var messages strings.Builder
	args := []string{"probe", "--json", "--interval", "50ms", "--count", "3", "cpu", "netdev"}
	code := run(t.Context(), args, &out, &messages)
	if code != 0 {
		t.Fatalf("exit code: got %d, want 0: %s", code, messages.String())
	}

	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := `{"format":"chokepoint-probe/1","at_ns":`
	if !strings.HasPrefix(lines[0], want) ||
		!strings.Contains(lines[0], `,"realtime_ns":`) {
		t.Errorf("first line: got %s, want %s…, and the wall clock", lines[0], want)
	}

	var idle []float64
	for _, line := range lines[1:] {
		var sample struct {
			At     int64 `json:"at_ns"`
			Probe  string
			Scope  string
			Values map[string]*float64
		}
		if err := json.Unmarshal([]byte(line), &sample); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}

		if sample.At <= 0 || sample.Scope == "" || len(sample.Values) == 0 {
			t.Errorf("sample: got %s, want time, scope and values", line)
		}

		v := sample.Values["cpu0/idle_ns"]
		if v != nil {
			idle = append(idle, *v)
		}
	}

	if len(lines) != 7 || len(idle) != 3 || !slices.IsSorted(idle) {
		t.Errorf("got %d lines and idle times %v, want 7 and three that grow", len(lines), idle)
	}
}

func TestProbeStopsWhenInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var out console
	var messages strings.Builder
	began := time.Now()
	code := run(ctx, []string{"probe", "--json", "cpu"}, &out, &messages)
	if code != codeOK {
		t.Errorf("exit code: got %d, want 0: %s", code, messages.String())
	}

	took := time.Since(began)
	if took > 5*time.Second {
		t.Errorf("it took %s to stop, want no more than the signal needs", took)
	}
}

// TestAgentServesItsFamilies speaks to the agent as a controller does: a verb of a family, a verb that does
// not exist, and the end of the connection.
func TestAgentServesItsFamilies(t *testing.T) {
	near, far := net.Pipe()
	ended := make(chan int, 1)
	var messages strings.Builder
	go func() { ended <- run(t.Context(), []string{agent.Role}, far, &messages) }()
	a := host.Connect(near)
	var e record.Environment
	if err := a.Invoke(t.Context(), probe.VerbEnvironment, struct{}{}, &e); err != nil ||
		e.Facts["kernel"] == "" {
		t.Errorf("environment: got %v and %v, want a kernel", e.Facts, err)
	}

	if err := a.Invoke(t.Context(), "probe/frob", struct{}{}, nil); err == nil ||
		!strings.Contains(err.Error(), "unknown verb") {
		t.Errorf("unknown verb: got %v, want its name", err)
	}

	if err := a.Close(); err != nil {
		t.Errorf("close: got %v, want nil", err)
	}

	code := <-ended
	if code != codeOK {
		t.Errorf("agent: got exit code %d, want 0: %s", code, messages.String())
	}
}

// TestEveryFamilyIsServed: the verbs that docs/reference/agent-protocol.md speaks of exist.
func TestEveryFamilyIsServed(t *testing.T) {
	parts := node.Parts()
	if len(parts.Knobs) == 0 {
		t.Error("knobs: got none")
	}

	for _, verb := range []string{"probe/watch", "probe/environment"} {
		if parts.Handlers[verb] == nil {
			t.Errorf("verb %s: got no handler in the agent, want one", verb)
		}
	}

	for _, verb := range []string{"traffic/native", "tunnel/wireguard"} {
		if parts.Isolated[verb] == nil {
			t.Errorf("verb %s: got no handler in a child, want one", verb)
		}
	}
}
