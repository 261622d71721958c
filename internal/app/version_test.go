package app

import (
	"runtime/debug"
	"testing"
)

// TestVersion: a build names its version and commit, from a stamp or from the toolchain, and says (devel)
// only if it knows neither.
func TestVersion(t *testing.T) {
	const commit = "8b667f552c3a0123456789012345678901234567"
	build := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	revision := debug.BuildSetting{Key: "vcs.revision", Value: commit}
	modified := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for _, tt := range []struct {
		name              string
		info              *debug.BuildInfo
		version, revision string
		want              string
	}{
		{"a release", build("v1.2.3", revision), "", "", "chokepoint v1.2.3 (8b667f552c3a)"},
		{"a tree with changes", build("(devel)", revision, modified), "", "",
			"chokepoint 8b667f552c3a (modified)"},
		{"a package", build("(devel)"), "v1.2.3", commit, "chokepoint v1.2.3 (8b667f552c3a)"},
		{"a stamped commit", build("(devel)"), "", commit, "chokepoint 8b667f552c3a"},
		{"a stamp over the toolchain", build("v0.0.0", revision), "v1.2.3", "", "chokepoint v1.2.3 (8b667f552c3a)"},
		{"neither", build("(devel)"), "", "", "chokepoint (devel)"},
		{"nothing at all", nil, "", "", "chokepoint (devel)"},
	} {
		got := "chokepoint " + versionOf(tt.info, tt.version, tt.revision)
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
