package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

const ownKernel = "give a kernel and its modules: --kernel FILE --modules DIR"

// apt is a private root directory for apt-get. It contains package lists and packages for one architecture,
// which are downloaded from the sources that the machine itself uses. It changes nothing else on the machine
// and requires no privileges.
type apt struct {
	dir     string // path CACHE/apt-ARCH
	etc     string // configuration of the machine, usually /etc/apt
	machine machine
	say     func(format string, args ...any)
}

// aptItem is a package in the result of resolving dependencies.
type aptItem struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Arch    string `json:"arch"` // Debian's name of the architecture, or "all"
}

// file returns the name of the package's file in the archive directory.
func (i aptItem) file() string {
	return fmt.Sprintf("%s_%s_%s.deb", i.Name, strings.ReplaceAll(i.Version, ":", "%3a"), i.Arch)
}

// present lists packages that other packages need only for their installation scripts, which are never run.
// They are declared as installed, so that neither they nor their dependencies are downloaded. This halves the
// size of the download.
var present = strings.Fields(`
	adduser base-files base-passwd coreutils cpio debconf debianutils dpkg dracut init-system-helpers
	initramfs-tools kmod libc-bin linux-base linux-firmware linux-initramfs-tool login lsb-base passwd perl
	perl-base sensible-utils systemd sysvinit-utils tar ucf udev usrmerge util-linux wireless-regdb
`)

// prepare writes the configuration. apt reads it after the configuration of the machine, so that proxies and
// pins of the machine remain in effect. It disables the machine's hooks, because they would clean the
// machine's own package cache.
func (a apt) prepare() error {
	for _, d := range []string{"state/lists/partial", "cache/archives/partial", "sources"} {
		if err := os.MkdirAll(filepath.Join(a.dir, d), 0o700); err != nil {
			return err
		}
	}

	var status strings.Builder
	for _, name := range present {
		fmt.Fprintf(&status, "Package: %s\nStatus: install ok installed\nMaintainer: none\nArchitecture: "+
			"%s\nMulti-Arch: foreign\nVersion: 9999:1\nDescription: declared, not installed\n\n", name,
			a.machine.arch)
	}

	return errors.Join(writeAll(a.dir, map[string]string{"status": status.String(), "apt.conf": a.config()}),
		a.copySources())
}

func writeAll(dir string, files map[string]string) error {
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (a apt) config() string {
	return fmt.Sprintf(`#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Pre-Invoke;
#clear DPkg::Post-Invoke;
#clear DPkg::Pre-Install-Pkgs;
#clear APT::Architectures;
APT::Architecture "%[1]s";
APT::Architectures { "%[1]s"; };
APT::Install-Recommends "false";
APT::Install-Suggests "false";
APT::Keep-Downloaded-Packages "true";
APT::Get::Assume-Yes "true";
Dir::State "%[2]s/state";
Dir::State::status "%[2]s/status";
Dir::Cache "%[2]s/cache";
Dir::Log "%[2]s";
Dir::Etc::sourcelist "%[2]s/sources/sources.list";
Dir::Etc::sourceparts "%[2]s/sources";
APT::Update::Error-Mode "any";
Acquire::Languages "none";
Acquire::ForceHash "SHA256";
Acquire::Retries "1";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::CNF::DefaultEnabled "false";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
Acquire::IndexTargets::deb-src::Sources::DefaultEnabled "false";
`, a.machine.arch, a.dir)
}

// exists returns an error if apt-get or dpkg-deb is not installed.
func (a apt) exists(ctx context.Context) error {
	for _, program := range []string{"apt-get", "dpkg-deb"} {
		_, err := host.Output(ctx, program, "--version")
		if errors.Is(err, host.ErrUnsupported) {
			return check.WithHint(fmt.Errorf("take packages of the distribution: %w: this machine has no "+
				"%s, so it is not like Debian", host.ErrUnsupported, program), ownKernel)
		}

		if err != nil {
			return err
		}
	}
	return nil
}

const lockTime = time.Minute // time that the apt-get of a killed build may still run

// run executes apt-get or apt-cache with the private root directory. start contains the program and its first
// arguments. run waits up to lockTime for the lock of apt.
func (a apt) run(ctx context.Context, start string, args ...string) (string, error) {
	program, first, _ := strings.Cut(start, " ")
	own := []string{"-c", filepath.Join(a.dir, "apt.conf"), "-q"}
	command := host.Command{
		Path: program,
		Args: slices.Concat(own, strings.Fields(first), args),
		Env:  []string{"LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"},
	}
	for began := time.Now(); ; {
		out, err := host.Run(ctx, host.Local(), command)
		if err == nil {
			return string(out), nil
		}

		if !strings.Contains(err.Error(), "Could not get lock") || time.Since(began) > lockTime {
			return string(out), &oneLine{err}
		}

		if err := host.Pause(ctx, 200*time.Millisecond); err != nil {
			return "", fmt.Errorf("run %s: %w", program, err)
		}
	}
}

type oneLine struct{ error } // an error whose text is on one line

func (e *oneLine) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }
func (e *oneLine) Unwrap() error { return e.error }

const listsAge = 24 * time.Hour // maximum age of package lists

// update downloads the package lists. It returns an error if any source fails. The caller may ignore this
// error if the other sources contain the packages.
func (a apt) update(ctx context.Context) error {
	a.say("fetching the package lists for %s", a.machine.arch)
	if err := a.fetch(ctx, "Dir::State::lists", "state/lists", "update"); err != nil {
		if ctx.Err() != nil {
			return err
		}
		return check.WithHint(fmt.Errorf("fetch the package lists: %w", err),
			"check the network and apt's sources, or "+ownKernel)
	}
	return writeWhole(a.stamp(), []byte(a.sourcesKey()))
}

// stamp returns the path of the file that records from which sources the package lists were downloaded. Its
// modification time is the time of the download.
func (a apt) stamp() string { return filepath.Join(a.dir, "updated") }

func (a apt) listsAreFresh(now time.Time) bool {
	info, err := os.Stat(a.stamp())
	sources, _ := os.ReadFile(a.stamp())
	return err == nil && now.Sub(info.ModTime()) < listsAge && string(sources) == a.sourcesKey()
}

// candidates returns the given names whose packages can be installed.
func (a apt) candidates(ctx context.Context, names ...string) ([]string, error) {
	out, err := a.run(ctx, "apt-cache policy", names...)
	if err != nil {
		return nil, fmt.Errorf("look for packages: %w", err)
	}
	return parsePolicy(out), nil
}

// parsePolicy parses the output of apt-cache policy, which consists of a line "NAME:" and indented lines such
// as "Candidate: VERSION" for each package.
func parsePolicy(out string) []string {
	var names []string
	name := ""
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\n")
		if n, ok := strings.CutSuffix(line, ":"); ok && !strings.HasPrefix(line, " ") {
			name = n
		}

		version, ok := strings.CutPrefix(line, "  Candidate: ")
		if ok && name != "" && version != "(none)" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}

	return names
}

// resolve returns the packages to install: the named packages and their dependencies.
func (a apt) resolve(ctx context.Context, names []string) ([]aptItem, error) {
	out, err := a.run(ctx, "apt-get --simulate install", names...)
	if err != nil {
		return nil, fmt.Errorf("resolve packages: %w", err)
	}
	return parseSimulation(out), nil
}

// parseSimulation parses the output of apt-get --simulate, which contains lines of the form "Inst NAME
// (VERSION ORIGIN… [ARCH]) …". It skips packages whose names are unsuitable as file names.
func parseSimulation(out string) []aptItem {
	var items []aptItem
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		_, rest, ok := strings.Cut(line, " (")
		inside, _, closed := strings.Cut(rest, ")")
		version, origin, _ := strings.Cut(inside, " ")
		open := strings.LastIndex(origin, "[")
		if !ok || !closed || len(f) < 3 || f[0] != "Inst" || open < 0 || !strings.HasSuffix(origin, "]") {
			continue
		}

		name, _, _ := strings.Cut(f[1], ":")
		item := aptItem{name, version, origin[open+1 : len(origin)-1]}
		if item.Name != "" && item.Version != "" && item.Arch != "" && !strings.ContainsAny(item.file(),
			"/ ") {
			items = append(items, item)
		}
	}

	slices.SortFunc(items, func(a, b aptItem) int { return strings.Compare(a.file(), b.file()) })
	return slices.Compact(items)
}

// download returns the files of packages. It downloads files that are missing or whose hash differs from the
// hash in the signed lists.
func (a apt) download(ctx context.Context, items []aptItem) ([]string, error) {
	var want []string
	for _, i := range items {
		want = append(want, i.Name+"="+i.Version)
	}

	failed := func(err error) error {
		if ctx.Err() != nil {
			return err
		}
		return check.WithHint(fmt.Errorf("download packages: %w: %w", errOutdated, err),
			"check the network, or "+ownKernel)
	}
	// If its archive directory is empty, apt-get prints the hashes of all packages.
	out, err := a.run(ctx, "apt-get --print-uris --download-only install", append(want, "-o",
		"Dir::Cache::archives="+a.dir+"/none")...)
	if err != nil {
		return nil, failed(err)
	}

	sums := parseURIs(out)
	for fetched := false; ; fetched = true {
		var files, missing []string
		for _, i := range items {
			file := filepath.Join(a.dir, "cache/archives", i.file())
			files = append(files, file)
			if sum, err := fileSum(file); err != nil || sum != sums[i.file()] {
				_ = os.Remove(file) // apt-get itself checks only the size
				missing = append(missing, i.file())
			}
		}

		switch {
		case len(missing) == 0:
			return files, nil
		case fetched:
			return nil, failed(fmt.Errorf("%s: not as the package lists have it",
				strings.Join(missing, ", ")))
		}

		a.say("downloading %d packages", len(missing))
		if err := a.fetch(ctx, "Dir::Cache::archives", "cache/archives", "--download-only install",
			want...); err != nil {
			return nil, failed(err)
		}
	}
}

// parseURIs parses the output of apt-get --print-uris, which contains lines of the form "'URI' FILE SIZE
// SHA256:SUM". It returns the hash of each file.
func parseURIs(out string) map[string]string {
	sums := map[string]string{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) != 4 || !strings.HasPrefix(f[0], "'") {
			continue
		}

		if sum, ok := strings.CutPrefix(f[3], "SHA256:"); ok {
			sums[f[1]] = sum
		}
	}
	return sums
}

// lentDirs is the prefix of the temporary directories that fetch uses.
const lentDirs = "/var/tmp/chokepoint-apt-"

// fetch runs apt-get with one of the download directories. If run as root, apt-get downloads files as another
// user, who cannot access root's directories. In that case, fetch moves the files in the directory to a
// public directory, in which only root can write. After apt-get has finished, fetch moves them back.
func (a apt) fetch(ctx context.Context, option, name, command string, args ...string) error {
	command = "apt-get " + command
	if os.Geteuid() != 0 {
		_, err := a.run(ctx, command, args...)
		return err
	}

	left, _ := filepath.Glob(lentDirs + "*")
	for _, dir := range left {
		if info, err := os.Lstat(dir); err == nil && time.Since(info.ModTime()) > listsAge {
			_ = os.RemoveAll(dir) // remains of a build that was killed
		}
	}

	lent, err := os.MkdirTemp(filepath.Split(lentDirs))
	if err != nil {
		return err
	}
	defer os.RemoveAll(lent)
	own := filepath.Join(a.dir, name)
	if err := errors.Join(os.Chmod(lent, 0o755), moveFiles(own, lent)); err != nil {
		return err
	}

	_, err = a.run(ctx, command, append(args, "-o", option+"="+lent)...)
	return errors.Join(err, moveFiles(lent, own))
}

// moveFiles moves the files in a directory to another directory, which may be on a different file system.
func moveFiles(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}

	for _, e := range entries {
		if !e.Type().IsRegular() || e.Name() == "lock" {
			continue
		}

		old := filepath.Join(from, e.Name())
		name := filepath.Join(to, e.Name())
		if os.Rename(old, name) == nil {
			continue
		}

		b, err := os.ReadFile(old)
		if err == nil {
			err = errors.Join(os.WriteFile(name, b, 0o644), os.Remove(old))
		}

		if err != nil {
			return err
		}
	}

	return nil
}

// prune deletes archives that are not in files.
func (a apt) prune(files []string) {
	old, _ := filepath.Glob(filepath.Join(a.dir, "cache/archives", "*.deb"))
	for _, f := range old {
		if !slices.Contains(files, f) {
			_ = os.Remove(f) // error ignored: the file only uses disk space
		}
	}
}

// sourceFiles returns the contents of the machine's source lists by file name. It skips files that this user
// cannot read, because the other files may suffice.
func (a apt) sourceFiles() map[string]string {
	found := map[string]string{}
	names, _ := filepath.Glob(filepath.Join(a.etc, "sources.list.d", "*"))
	for _, name := range append(names, filepath.Join(a.etc, "sources.list")) {
		ext := filepath.Ext(name)
		if ext != ".list" && ext != ".sources" {
			continue // apt skips such files, too
		}

		if b, err := os.ReadFile(name); err == nil {
			found[filepath.Base(name)] = rewriteSources(string(b), ext == ".sources", a.machine.arch)
		}
	}

	return found
}

// sourcesKey returns a hash of the sources. It is used to detect that package lists were downloaded from
// other sources.
func (a apt) sourcesKey() string { return keyOf(a.sourceFiles()) }

// copySources replaces the sources in the private root directory with those of the machine.
func (a apt) copySources() error {
	files := a.sourceFiles()
	if len(files) == 0 {
		return check.WithHint(fmt.Errorf("take packages of the distribution: %w: %s names no sources",
			host.ErrUnsupported, a.etc), ownKernel)
	}

	dir := filepath.Join(a.dir, "sources")
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		return err
	}

	return writeAll(dir, files)
}

// rewriteSources adapts a source list to the architecture of the guest. It removes entries for source code
// and restrictions to other architectures, and replaces Ubuntu's servers, because they depend on the
// architecture.
func rewriteSources(text string, deb822 bool, arch string) string {
	var b strings.Builder
	dropping := false // whether the current line belongs to a field that is dropped
	for line := range strings.Lines(text) {
		continues := deb822 && (strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t"))
		field, _, _ := strings.Cut(line, ":")
		switch {
		case continues:
		case deb822:
			dropping = slices.Contains([]string{"architectures", "architectures-add", "architectures-remove"},
				strings.ToLower(field))
		default:
			line = rewriteLine(line)
			dropping = line == ""
		}

		if dropping {
			continue
		}

		// This may also change comments, which has no effect.
		b.WriteString(ubuntuServers(line, arch))
	}

	return b.String()
}

// rewriteLine removes the "arch" option from a line of the form "deb [arch=x signed-by=y] URI SUITE…". It
// returns "" for any other line, such as "deb-src …".
func rewriteLine(line string) string {
	kind := strings.Fields(line)
	if len(kind) == 0 || kind[0] != "deb" {
		return ""
	}

	before, rest, ok := strings.Cut(line, "[")
	options, after, closed := strings.Cut(rest, "]")
	if !ok || !closed || strings.TrimSpace(before) != "deb" {
		return line
	}

	var kept []string
	for _, o := range strings.Fields(options) {
		if !strings.HasPrefix(o, "arch=") && !strings.HasPrefix(o, "arch+=") &&
			!strings.HasPrefix(o, "arch-=") {
			kept = append(kept, o)
		}
	}

	if len(kept) == 0 {
		return "deb " + strings.TrimLeft(after, " \t")
	}

	return "deb [" + strings.Join(kept, " ") + "]" + after
}

// ubuntuServers replaces Ubuntu's server. archive.ubuntu.com has packages for amd64, and ports.ubuntu.com for
// the other architectures.
func ubuntuServers(line, arch string) string {
	const ports, main = "ports.ubuntu.com/ubuntu-ports", "archive.ubuntu.com/ubuntu"
	if arch == "amd64" {
		return strings.ReplaceAll(line, ports, main)
	}

	words := strings.SplitAfter(line, " ")
	for i, w := range words {
		scheme, rest, ok := strings.Cut(w, "://")
		server, after, below := strings.Cut(rest, "/ubuntu")
		// This also matches de.archive.ubuntu.com and security.ubuntu.com.
		if ok && below && (strings.HasSuffix(server, "archive.ubuntu.com") ||
			server == "security.ubuntu.com") {
			words[i] = scheme + "://ports.ubuntu.com/ubuntu-ports" + after
		}
	}

	return strings.Join(words, "")
}
