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
	agentFolder = "../lib/chokepoint" // of installed agents, from the folder of the program
)

// GuestProgram finds the program that is the guest's init and agent, or another machine's agent (see
// AgentArches), or makes it: chokepoint-agent-SYSTEM-ARCH or a fitting chokepoint-agent beside this
// executable; else chokepoint-agent-SYSTEM-ARCH in ../lib/chokepoint, where packages have them; else one that
// is built from source, a tree of this module such as OwnSource, and kept in the cache; else, for the
// machine's own architecture, this executable itself. What others can change is neither used nor built: it
// runs as root, here and on other machines. say is called before steps that take time.
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

	// It exists under this name even if its file was replaced meanwhile.
	if checkProgram("/proc/self/exe", arch) == nil {
		return "/proc/self/exe", nil
	}

	variant := "" // of the oldest CPUs of routers: those of MIPS have no floating point unit
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

// fittingProgram finds the first of some programs that a machine can start; their names start from a folder.
// unfit is why the first one that is there is none, nil if none is there.
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

// OwnSource returns the source tree that this program was built from, as recorded by the compiler, "" if it
// was not recorded (-trimpath) or the tree is gone.
func OwnSource() string {
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) {
		return ""
	}
	return SourceTree(filepath.Dir(file))
}

// SourceTree returns the directory of this module that contains dir, "" if none does.
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

// notBuilt selects the files of a source tree that do not become part of a program.
func notBuilt(d fs.DirEntry) bool {
	return d.IsDir() && d.Name() == "testdata" || strings.HasSuffix(d.Name(), "_test.go")
}

// buildProgram builds the agent from its sources, unless the cache has a build of exactly these sources.
func buildProgram(ctx context.Context, m machine, source, cache string, say func(text string)) (string,
	error) {
	var parts []string // everything that may become part of the agent
	for _, part := range []string{"go.mod", "go.sum", agentSource, "internal"} {
		parts = append(parts, filepath.Join(source, part))
	}

	var key string
	var err error
	for _, part := range parts {
		if err == nil {
			err = host.TrustedTree(part, notBuilt)
		}
	}

	if err == nil {
		key, err = treesKey(notBuilt, parts...)
	}

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
	defer os.Remove(work.Name()) // gone if all went well
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
