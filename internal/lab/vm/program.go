package vm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

const (
	modulePath  = "github.com/chokepoint-lab/chokepoint"
	agentSource = "cmd/chokepoint-agent"
	agentName   = "chokepoint-agent"
)

// GuestProgram finds the program that is the guest's init and agent, or another machine's agent (see
// AgentArches), or makes it: chokepoint-agent-SYSTEM-ARCH or a fitting chokepoint-agent beside this
// executable, as a release has them; else, in this program's source tree or below it, one that is built from
// there, and kept in the cache; else, for the machine's own architecture, this executable itself. say is told
// of what takes time.
func GuestProgram(ctx context.Context, arch, cache string, say func(text string)) (path string, err error) {
	m, err := targetOf(arch)
	if err != nil {
		return "", err
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the guest's program: %w", err)
	}
	released := agentName + "-" + m.goos + "-" + strings.TrimPrefix(arch, m.goos+"-")
	for _, name := range []string{released, agentName} {
		if beside := filepath.Join(filepath.Dir(self), name); checkProgram(beside, arch) == nil {
			return beside, nil
		}
	}
	here, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the guest's program: %w", err)
	}
	if source, ok := sourceTree(here); ok {
		built, err := buildProgram(ctx, m, source, cache, say)
		if err == nil {
			return built, nil
		}
		if !errors.Is(err, host.ErrUnsupported) {
			return "", fmt.Errorf("build the guest's program for %s: %w", arch, err)
		}
	}
	// By this name it is there even if its file was replaced meanwhile.
	if checkProgram("/proc/self/exe", arch) == nil {
		return "/proc/self/exe", nil
	}
	softFloat := ""
	if m.goarch == "mipsle" { // the CPUs of MIPS routers have no floating point unit
		softFloat = " GOMIPS=softfloat"
	}
	return "", check.WithHint(fmt.Errorf("find the guest's program for %s: there is no %s in %s, "+
		"and no source tree to build it from", arch, released, filepath.Dir(self)),
		fmt.Sprintf("put it there; it is made by CGO_ENABLED=0 GOOS=%s GOARCH=%s%s go build -o %s ./%s",
			m.goos, m.goarch, softFloat, released, agentSource))
}

// sourceTree finds the folder of this module that holds dir.
func sourceTree(dir string) (string, bool) {
	for {
		b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil {
			first, _, _ := strings.Cut(string(b), "\n")
			return dir, strings.TrimSpace(first) == "module "+modulePath
		}
		if dir == filepath.Dir(dir) {
			return "", false
		}
		dir = filepath.Dir(dir)
	}
}

// buildProgram builds the agent from its sources, unless the cache has one of the very same.
func buildProgram(ctx context.Context, m machine, source, cache string, say func(text string)) (string,
	error) {
	var parts []string // whatever may become part of the agent
	for _, part := range []string{"go.mod", "go.sum", agentSource, "internal"} {
		parts = append(parts, filepath.Join(source, part))
	}
	key, err := treesKey(func(d fs.DirEntry) bool {
		return d.IsDir() && d.Name() == "testdata" || strings.HasSuffix(d.Name(), "_test.go")
	}, parts...)
	if err == nil {
		err = os.MkdirAll(cache, 0o700)
	}
	if err != nil {
		return "", err
	}
	built := filepath.Join(cache, "agent-"+m.arch+"-"+key)
	if checkProgram(built, m.arch) == nil {
		return built, nil
	}
	work, err := os.CreateTemp(cache, "agent-new-")
	if err != nil {
		return "", err
	}
	work.Close()
	defer os.Remove(work.Name()) // not there any more if all went well
	out, err := filepath.Abs(work.Name())
	if err != nil {
		return "", err
	}
	say("building the guest's program for " + m.arch +
		" from its sources; the first time takes a minute or two")
	_, err = host.Run(ctx, host.Local(), host.Command{
		Path: "go", Args: []string{"build", "-C", source, "-trimpath", "-buildvcs=false", "-ldflags=-s -w",
			"-o", out, "./" + agentSource},
		Env: []string{"GOOS=" + m.goos, "GOARCH=" + m.goarch, "GOMIPS=softfloat", "CGO_ENABLED=0"},
	})
	if err != nil {
		return "", err
	}
	return built, os.Rename(work.Name(), built)
}
