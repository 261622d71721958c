package vm

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
)

// TestRealImages builds the image of each architecture from the distribution's packages, which takes a
// network and half a minute.
func TestRealImages(t *testing.T) {
	apart.Long(t, "downloads packages")
	if _, err := host.Run(t.Context(), host.Local(), host.Command{
		Path: "apt-get",
		Args: []string{"--version"},
	}); errors.Is(err, host.ErrUnsupported) {
		t.Skip("skip: this machine has no apt-get")
	}

	for _, arch := range Arches() {
		t.Run(arch, func(t *testing.T) { checkRealImage(t, arch) })
	}
}

func checkRealImage(t *testing.T, arch string) {
	cache := t.TempDir()
	dir := os.Getenv("CHOKEPOINT_VM_CACHE")
	if dir != "" {
		cache = dir
	}

	began := time.Now()
	step := func(what string) {
		t.Logf("%s: %.2f s", what, time.Since(began).Seconds())
		began = time.Now()
	}
	agent, err := GuestProgram(t.Context(), arch, cache, ownTree(t), func(text string) { t.Log(text) })
	must(t, err)
	step("program")
	r := Recipe{Arch: arch, Program: agent, Cache: cache, Say: func(text string) { t.Log(text) }}
	first, err := r.Image(t.Context())
	must(t, err)
	step("first build")
	again, err := r.Image(t.Context())
	must(t, err)
	spent := time.Since(began)
	if spent > time.Second {
		t.Errorf("second build: took %v, want it from the cache", spent)
	}

	step("second build")
	if again.Initrd != first.Initrd || again.Kernel != first.Kernel {
		t.Errorf("second build: got %s and %s, want %s and %s", again.Kernel, again.Initrd, first.Kernel,
			first.Initrd)
	}

	data, err := os.ReadFile(first.Initrd)
	must(t, err)
	files := readInitrd(t, data)
	size := 0
	for _, e := range files {
		size += len(e.data)
	}

	t.Logf("release %s, key %s: initrd %d bytes, unpacked %d, %d files, %d packages", first.Release,
		first.Key, len(data), size, len(files), len(first.Packages))
	checkContents(t, arch, first.Release, files)
}

// checkContents: every program finds its libraries, every module what it depends on, and what chokepoint
// needs is there.
func checkContents(t *testing.T, arch, release string, files map[string]entry) {
	m, err := machineOf(arch)
	must(t, err)
	if !strings.Contains(release, ".") {
		t.Errorf("kernel's release: got %q", release)
	}

	for _, want := range []string{"init", "bin/sh", "bin/modprobe", "sbin", "bin/openvpn", "bin/ip", "bin/tc",
		"bin/nft", "bin/ethtool", "bin/conntrack", "bin/tcpdump", "bin/wg", "bin/iperf3", "bin/ls",
		"etc/protocols", "etc/chokepoint/modules", "proc", "sys", "dev"} {
		if _, ok := files[want]; !ok {
			t.Errorf("image: %s is missing", want)
		}
	}

	for name, e := range files {
		if e.mode != modeProgram {
			continue
		}

		f, err := elf.NewFile(bytes.NewReader(e.data))
		if err != nil || !m.runs(f) {
			t.Errorf("image: %s is no program for %s: %v", name, arch, err)
			continue
		}

		libraries, _ := f.ImportedLibraries()
		for _, lib := range libraries {
			if _, ok := files["lib/"+lib]; !ok {
				t.Errorf("image: %s needs lib/%s, which is missing", name, lib)
			}
		}
	}

	place := "lib/modules/" + release + "/"
	for line := range strings.Lines(string(files[place+"modules.dep"].data)) {
		for _, f := range strings.Fields(strings.Replace(line, ":", " ", 1)) {
			if len(files[place+f].data) == 0 {
				t.Errorf("modules.dep names %s, which is missing", f)
			}
		}
	}

	builtin := normalName(string(files[place+"modules.builtin"].data))
	var modules []string
	for name := range files {
		if base, ok := strings.CutSuffix(name, ".ko"); ok {
			modules = append(modules, normalName(base[strings.LastIndex(base, "/")+1:]))
		}
	}

	t.Logf("%d modules, %d of them at boot", len(modules),
		strings.Count(string(files["etc/chokepoint/modules"].data), "\n"))
	for _, want := range []string{"virtio_net", "virtio_pci", "wireguard", "esp4", "esp6", "xfrm_interface",
		"sch_cake", "sch_fq_codel", "sch_netem", "sch_sfq", "sch_htb", "sch_tbf", "nf_flow_table", "nft_masq",
		"nft_ct", "tun", "8021q", "act_police", "gcm", "authenc"} {
		if !slices.Contains(modules, want) && !strings.Contains(builtin, "/"+want+".ko") {
			t.Errorf("image: module %s is missing", want)
		}
	}

	for _, name := range bootModules {
		if name = normalName(name); !slices.Contains(modules, name) && !strings.Contains(builtin, "/"+name+
			".ko") {
			t.Logf("this kernel has no module %s", name)
		}
	}
}

// readInitrd unpacks the archives of an initrd one after the other, as the kernel does.
func readInitrd(t *testing.T, data []byte) map[string]entry {
	t.Helper()
	files := map[string]entry{}
	in := bytes.NewReader(data)
	for in.Len() > 0 {
		z, err := gzip.NewReader(in)
		must(t, err)
		z.Multistream(false)
		member, err := io.ReadAll(z)
		must(t, err)
		for _, e := range readArchive(t, member) {
			files[e.name] = e
		}
	}

	return files
}
