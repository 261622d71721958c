package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/apk"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/ipk"
	"github.com/goreleaser/nfpm/v2/rpm"
)

// format is a package format.
type format struct {
	name     string
	packager nfpm.Packager
}

// packProgram builds a package of the program in each format.
func (r *release) packProgram(b binary, content []file) error {
	for _, f := range []format{{"deb", deb.Default}, {"rpm", rpm.DefaultRPM}, {"apk", apk.Default}} {
		info, err := r.info(f.name, b)
		if err != nil {
			return err
		}

		info.Description = "measures routers and names their bottleneck\n" +
			"Builds a testbed of namespaces, virtual machines or real machines over ssh,\n" +
			"sends traffic through the router in it, and reports rates, latency and what\n" +
			"limits them. Contains the agents for routers of other architectures."
		info.Suggests = []string{"iperf3", "openssl", "openvpn", "qemu-system-x86"}
		switch f.name {
		case "deb":
			info.Recommends = []string{"openssh-client"}
		case "rpm":
			info.Recommends = []string{"openssh-clients"}
		case "apk":
			info.Description, _, _ = strings.Cut(info.Description, "\n") // a line for each key
		}

		if f.name != "apk" { // Alpine has no systemd
			info.Scripts = nfpm.Scripts{
				PostInstall: "files/installed.sh",
				PreRemove:   "files/stop.sh",
				PostRemove:  "files/reload.sh",
			}
		}

		// rpm removes only directories that belong to the package.
		const docs = "/usr/share/doc/chokepoint"
		owned := []string{"/usr/lib/chokepoint", docs}
		for _, at := range content {
			dir := path.Join("/usr", path.Dir(at.name))
			if strings.HasPrefix(dir, docs+"/") && !slices.Contains(owned, dir) {
				owned = append(owned, dir)
			}
		}

		for _, own := range owned {
			info.Contents = append(info.Contents, &files.Content{
				Destination: own,
				Type:        files.TypeDir,
				FileInfo:    &files.ContentFileInfo{Mode: 0o755, MTime: r.time},
			})
		}

		for _, at := range content {
			if place := placeIn(f.name, at.name); place != "" {
				info.Contents = append(info.Contents, r.content(place, at))
			}
		}

		if f.name == "deb" {
			info.Contents = append(info.Contents, &files.Content{
				Source:      "LICENSE",
				Destination: "/usr/share/doc/chokepoint/copyright",
				Type:        files.TypeSymlink,
				FileInfo:    &files.ContentFileInfo{MTime: r.time},
			})
		}

		info = nfpm.WithDefaults(info)
		if err := r.write(f, f.packager.ConventionalFileName(info), info); err != nil {
			return err
		}
	}

	return nil
}

// placeIn returns the path of a file in a package format, or "" if the format omits it.
func placeIn(format, name string) string {
	switch {
	case format == "apk" && strings.HasPrefix(name, "lib/systemd/"):
		return ""
	case format == "deb" && strings.HasPrefix(name, "share/zsh/"):
		return "/usr/" + strings.Replace(name, "site-functions", "vendor-completions", 1)
	}
	return "/usr/" + name
}

// packAgent builds an OpenWrt package of the agent. OpenWrt has many names for an architecture. The package
// is therefore marked as fit for all, and checks the architecture when it is installed.
func (r *release) packAgent(b binary, content []file) error {
	info, err := r.info("ipk", b)
	if err != nil {
		return err
	}

	check, err := os.ReadFile("files/check-arch.sh")
	if err != nil {
		return fmt.Errorf("read the script of the package: %w", err)
	}

	name := openWrt(b.target)
	script := r.path("check-" + name + ".sh")
	text := strings.ReplaceAll(string(check), "@ARCH@", name)
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		return fmt.Errorf("write the script of the package: %w", err)
	}

	info.Arch = "all"
	info.Section = "net"
	info.Description = "samples a router's CPU, queues and drops for chokepoint"
	info.Scripts = nfpm.Scripts{PreInstall: script}
	for _, f := range content {
		info.Contents = append(info.Contents, r.content("/usr/"+f.name, f))
	}

	file := fmt.Sprintf("%s_%s_openwrt-%s.ipk", b.name, info.Version, name)
	return r.write(format{"ipk", ipk.Default}, file, nfpm.WithDefaults(info))
}

// openWrt returns the prefix of OpenWrt's names for an architecture.
func openWrt(t target) string {
	switch t.arch {
	case "amd64":
		return "x86_64"
	case "arm64":
		return "aarch64"
	case "mipsle":
		return "mipsel"
	}
	return t.arch
}

// info returns the metadata that all packages share.
func (r *release) info(format string, b binary) (*nfpm.Info, error) {
	version, err := packageVersion(format, r.version)
	if err != nil {
		return nil, err
	}

	return &nfpm.Info{
		Name:          b.name,
		Arch:          b.target.arch,
		Platform:      "linux",
		Version:       version,
		VersionSchema: "none",
		Section:       "net",
		Priority:      "optional",
		Maintainer:    "The chokepoint authors <chokepoint-lab@users.noreply.github.com>",
		Homepage:      "https://github.com/chokepoint-lab/chokepoint",
		License:       "Apache-2.0",
		MTime:         r.time,
		Overridables: nfpm.Overridables{
			Umask: 0o022,
			Deb:   nfpm.Deb{Compression: "zstd"},
			RPM:   nfpm.RPM{Compression: "zstd", BuildHost: "localhost"},
		},
	}, nil
}

// content returns the package entry of a file.
func (r *release) content(place string, f file) *files.Content {
	return &files.Content{
		Source:      f.from,
		Destination: place,
		Type:        files.TypeFile,
		FileInfo:    &files.ContentFileInfo{Mode: f.mode, MTime: r.time},
	}
}

// write writes a package.
func (r *release) write(f format, name string, info *nfpm.Info) error {
	packed, err := os.Create(r.path(name))
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}

	err = errors.Join(f.packager.Package(info, packed), packed.Close())
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}

	return r.publish(name, packed.Name())
}

var (
	pseudoVersion = regexp.MustCompile(`^(?:(?:(.+)\.)?0\.)?([0-9]{14})-([0-9a-f]{12})$`)
	preVersion    = regexp.MustCompile(`^(alpha|beta|rc)\.?([0-9]*)$`)
)

// packageVersion converts a Go version so that package managers sort it correctly: pre-releases before the
// release, and commits by time between the tags around them.
func packageVersion(format, version string) (string, error) {
	number, early, isEarly := strings.Cut(version, "-")
	if !isEarly {
		return number, nil
	}

	var time, hash string
	if commit := pseudoVersion.FindStringSubmatch(early); commit != nil {
		// rpm sorts digits after letters
		early, time, hash = cmp.Or(commit[1], "alpha.0"), commit[2], commit[3]
	}

	if format != "apk" {
		if time != "" {
			early += ".0." + time + "." + hash
		}

		return number + "~" + strings.ReplaceAll(early, "-", "."), nil
	}

	// apk allows only a few words: https://wiki.alpinelinux.org/wiki/Package_policies
	word := preVersion.FindStringSubmatch(early)
	if word == nil {
		return "", fmt.Errorf("version %s cannot be written for apk: use alpha, beta or rc and a number",
			version)
	}

	number += "_" + word[1] + word[2]
	if time != "" {
		number += "_git" + time
	}

	return number, nil
}
