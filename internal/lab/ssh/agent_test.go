package ssh

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// TestPutOverALostConnection: a connection that breaks while the agent is put there says nothing of what the
// machine runs; a machine that has no place for it does.
func TestPutOverALostConnection(t *testing.T) {
	for _, tt := range []struct {
		name, ssh string
		want      error
	}{
		{"lost", "exit 255", host.ErrUnreachable},
		{"no place", "exec head -c 1 >/dev/null", host.ErrUnsupported},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			program := filepath.Join(dir, "ssh")
			must(t, os.WriteFile(program, []byte("#!/bin/sh\n"+tt.ssh+"\n"), 0o700))
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			c := unconnected(t, dir)
			_, err := c.put(t.Context(), program)
			for _, is := range []error{host.ErrUnreachable, host.ErrUnsupported} {
				if errors.Is(err, is) != (is == tt.want) {
					t.Errorf("put: got %v, want %v alone", err, tt.want)
				}
			}
		})
	}
}

func TestAgentArch(t *testing.T) {
	for _, tt := range []struct{ system, arch, want string }{
		{"Linux", "aarch64", "arm64"},
		{"FreeBSD", "amd64", "freebsd-amd64"},
		{"FreeBSD", "arm64", "freebsd-arm64"},
		{"Darwin", "arm64", "darwin-arm64"},
		{"Darwin", "x86_64", "darwin-amd64"},
		{"FreeBSD", "riscv64", ""},
		{"OpenBSD", "amd64", ""},
		{RouterOS, "arm64", ""},
	} {
		c := &Connection{Facts: Facts{System: tt.system, Arch: tt.arch}}
		got, err := c.AgentArch(t.Context())
		if got != tt.want || errors.Is(err, host.ErrUnsupported) != (tt.want == "") {
			t.Errorf("%s on %s: got %q, %v; want %q", tt.system, tt.arch, got, err, tt.want)
		}
	}
}
