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

// RunVersion returns the version of this program in the form in which runs store it, such as "v1.2.3
// (1a2b3c4d5e6f, modified) go1.26 linux/amd64" or, without a version, "1a2b3c4d5e6f (modified) go1.26
// linux/amd64".
func RunVersion() string {
	info, _ := debug.ReadBuildInfo()
	return versionOf(info, stampedVersion, stampedRevision) + " " + runtime.Version() + " " + runtime.GOOS +
		"/" + unit.Arch(runtime.GOARCH)
}

// undetermined is the version that the Go toolchain records if it does not know the version.
const undetermined = "(devel)"

// versionOf returns the version and the revision that the build information contains (info may be nil). A
// stamped version takes precedence.
func versionOf(info *debug.BuildInfo, version, revision string) string {
	modified := false // built with uncommitted changes
	if info != nil {
		if info.Main.Version != undetermined {
			version = cmp.Or(version, info.Main.Version)
		}

		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				revision = cmp.Or(revision, s.Value)
			case "vcs.modified":
				modified = s.Value == "true"
			}
		}
	}

	revision = short(revision)
	name := cmp.Or(version, revision, undetermined)
	var in []string
	if version != "" && revision != "" {
		in = append(in, revision)
	}

	if modified {
		in = append(in, "modified")
	}

	if len(in) > 0 {
		name += " (" + strings.Join(in, ", ") + ")"
	}

	return name
}

// source returns a version without its last word, which is the platform.
func source(version string) string {
	return strings.TrimRight(version[:strings.LastIndexByte(version, ' ')+1], " ")
}

// short returns the first twelve characters of a hash.
func short(hash string) string { return hash[:min(12, len(hash))] }
