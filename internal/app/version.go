package app

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Packagers who build without the repository's history set these variables with -ldflags "-X
// PACKAGE.stampedVersion=v1.2.3 -X PACKAGE.stampedRevision=COMMIT", where PACKAGE is the path of this
// package.
var stampedVersion, stampedRevision string

// Version describes this build.
type Version struct {
	Version  string // "" if only the revision is known, "(devel)" if nothing is known
	Revision string // commit hash; "" if unknown
	Modified bool   // built with uncommitted changes
	Go       string
	Platform string
}

// ReadVersion returns the version of this program. This is the stamped version or, without a stamp, the
// version that the Go toolchain recorded.
func ReadVersion() Version {
	info, _ := debug.ReadBuildInfo()
	return versionOf(info, stampedVersion, stampedRevision)
}

// undetermined is the version that the Go toolchain records if it does not know the version.
const undetermined = "(devel)"

// versionOf returns the version that the build information contains (info may be nil). A stamped version
// takes precedence.
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

// String returns one line, such as "chokepoint v1.2.3 (1a2b3c4d5e6f, modified) go1.26 linux/amd64" or,
// without a version, "chokepoint 1a2b3c4d5e6f (modified) go1.26 linux/amd64".
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

// RunVersion returns the program's version in the form in which runs store it.
func RunVersion() string { return strings.TrimPrefix(ReadVersion().String(), "chokepoint ") }

// source returns a version without its last word, which is the platform.
func source(version string) string {
	return strings.TrimRight(version[:strings.LastIndexByte(version, ' ')+1], " ")
}

// short returns the first twelve characters of a hash.
func short(hash string) string { return hash[:min(12, len(hash))] }
