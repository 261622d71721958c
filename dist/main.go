// Command dist builds the packages of a release. For the program, which needs Linux, these are a tarball, a
// deb, an rpm and an apk. For the agent, they are a tarball for FreeBSD and macOS, and an ipk for OpenWrt.
// For each, there is a bill of materials. A file contains all checksums. The output depends only on the
// commit and the release of Go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "dist: error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	f := flag.NewFlagSet("dist", flag.ContinueOnError)
	output := f.String("output", "out", "write the packages to this `FOLDER`, from dist/")
	programNames := f.String("programs", "", "package the program for these systems only, `OS/ARCH,…` as Go "+
		"names them")
	agentNames := f.String("agents", "", "build the agent for these systems only, `OS/ARCH,…`")
	key := f.String("sign", "", "sign the checksums with this `KEY` of ssh, or with the one that its agent "+
		"has for this public one")
	if err := f.Parse(args); err != nil {
		return err
	}

	if f.NArg() > 0 {
		return fmt.Errorf("unknown argument %q: see go -C dist run . -help", f.Arg(0))
	}

	programs, err := choose("programs", *programNames, programTargets())
	if err != nil {
		return err
	}

	agents, err := choose("agents", *agentNames, agentTargets())
	if err != nil {
		return err
	}

	work, err := os.MkdirTemp("", "chokepoint-dist-")
	if err != nil {
		return fmt.Errorf("make a folder for what is built: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	r, err := newRelease(ctx, "..", work, *output)
	if err != nil {
		return err
	}

	if err := r.make(ctx, programs, agents); err != nil || *key == "" {
		return err
	}

	return r.sign(ctx, *key)
}

// target is a pair of GOOS and GOARCH.
type target struct{ os, arch string }

func (t target) String() string { return t.os + "/" + t.arch }

// name returns the target for file names, with the architecture as Debian and chokepoint name it.
func (t target) name() string {
	return t.os + "-" + strings.Replace(t.arch, "mipsle", "mipsel", 1)
}

// programTargets returns the targets that the program is packaged for.
func programTargets() []target {
	return []target{{"linux", "amd64"}, {"linux", "arm64"}, {"linux", "riscv64"}}
}

// agentTargets returns the targets that the agent is built for.
func agentTargets() []target {
	return []target{{"linux", "amd64"}, {"linux", "arm64"}, {"linux", "arm"}, {"linux", "mips"},
		{"linux", "mipsle"}, {"linux", "riscv64"}, {"darwin", "amd64"}, {"darwin", "arm64"},
		{"freebsd", "amd64"}, {"freebsd", "arm64"}}
}

// choose returns the targets named by a flag, or all if it is empty.
func choose(flag, names string, all []target) ([]target, error) {
	if names == "" {
		return all, nil
	}

	var chosen []target
	for name := range strings.SplitSeq(names, ",") {
		system, arch, _ := strings.Cut(name, "/")
		t := target{system, arch}
		if !slices.Contains(all, t) {
			return nil, fmt.Errorf("-%s %s: choose from %v", flag, name, all)
		}

		if !slices.Contains(chosen, t) {
			chosen = append(chosen, t)
		}
	}

	return chosen, nil
}

// make builds the program and the agent for the targets, and then the packages.
func (r *release) make(ctx context.Context, programs, agents []target) error {
	for _, t := range agents {
		if err := r.build(ctx, agentName, t); err != nil {
			return err
		}
	}

	for _, t := range programs {
		if err := r.build(ctx, programName, t); err != nil {
			return err
		}
	}

	if err := r.writePages(ctx); err != nil {
		return err
	}

	if err := r.writeLicences(ctx, agentThirdParty, r.built[:len(agents)]...); err != nil {
		return err
	}

	if err := r.writeLicences(ctx, thirdParty, r.built...); err != nil {
		return err
	}

	for _, b := range r.built {
		if err := r.pack(b); err != nil {
			return fmt.Errorf("pack %s for %s: %w", b.name, b.target, err)
		}
	}

	return r.writeSums()
}

// pack builds the packages of a program.
func (r *release) pack(b binary) error {
	bill := r.path(b.name + "-" + b.target.name() + ".cdx.json")
	if err := r.writeBill(bill, b); err != nil {
		return err
	}

	artifact := fmt.Sprintf("%s-%s-%s", b.name, r.version, b.target.name())
	if err := r.publish(artifact+".cdx.json", bill); err != nil {
		return err
	}

	switch {
	case b.name == agentName && b.target.os == "linux":
		return r.packAgent(b, r.agentFiles(b, bill))
	case b.name == agentName:
		return r.tarball(artifact, r.agentFiles(b, bill))
	}

	files := r.files(b, bill)
	if err := r.tarball(artifact, files); err != nil {
		return err
	}

	return r.packProgram(b, files)
}

// agentFiles returns the files in packages of the agent.
func (r *release) agentFiles(b binary, bill string) []file {
	const docs = "share/doc/chokepoint-agent/"
	return []file{
		{"bin/" + agentName, b.path, 0o755},
		{docs + "LICENSE", filepath.Join(r.source, "LICENSE"), 0o644},
		{docs + thirdParty, r.path(agentThirdParty), 0o644},
		{docs + "sbom.cdx.json", bill, 0o644},
	}
}

// files returns the files in packages of the program. They include all agents, because the program installs
// the agent on machines of any architecture.
func (r *release) files(b binary, bill string) []file {
	all := []file{{"bin/" + programName, b.path, 0o755}}
	for _, other := range r.built {
		if other.name == agentName {
			all = append(all, file{"lib/chokepoint/" + filepath.Base(other.path), other.path, 0o755})
		}
	}

	const docs = "share/doc/chokepoint/"
	for _, pattern := range []string{"*.md", "LICENSE", "docs/*.*", "docs/*/*.*"} { // with schemas
		found, _ := filepath.Glob(filepath.Join(r.source, pattern)) // fails only if the pattern is wrong
		for _, name := range found {
			place, _ := strings.CutPrefix(name, r.source+string(filepath.Separator))
			all = append(all, file{docs + filepath.ToSlash(place), name, 0o644})
		}
	}

	for _, service := range []string{"chokepoint-peer.service", "chokepoint-bed@.service"} {
		all = append(all, file{"lib/systemd/system/" + service, filepath.Join("files", service), 0o644})
	}

	return append(append(all, r.pages...),
		file{docs + thirdParty, r.path(thirdParty), 0o644},
		file{docs + "sbom.cdx.json", bill, 0o644})
}
