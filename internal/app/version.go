package app

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Whoever builds without the repository's history stamps these by -ldflags "-X PACKAGE.stampedVersion=v1.2.3
// -X PACKAGE.stampedRevision=COMMIT", where PACKAGE is this package's path.
var stampedVersion, stampedRevision string

// Version describes this build.
type Version struct {
	Version  string // "" if only the revision is known, "(devel)" if neither is
	Revision string // the commit; "" if it is not known
	Modified bool   // built with changes that were not committed
	Go       string
	Platform string
}

// ReadVersion returns the version of this program: what was stamped into it, else what the toolchain knows.
func ReadVersion() Version {
	info, _ := debug.ReadBuildInfo()
	return versionOf(info, stampedVersion, stampedRevision)
}

// undetermined stands in place of a version that the toolchain does not know.
const undetermined = "(devel)"

// versionOf reads a version from what the toolchain wrote into a program, which is nil if it wrote nothing. A
// stamp goes before it.
func versionOf(info *debug.BuildInfo, version, revision string) Version {
	v := Version{
		Version:  version,
		Revision: revision,
		Go:       runtime.Version(),
		Platform: runtime.GOOS + "/" + unit.Arch(runtime.GOARCH),
	}
	if info != nil {
		if info.Main.Version != undetermined {
			v.Version = cmp.Or(v.Version, info.Main.Version)
		}

		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Revision = cmp.Or(v.Revision, s.Value)
			case "vcs.modified":
				v.Modified = s.Value == "true"
			}
		}
	}

	if v.Version == "" && v.Revision == "" {
		v.Version = undetermined
	}

	return v
}

// String returns one line: "chokepoint v1.2.3 (1a2b3c4d5e6f, modified) go1.26 linux/amd64", or without a
// version "chokepoint 1a2b3c4d5e6f (modified) go1.26 linux/amd64".
func (v Version) String() string {
	name := cmp.Or(v.Version, short(v.Revision))
	var in []string
	if v.Version != "" && v.Revision != "" {
		in = append(in, short(v.Revision))
	}

	if v.Modified {
		in = append(in, "modified")
	}

	if len(in) > 0 {
		name += " (" + strings.Join(in, ", ") + ")"
	}

	return "chokepoint " + name + " " + v.Go + " " + v.Platform
}

// RunVersion returns the program's version as runs keep it.
func RunVersion() string { return strings.TrimPrefix(ReadVersion().String(), "chokepoint ") }

// source returns a version without its last word, the system that it was built for.
func source(version string) string {
	return strings.TrimRight(version[:strings.LastIndexByte(version, ' ')+1], " ")
}

// short returns the beginning of a hash.
func short(hash string) string { return hash[:min(12, len(hash))] }
