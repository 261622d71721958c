package vm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

const (
	modulePath  = "github.com/chokepoint-lab/chokepoint"
	agentSource = "cmd/chokepoint-agent"
	agentName   = "chokepoint-agent"
	agentFolder = "../lib/chokepoint" // directory of installed agents, relative to this program's
)

// GuestProgram returns the path of the program that a guest runs as init and agent, or of the agent for
// another machine (see AgentArches). It tries, in this order:
//
//   - chokepoint-agent-SYSTEM-ARCH, or a suitable chokepoint-agent, next to this executable
//   - chokepoint-agent-SYSTEM-ARCH in ../lib/chokepoint, where packages install it
//   - an agent built from a tree of this module, if source is the path of one (see OwnSource); cached
//   - this executable, if arch is the architecture of this machine
//
// Because the program runs as root, both here and on other machines, GuestProgram neither uses nor builds
// files that others can change. It calls say before steps that take time.
func GuestProgram(ctx context.Context, arch, cache, source string, say func(text string)) (path string,
	err error) {
	m, err := targetOf(arch)
	if err != nil {
		return "", err
	}

	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the guest's program: %w", err)
	}

	released := agentName + "-" + m.goos + "-" + strings.TrimPrefix(arch, m.goos+"-")
	beside := filepath.Dir(self)
	installed := filepath.Join(agentFolder, released)
	path, unfit := fittingProgram(beside, arch, released, agentName, installed)
	if path != "" {
		return path, nil
	}

	none := errors.New("no source tree of this program's to build it from")
	if source != "" {
		built, err := buildProgram(ctx, m, source, cache, say)
		if err == nil {
			return built, nil
		}

		if !errors.Is(err, host.ErrUnsupported) {
			return "", fmt.Errorf("build the guest's program for %s: %w", arch, err)
		}

		none = err
	}

	// This path is valid even if the file of the executable was replaced.
	if checkProgram("/proc/self/exe", arch) == nil {
		return "/proc/self/exe", nil
	}

	variant := "" // option for the oldest routers, which have ARMv5, or MIPS without an FPU
	switch m.goarch {
	case "arm":
		variant = " GOARM=5"
	case "mips", "mipsle":
		variant = " GOMIPS=softfloat"
	}

	if unfit == nil {
		unfit = fmt.Errorf("there is no %s in %s or %s", released, beside, filepath.Join(beside, agentFolder))
	}

	return "", check.WithHint(fmt.Errorf("find the guest's program for %s: %w, and %w", arch, unfit, none),
		fmt.Sprintf("packages have it; or put %s there, made by CGO_ENABLED=0 GOOS=%s GOARCH=%s%s go build "+
			"-o %s ./%s",
			released, m.goos, m.goarch, variant, released, agentSource))
}

// fittingProgram returns the path of the first program in names, relative to folder, that the machine can
// run. If no program fits, unfit is the reason why the first existing program does not, or nil if none
// exists.
func fittingProgram(folder, arch string, names ...string) (path string, unfit error) {
	for _, name := range names {
		path := filepath.Join(folder, name)
		f, err := host.OpenTrusted(path)
		if err == nil {
			f.Close()
			err = checkProgram(path, arch)
		}

		switch {
		case err == nil:
			return path, nil
		case unfit == nil && !errors.Is(err, fs.ErrNotExist):
			unfit = fmt.Errorf("%s is there, but cannot be used: %w", path, err)
		}
	}
	return "", unfit
}

// OwnSource returns the source tree from which this program was built. It returns "" if the compiler did not
// record the path (-trimpath) or if the tree no longer exists.
func OwnSource() string {
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) {
		return ""
	}
	return SourceTree(filepath.Dir(file))
}

// SourceTree returns the root directory of this module if dir is in it, and "" otherwise.
func SourceTree(dir string) string {
	for {
		b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil {
			first, _, _ := strings.Cut(string(b), "\n")
			if strings.TrimSpace(first) != "module "+modulePath {
				return ""
			}
			return dir
		}

		if dir == filepath.Dir(dir) {
			return ""
		}

		dir = filepath.Dir(dir)
	}
}

// notBuilt reports whether an entry of a source tree is not part of any program.
func notBuilt(d fs.DirEntry) bool {
	return d.IsDir() && d.Name() == "testdata" || strings.HasSuffix(d.Name(), "_test.go")
}

// buildProgram builds the agent from source. If the source has not changed, it returns the cached build.
func buildProgram(ctx context.Context, m machine, source, cache string, say func(text string)) (string,
	error) {
	var parts []string // everything from which the agent may be built
	for _, name := range []string{"go.mod", "go.sum", agentSource, "internal"} {
		part := filepath.Join(source, name)
		if err := host.TrustedTree(part, notBuilt); err != nil {
			return "", err
		}

		parts = append(parts, part)
	}

	key, err := treesKey(notBuilt, parts...)
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
	defer os.Remove(work.Name()) // fails, without harm, if the file was renamed
	out, err := filepath.Abs(work.Name())
	if err != nil {
		return "", err
	}

	say("building the guest's program for " + m.arch +
		" from its sources; the first time takes a minute or two")
	_, err = host.Run(ctx, host.Local(), host.Command{
		Path: "go",
		Args: []string{"build", "-C", source, "-buildvcs=false", "-ldflags=-s -w", "-o", out,
			"./" + agentSource},
		Env: []string{"GOOS=" + m.goos, "GOARCH=" + m.goarch, "GOARM=5", "GOMIPS=softfloat",
			"CGO_ENABLED=0", "GOWORK=off"},
	})
	if err != nil {
		return "", err
	}

	return built, os.Rename(work.Name(), built)
}
