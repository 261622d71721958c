package main

import (
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// version is what the toolchain wrote into the program.
type version struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"` // of the revision
	Modified bool   `json:"modified"`       // built with changes that were not committed
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readVersion() version {
	v := version{Version: "(devel)", Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + unit.Arch(runtime.GOARCH)}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// String is one line: "chokepoint v1.2.3 (1a2b3c4, modified) go1.26 linux/amd64".
func (v version) String() string {
	in := short(v.Revision)
	if v.Modified {
		in = strings.TrimPrefix(in+", modified", ", ")
	}
	if in != "" {
		in = " (" + in + ")"
	}
	return "chokepoint " + v.Version + in + " " + v.Go + " " + v.Platform
}

func newVersionCommand(p *program) *cobra.Command {
	return addJSON(&cobra.Command{
		Use: "version [--json]", Short: "Print which chokepoint this is", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			return p.document(readVersion(), readVersion().String()+"\n")
		},
	}, "print one JSON object")
}
