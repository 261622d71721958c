package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// module is the program's module, which bench replaces by the directory above.
const module = "github.com/chokepoint-lab/chokepoint"

// Program is a chokepoint started as a user starts it, with its own directories in Dir: bin, home, data,
// state, run, tmp, config and cache.
type Program struct {
	Path, Dir string
	UID       int
}

// NewProgram makes the directories in dir, and copies the program there, so that its processes are
// distinguishable from all others. It also copies the agent beside the program. Without a path it builds the
// program from the source here.
func NewProgram(dir, path string, uid int) (Program, error) {
	p, err := Folders(dir, uid)
	if err != nil {
		return p, err
	}

	if path == "" {
		return p, errors.Join(Build(p.Path, "cmd/chokepoint"), Build(p.Path+"-agent", "cmd/chokepoint-agent"))
	}

	err = CopyFile(filepath.Join(filepath.Dir(path), "chokepoint-agent"), p.Path+"-agent", 0o755)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // the program itself serves
	}

	return p, errors.Join(err, CopyFile(path, p.Path, 0o755))
}

// Folders makes the directories of a program that is put at its path later.
func Folders(dir string, uid int) (Program, error) {
	p := Program{filepath.Join(dir, "bin", "chokepoint"), dir, uid}
	for _, d := range []string{"", "bin", "home", "data", "state", "run", "tmp", "config", "cache"} {
		if err := errors.Join(os.MkdirAll(p.At(d), 0o700), os.Chown(p.At(d), uid, -1)); err != nil {
			return p, err
		}
	}
	return p, nil
}

// Build builds a package of this repository, such as "cmd/chokepoint", in its module. Guests have no C
// library, so it is linked without one; otherwise as a release is, which other builds have compiled.
func Build(to, pkg string, flags ...string) error {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return fmt.Errorf("find the source of %s: %w", module, err)
	}

	to, err = filepath.Abs(to)
	if err != nil {
		return err
	}

	args := slices.Concat([]string{"build", "-trimpath", "-buildvcs=false", "-o", to}, flags, []string{"."})
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.Join(strings.TrimSpace(string(root)), pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %v\n%s", pkg, err, said)
	}

	return os.Chmod(to, 0o755)
}

// At returns the path of a name in the program's directories.
func (p Program) At(name string) string { return filepath.Join(p.Dir, name) }

// Command returns a command line of the program, whose environment contains nothing of this machine's user
// except the search path.
func (p Program) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.Path, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.At("home"), "TMPDIR=" + p.At("tmp"),
		"XDG_DATA_HOME=" + p.At("data"), "XDG_STATE_HOME=" + p.At("state"), "XDG_RUNTIME_DIR=" + p.At("run"),
		"XDG_CONFIG_HOME=" + p.At("config"), "XDG_CACHE_HOME=" + p.At("cache")}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.UID != os.Geteuid() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(p.UID), Gid: uint32(p.UID)}
	}

	return cmd
}

// Say runs a short command of the program and returns its output.
func (p Program) Say(ctx context.Context, args ...string) (string, error) {
	cmd := p.Command(ctx, args...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("chokepoint %s: %w: %s%s", strings.Join(args, " "), err, said.String(),
			out)
	}

	return string(out), nil
}

// CopyFile copies a file.
func CopyFile(from, to string, mode os.FileMode) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, mode)
}

// LabUp brings up a lab and returns its name; cpus is for a virtual router, 0 for others.
func (p Program) LabUp(ctx context.Context, topology, kind string, cpus int) (id string, err error) {
	args := []string{"lab", "up", topology, "--lab", kind, "--json"}
	if cpus > 0 {
		args = append(args, "--cpus", strconv.Itoa(cpus))
	}

	said, err := p.Say(ctx, args...)
	if err != nil {
		return "", err
	}

	var up struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal([]byte(said), &up); err != nil {
		return "", fmt.Errorf("read what lab up said: %w", err)
	}

	return up.ID, nil
}
