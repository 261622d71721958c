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

// apt is a private root of the package manager: lists and packages of one architecture, from the machine's
// own sources, without changing the machine. It needs no privileges.
type apt struct {
	dir     string // cache/apt-ARCH
	etc     string // the machine's configuration
	machine machine
	say     func(format string, args ...any)
}

// aptItem is a package that the request resolves to.
type aptItem struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Arch    string `json:"arch"` // or "all"
}

// file returns its name among the downloaded archives.
func (i aptItem) file() string {
	return fmt.Sprintf("%s_%s_%s.deb", i.Name, strings.ReplaceAll(i.Version, ":", "%3a"), i.Arch)
}

// present lists packages that others require only for their installation scripts, none of which is ever run.
// Declared as installed, they and their dependencies (half of the download) are not fetched.
var present = []string{"adduser", "base-files", "base-passwd", "coreutils", "cpio", "debconf", "debianutils",
	"dpkg", "dracut", "init-system-helpers", "initramfs-tools", "kmod", "libc-bin", "linux-base",
	"linux-firmware", "linux-initramfs-tool", "login", "lsb-base", "passwd", "perl", "perl-base",
	"sensible-utils", "systemd", "sysvinit-utils", "tar", "ucf", "udev", "usrmerge", "util-linux",
	"wireless-regdb"}

// prepare writes the configuration. It is read after the machine's own, whose proxies and pins stay in force,
// but whose hooks would clean the machine's cache.
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

	err := writeAll(a.dir, map[string]string{"status": status.String(), "apt.conf": a.config()})
	if err != nil {
		return err
	}

	return a.copySources()
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

// exists returns an error if the package manager is not installed.
func (a apt) exists(ctx context.Context) error {
	for _, program := range []string{"apt-get", "dpkg-deb"} {
		_, err := host.Run(ctx, host.Local(), host.Command{Path: program, Args: []string{"--version"}})
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

const lockTime = time.Minute // how long apt-get may continue for a build that was killed

// run starts apt-get or apt-cache on the private root.
func (a apt) run(ctx context.Context, program string, args ...string) (string, error) {
	command := host.Command{
		Path: program,
		Args: append([]string{"-c", filepath.Join(a.dir, "apt.conf"), "-q"}, args...),
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

type oneLine struct{ error } // an error that contains a program's output of several lines

func (e *oneLine) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }
func (e *oneLine) Unwrap() error { return e.error }

const listsAge = 24 * time.Hour // maximum age of the lists

// update fetches the lists. A source that does not answer is not an error if the others have the packages, so
// only the caller can judge the error.
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

// stamp returns the file that records when the lists were fetched, and from where.
func (a apt) stamp() string { return filepath.Join(a.dir, "updated") }

func (a apt) listsAreFresh(now time.Time) bool {
	info, err := os.Stat(a.stamp())
	sources, _ := os.ReadFile(a.stamp())
	return err == nil && now.Sub(info.ModTime()) < listsAge && string(sources) == a.sourcesKey()
}

// candidates returns those names that can be installed.
func (a apt) candidates(ctx context.Context, names ...string) ([]string, error) {
	out, err := a.run(ctx, "apt-cache", append([]string{"policy"}, names...)...)
	if err != nil {
		return nil, fmt.Errorf("look for packages: %w", err)
	}
	return parsePolicy(out), nil
}

// parsePolicy reads `apt-cache policy`: a line "NAME:" and, indented below it, "Candidate: VERSION".
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

// resolve returns every package that the wanted ones need, by name.
func (a apt) resolve(ctx context.Context, names []string) ([]aptItem, error) {
	out, err := a.run(ctx, "apt-get", append([]string{"--simulate", "install"}, names...)...)
	if err != nil {
		return nil, fmt.Errorf("resolve packages: %w", err)
	}
	return parseSimulation(out), nil
}

// parseSimulation reads `apt-get --simulate`: "Inst NAME (VERSION ORIGIN… [ARCH]) …", names fit for files.
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

// download fetches the packages that are missing, or differ from the signed lists.
func (a apt) download(ctx context.Context, items []aptItem) ([]string, error) {
	want := []string{"--download-only", "install"}
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
	// For an empty directory apt-get prints each package's hash.
	out, err := a.run(ctx, "apt-get", append([]string{"-o", "Dir::Cache::archives=" + a.dir + "/none",
		"--print-uris"}, want...)...)
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
				_ = os.Remove(file) // apt-get itself checks only its size
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
		if err := a.fetch(ctx, "Dir::Cache::archives", "cache/archives", want...); err != nil {
			return nil, failed(err)
		}
	}
}

// parseURIs reads `apt-get --print-uris`, "'URI' FILE SIZE SHA256:SUM", as the sum of each file.
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

// lentDirs is the prefix of fetch's directories.
const lentDirs = "/var/tmp/chokepoint-apt-"

// fetch makes apt-get download something into one of its directories. If run as root, apt-get downloads as a
// user of its own, who cannot enter root's directories. So the directory's contents are meanwhile in a public
// one, where nobody else can write.
func (a apt) fetch(ctx context.Context, option, name string, args ...string) error {
	if os.Geteuid() != 0 {
		_, err := a.run(ctx, "apt-get", args...)
		return err
	}

	left, _ := filepath.Glob(lentDirs + "*")
	for _, dir := range left {
		if info, err := os.Lstat(dir); err == nil && time.Since(info.ModTime()) > listsAge {
			_ = os.RemoveAll(dir) // from a build that was killed
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

	_, err = a.run(ctx, "apt-get", append([]string{"-o", option + "=" + lent}, args...)...)
	return errors.Join(err, moveFiles(lent, own))
}

// moveFiles moves the files of a directory into another, which may be on another file system.
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

// prune deletes archives that are no longer needed.
func (a apt) prune(files []string) {
	old, _ := filepath.Glob(filepath.Join(a.dir, "cache/archives", "*.deb"))
	for _, f := range old {
		if !slices.Contains(files, f) {
			_ = os.Remove(f) // a leftover only costs space
		}
	}
}

// sourceFiles reads the machine's package sources, by name, as far as this user may read them: these may
// suffice.
func (a apt) sourceFiles() map[string]string {
	found := map[string]string{}
	names, _ := filepath.Glob(filepath.Join(a.etc, "sources.list.d", "*"))
	for _, name := range append(names, filepath.Join(a.etc, "sources.list")) {
		ext := filepath.Ext(name)
		if ext != ".list" && ext != ".sources" {
			continue // apt ignores it too
		}

		if b, err := os.ReadFile(name); err == nil {
			found[filepath.Base(name)] = rewriteSources(string(b), ext == ".sources", a.machine.arch)
		}
	}

	return found
}

// sourcesKey returns a hash over them: lists of other sources are useless.
func (a apt) sourcesKey() string { return keyOf(a.sourceFiles()) }

// copySources copies the sources into the private root, replacing the previous ones.
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

// rewriteSources adapts a file of sources to the guest's architecture: it removes an entry's limit to others
// and sources of source code, and replaces Ubuntu's servers, which differ by architecture.
func rewriteSources(text string, deb822 bool, arch string) string {
	var b strings.Builder
	dropping := false // the continuation lines of a field that was dropped
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

		// Include comments, too: they do no harm.
		b.WriteString(ubuntuServers(line, arch))
	}

	return b.String()
}

// rewriteLine drops the options "arch" of a line "deb [arch=x signed-by=y] URI SUITE…", and "deb-src …".
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

// ubuntuServers replaces the server: archive.ubuntu.com has amd64, ports.ubuntu.com all other architectures.
func ubuntuServers(line, arch string) string {
	const ports, main = "ports.ubuntu.com/ubuntu-ports", "archive.ubuntu.com/ubuntu"
	if arch == "amd64" {
		return strings.ReplaceAll(line, ports, main)
	}

	words := strings.SplitAfter(line, " ")
	for i, w := range words {
		scheme, rest, ok := strings.Cut(w, "://")
		server, after, below := strings.Cut(rest, "/ubuntu")
		// Also matches de.archive.ubuntu.com and security.ubuntu.com.
		if ok && below && (strings.HasSuffix(server, "archive.ubuntu.com") ||
			server == "security.ubuntu.com") {
			words[i] = scheme + "://ports.ubuntu.com/ubuntu-ports" + after
		}
	}

	return strings.Join(words, "")
}
