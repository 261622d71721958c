package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

const (
	thirdParty      = "THIRD-PARTY"
	agentThirdParty = "THIRD-PARTY-agent"
	std             = "std" // pseudo-module for Go's standard library
)

// licenceFile matches the names of files that contain a licence or must be distributed with it.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|copyright|unlicen[cs]e)([-._].*)?$`)

// licenceText matches the names of files whose licence has an SPDX identifier. PATENTS, for example, has
// none.
var licenceText = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicen[cs]e)`)

// modules returns the dependencies of the binaries and the standard library, without duplicates, as
// PATH@VERSION.
func modules(built ...binary) []string {
	var all []string
	for _, b := range built {
		all = append(all, std+"@"+strings.TrimPrefix(b.info.GoVersion, "go"))
		for _, m := range b.info.Deps {
			all = append(all, identity(m))
		}
	}

	slices.Sort(all)
	return slices.Compact(all)
}

// identity returns the module whose code is in a binary: m or its replacement.
func identity(m *debug.Module) string {
	if m.Replace != nil {
		m = m.Replace
	}
	return m.Path + "@" + m.Version
}

// writeLicences writes the licences of everything that the binaries contain to a file.
func (r *release) writeLicences(ctx context.Context, file string, built ...binary) error {
	folders, err := r.folders(ctx, modules(built...))
	if err != nil {
		return err
	}

	var all strings.Builder
	all.WriteString("chokepoint contains these modules, each under its own licence.\n")
	for _, m := range modules(built...) {
		text, ids, err := licencesIn(folders[m])
		if err != nil {
			return fmt.Errorf("collect the licences of %s: %w", m, err)
		}

		r.licences[m] = ids
		line := strings.Repeat("=", 78)
		fmt.Fprintf(&all, "\n%s\n%s (%s)\n%s\n%s", line, m, strings.Join(ids, ", "), line, text)
	}

	if err := os.WriteFile(r.path(file), []byte(all.String()), 0o644); err != nil {
		return fmt.Errorf("write the licences: %w", err)
	}

	return nil
}

// folders returns the directories of modules in the module cache. It downloads missing modules.
func (r *release) folders(ctx context.Context, modules []string) (map[string]string, error) {
	folders := map[string]string{}
	args := []string{"mod", "download", "-json"}
	for _, m := range modules {
		if !strings.HasPrefix(m, std+"@") {
			args = append(args, m)
			continue
		}

		root, err := command(ctx, r.source, nil, "go", "env", "GOROOT")
		if err != nil {
			return nil, err
		}

		folders[m] = strings.TrimSpace(string(root))
	}

	listed, err := command(ctx, r.source, nil, "go", args...)
	if err != nil {
		return nil, err
	}

	list := json.NewDecoder(bytes.NewReader(listed))
	for {
		var m struct{ Path, Version, Dir string }
		err := list.Decode(&m)
		if errors.Is(err, io.EOF) {
			return folders, nil
		}

		if err != nil {
			return nil, fmt.Errorf("read the list of modules: %w", err)
		}

		folders[m.Path+"@"+m.Version] = m.Dir
	}
}

// licencesIn returns the text of all licence files of a module, and the SPDX identifiers of those at its
// root. It returns an error if there are none, because the module could then not be distributed.
func licencesIn(folder string) (text string, ids []string, err error) {
	var all strings.Builder
	seen := map[string]bool{}
	err = fs.WalkDir(os.DirFS(folder), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		if d.IsDir() && (d.Name() == "testdata" || name == "src" || name == "pkg" || name == "test") {
			return fs.SkipDir // the last three are in Go's own tree, whose licence is at the root
		}

		if !d.Type().IsRegular() || !licenceFile.MatchString(d.Name()) || filepath.Ext(name) == ".go" {
			return nil
		}

		content, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil || seen[string(content)] {
			return err
		}

		seen[string(content)] = true
		fmt.Fprintf(&all, "\n--- %s\n\n%s\n", name, bytes.TrimSpace(content))
		if licenceText.MatchString(name) { // a file at the root
			for _, match := range licensecheck.Scan(content).Match {
				ids = append(ids, match.ID)
			}
		}

		return nil
	})
	if err == nil && all.Len() == 0 {
		err = fmt.Errorf("no licence in %s", folder)
	}

	slices.Sort(ids)
	return all.String(), slices.Compact(ids), err
}
