package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

const (
	programName = "chokepoint"
	agentName   = "chokepoint-agent"
)

// release holds the values that all packages of a release share.
type release struct {
	source  string // root of the source tree
	work    string // directory for intermediate files
	output  string // directory for the packages
	version string // version of the program without "v", such as 1.2.3
	time    time.Time

	host      binary // program for this machine, which generates the manual pages
	built     []binary
	pages     []file
	published []string            // names of the files in output
	licences  map[string][]string // SPDX identifiers of each module
}

// binary is a compiled program.
type binary struct {
	name   string
	target target
	path   string
	info   *debug.BuildInfo
}

// newRelease reads the version and the time of the current commit, and builds the program for this machine.
func newRelease(ctx context.Context, source, work, output string) (*release, error) {
	changed, err := command(ctx, source, nil, "git", "status", "--porcelain")
	if err != nil {
		return nil, err
	}

	if len(changed) > 0 {
		return nil, fmt.Errorf("the source has changes, so no commit describes it: commit or stash them\n%s",
			changed)
	}

	shallow, err := command(ctx, source, nil, "git", "rev-parse", "--is-shallow-repository")
	if err != nil {
		return nil, err
	}

	if string(shallow) != "false\n" {
		return nil, errors.New("the clone is shallow, so tags that its version depends on may be missing: " +
			"git fetch --unshallow --tags")
	}

	stamp, err := command(ctx, source, nil, "git", "log", "-1", "--format=%ct")
	if err != nil {
		return nil, err
	}

	seconds, err := strconv.ParseInt(strings.TrimSpace(string(stamp)), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("read the time of the commit: %w", err)
	}

	r := &release{
		source: source,
		work:   work,
		output: output,
		time:   time.Unix(seconds, 0).UTC(),

		licences: map[string][]string{},
	}
	r.host, err = r.compile(ctx, programName, target{runtime.GOOS, runtime.GOARCH}, "host")
	if err != nil {
		return nil, err
	}

	r.version = strings.TrimPrefix(r.host.info.Main.Version, "v")
	if r.version == "" || r.version == "(devel)" {
		return nil, errors.New("read the version of the program: go build has noted none; is git there?")
	}

	return r, os.MkdirAll(output, 0o755)
}

// path returns the path of an intermediate file.
func (r *release) path(name string) string { return filepath.Join(r.work, name) }

// build compiles a program for a target, unless it is already the program for this machine, and keeps the
// binary.
func (r *release) build(ctx context.Context, name string, t target) error {
	if name == r.host.name && t == r.host.target {
		r.built = append(r.built, r.host)
		return nil
	}

	b, err := r.compile(ctx, name, t, name+"-"+t.name())
	if err != nil {
		return err
	}

	if b.info.Main.Version != r.host.info.Main.Version {
		return fmt.Errorf("build %s for %s: the source has changed meanwhile: leave it alone", name, t)
	}

	r.built = append(r.built, b)
	return nil
}

// compile builds a program without paths of this machine. Go adds the commit, its time and the version.
func (r *release) compile(ctx context.Context, name string, t target, file string) (binary, error) {
	b := binary{
		name:   name,
		target: t,
		path:   r.path(file),
	}
	fmt.Fprintf(os.Stderr, "building %s for %s\n", name, t)
	_, err := command(ctx, r.source, t.environment(), "go", "build", "-trimpath", "-buildvcs=true",
		"-ldflags=-s -w -buildid=", "-o", b.path, "./cmd/"+name)
	if err != nil {
		return b, err
	}

	b.info, err = buildinfo.ReadFile(b.path)
	if err != nil {
		return b, fmt.Errorf("read what %s is made of: %w", b.path, err)
	}

	return b, nil
}

// environment sets all variables that affect the build, so that it does not depend on the user's settings.
// For each architecture, it chooses the oldest variant found in routers and testers.
func (t target) environment() []string {
	return []string{"GOOS=" + t.os, "GOARCH=" + t.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOARM=5",
		"GOMIPS=softfloat", "GORISCV64=rva20u64", "CGO_ENABLED=0", "GOFLAGS=", "GOEXPERIMENT=", "GOWORK=off",
		"GOFIPS140=off"}
}

// command runs a program in a directory and returns its output.
func command(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var messages bytes.Buffer
	cmd.Stderr = &messages
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cmd, err, messages.Bytes())
	}

	return out, nil
}
