package vm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// sourceFiles reads the machine's package sources, by name. One that this user may not read is left out:
// the others may do.
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

// sourcesKey is a hash over them: lists of other sources are of no use.
func (a apt) sourcesKey() string { return keyOf(a.sourceFiles()) }

// copySources puts the sources into the private root, in place of those of the time before.
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
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// rewriteSources makes a file of sources serve the guest's architecture: an entry's limit to some
// architectures goes, sources of source code go, and Ubuntu's servers are exchanged, which differ by
// architecture.
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
		// Comments too: they cost nothing.
		b.WriteString(ubuntuServers(line, arch))
	}
	return b.String()
}

// rewriteLine drops the options "arch" of a line "deb [arch=x signed-by=y] URI SUITE…", and a line "deb-src
// …".
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

// ubuntuServers: amd64 lies on archive.ubuntu.com, everything else on ports.ubuntu.com.
func ubuntuServers(line, arch string) string {
	const ports, main = "ports.ubuntu.com/ubuntu-ports", "archive.ubuntu.com/ubuntu"
	if arch == "amd64" {
		return strings.ReplaceAll(line, ports, main)
	}
	words := strings.SplitAfter(line, " ")
	for i, w := range words {
		scheme, rest, ok := strings.Cut(w, "://")
		server, after, below := strings.Cut(rest, "/ubuntu")
		// Also de.archive.ubuntu.com and security.ubuntu.com.
		if ok && below && (strings.HasSuffix(server, "archive.ubuntu.com") ||
			server == "security.ubuntu.com") {
			words[i] = scheme + "://ports.ubuntu.com/ubuntu-ports" + after
		}
	}
	return strings.Join(words, "")
}
