package vm

import (
	"bytes"
	"compress/gzip"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// module is a kernel module.
type module struct {
	name string // normalised; see normalName
	path string // path relative to the tree, such as kernel/net/tls/tls.ko.xz
	data []byte // uncompressed content
	modinfo
}

// place returns the path of the module in the image, where the module is not compressed.
func (m *module) place() string {
	base, _, _ := strings.Cut(path.Base(m.path), ".ko")
	return path.Join(path.Dir(m.path), base+".ko")
}

// moduleTree is the module directory of a kernel, /lib/modules/RELEASE. It reads modules only on demand,
// because a distribution has thousands of modules and an image needs hundreds.
type moduleTree struct {
	dir     string
	machine machine
	paths   map[string]string // paths by normalised name
}

func openModules(dir string, m machine) (*moduleTree, error) {
	t := &moduleTree{dir: dir, machine: m, paths: map[string]string{}}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		base, suffix, ok := strings.Cut(d.Name(), ".ko")
		// This skips "build" and "source", which are links to kernel headers.
		if !ok || !d.Type().IsRegular() || !slices.Contains(compressions, suffix) {
			return nil
		}

		rel, _ := filepath.Rel(dir, p) // never returns an error for a path below dir
		name := normalName(base)
		// Modules in updates/ and extra/ take precedence over those in kernel/, as in depmod. In sorted
		// order, kernel/ is between the two.
		if old, ok := t.paths[name]; !ok || strings.HasPrefix(old, "kernel/") {
			t.paths[name] = filepath.ToSlash(rel)
		}

		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the kernel's modules: %w", err)
	}

	return t, nil
}

// choose returns the wanted modules and all their dependencies by name. It skips dependencies without a file,
// because they are built into the kernel.
func (t *moduleTree) choose(ctx context.Context, wanted func(name, path string) bool) (map[string]*module,
	error) {
	var queue []string
	for name, p := range t.paths {
		if wanted(name, p) {
			queue = append(queue, name)
		}
	}

	slices.Sort(queue)
	chosen := map[string]*module{}
	for ; len(queue) > 0; queue = queue[1:] {
		name := queue[0]
		p, ok := t.paths[name]
		if !ok || chosen[name] != nil {
			continue
		}

		data, err := readCompressed(ctx, filepath.Join(t.dir, filepath.FromSlash(p)))
		if err != nil {
			return nil, err
		}

		f, info, err := readModinfo(data)
		if err != nil {
			return nil, fmt.Errorf("read module %s: %w", p, err)
		}

		if !t.machine.runs(f) {
			return nil, fmt.Errorf("read module %s: it is for %v, not for %s", p, f.Machine, t.machine.arch)
		}

		chosen[name] = &module{name: name, path: p, data: data, modinfo: info}
		queue = append(append(queue, info.depends...), info.soft...)
	}

	return chosen, nil
}

// dependencies returns the modules that must be loaded before a module. Each of them precedes the modules on
// which it depends, so the last module must be loaded first.
func dependencies(chosen map[string]*module, name string) []*module {
	var done []*module
	seen := map[string]bool{name: true}
	var visit func(m *module)
	visit = func(m *module) {
		for _, d := range m.depends {
			if seen[d] || chosen[d] == nil {
				continue
			}

			seen[d] = true
			visit(chosen[d])
			done = append(done, chosen[d])
		}
	}
	visit(chosen[name])
	slices.Reverse(done)
	return done
}

// moduleLists returns the contents of modules.dep and modules.alias in the format of depmod(8).
func moduleLists(chosen map[string]*module) (dep, alias string) {
	var deps, aliases strings.Builder
	for _, m := range sortedModules(chosen) {
		deps.WriteString(m.place() + ":")
		for _, d := range dependencies(chosen, m.name) {
			deps.WriteString(" " + d.place())
		}

		deps.WriteString("\n")
		for _, a := range m.aliases {
			aliases.WriteString("alias " + a + " " + m.name + "\n")
		}
	}
	return deps.String(), aliases.String()
}

// sortedModules returns the modules sorted by place, so that equal trees yield equal lists.
func sortedModules(chosen map[string]*module) []*module {
	return slices.SortedFunc(maps.Values(chosen),
		func(a, b *module) int { return strings.Compare(a.place(), b.place()) })
}

// releaseOf returns the kernel release for which all modules were built. It is needed because the kernel
// looks for modules in a directory with this name, and the directory that the user provides may have another
// name.
func releaseOf(chosen map[string]*module) (string, error) {
	release, from := "", ""
	for _, m := range sortedModules(chosen) {
		switch r := m.release; {
		case r == "" || strings.ContainsAny(r, "/"):
			return "", fmt.Errorf("read module %s: it does not say for which kernel it is", m.path)
		case release != "" && r != release:
			return "", fmt.Errorf("read the kernel's modules: %s is for %s, %s for %s", from, release,
				m.path, r)
		default:
			release = r
			from = m.path
		}
	}
	return release, nil
}

// modinfo holds the contents of a module's .modinfo section.
type modinfo struct {
	depends []string // modules that define symbols used by this module
	soft    []string // modules to load before or after this module if they exist (softdep)
	aliases []string // patterns for the names by which the kernel may request the module
	release string   // first word of a text such as "6.1.0-56-cloud-amd64 SMP preempt mod_unload "
}

// readModinfo parses a module file and its .modinfo section.
func readModinfo(file []byte) (f *elf.File, m modinfo, err error) {
	f, err = elf.NewFile(bytes.NewReader(file))
	if err != nil {
		return nil, m, err
	}

	s := f.Section(".modinfo")
	if s == nil || s.Type != elf.SHT_PROGBITS {
		return nil, m, fmt.Errorf("no section .modinfo: not a kernel module")
	}

	b, err := s.Data()
	if err != nil {
		return nil, m, err
	}

	return f, parseModinfo(string(b)), nil
}

// parseModinfo parses a .modinfo section, which consists of "key=value" strings terminated by NUL.
func parseModinfo(section string) modinfo {
	var m modinfo
	for field := range strings.SplitSeq(section, "\x00") {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "depends":
			m.depends = append(m.depends, moduleNamesIn(strings.Split(value, ","))...)
		case "softdep":
			m.soft = append(m.soft, moduleNamesIn(strings.Fields(value))...)
		case "alias":
			// Fields in modules.alias are separated by blanks, so an alias cannot contain any.
			if value != "" && !strings.ContainsAny(value, " \t\r\n") {
				m.aliases = append(m.aliases, value)
			}
		case "vermagic":
			m.release, _, _ = strings.Cut(value, " ")
		}
	}
	return m
}

// moduleNamesIn returns the normalised names of the modules in fields. It skips empty fields, and "pre:" and
// "post:" in a softdep.
func moduleNamesIn(fields []string) []string {
	var names []string
	for _, f := range fields {
		if f != "" && !strings.HasSuffix(f, ":") && !strings.ContainsAny(f, "/\n") {
			names = append(names, normalName(f))
		}
	}
	return names
}

// normalName returns the name of a module with "-" replaced by "_". The kernel treats the two as equal.
func normalName(name string) string { return strings.ReplaceAll(name, "-", "_") }

var compressions = []string{"", ".gz", ".xz", ".zst"} // suffixes that follow ".ko"

// readCompressed reads a file and decompresses it according to its name. Modules are stored decompressed,
// because the kernels of some guests cannot decompress them.
func readCompressed(ctx context.Context, name string) ([]byte, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}

	switch filepath.Ext(name) {
	case ".gz":
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(b)); err == nil {
			b, err = io.ReadAll(z)
		}
	case ".zst":
		var z *zstd.Decoder
		if z, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1)); err == nil {
			b, err = z.DecodeAll(b, nil)
			z.Close()
		}
	case ".xz":
		b, err = host.Run(ctx, host.Local(), host.Command{
			Path:  "xz",
			Args:  []string{"-dc"},
			Stdin: bytes.NewReader(b),
		})
		if errors.Is(err, host.ErrUnsupported) {
			err = check.WithHint(err,
				"install xz (package xz-utils), or give modules that are not compressed")
		}
	}

	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", name, err)
	}

	return b, nil
}

// moduleFolders lists directories whose modules are all included. They contain the network stack and what it
// may need, and out-of-tree modules, for example for flow accounting.
var moduleFolders = strings.Fields(`
	kernel/net/ kernel/crypto/ kernel/lib/ kernel/drivers/virtio/ kernel/drivers/net/bonding/
	kernel/drivers/net/ipvlan/ kernel/drivers/net/ppp/ kernel/drivers/net/team/ kernel/drivers/net/vxlan/
	kernel/drivers/net/wireguard/ updates/ extra/
`)

// notRouted lists directories of modules that a router between Ethernet links does not need.
var notRouted = strings.Fields(`
	kernel/net/6lowpan/ kernel/net/9p/ kernel/net/appletalk/ kernel/net/atm/ kernel/net/ax25/
	kernel/net/batman-adv/ kernel/net/bluetooth/ kernel/net/caif/ kernel/net/can/ kernel/net/ceph/
	kernel/net/dsa/ kernel/net/hsr/ kernel/net/ieee802154/ kernel/net/lapb/ kernel/net/mac80211/
	kernel/net/mac802154/ kernel/net/netrom/ kernel/net/nfc/ kernel/net/phonet/ kernel/net/rds/
	kernel/net/rfkill/ kernel/net/rose/ kernel/net/rxrpc/ kernel/net/smc/ kernel/net/sunrpc/
	kernel/net/tipc/ kernel/net/wireless/ kernel/net/x25/ kernel/net/vmw_vsock/ kernel/net/qrtr/
	kernel/lib/kunit/
`)

// moduleNames lists modules that are included regardless of their directory.
var moduleNames = strings.Fields(`
	virtio_net virtio_console virtio_rng virtio_blk net_failover tun tap veth ifb dummy macvlan macvtap vrf
	geneve gtp bareudp macsec nlmon vmxnet3 e1000 e1000e
`)

// wantedModule reports whether the image should contain a module.
func wantedModule(name, path string) bool {
	has := func(folders []string) bool {
		return slices.ContainsFunc(folders, func(f string) bool { return strings.HasPrefix(path, f) })
	}
	switch {
	case slices.Contains(moduleNames, name), !strings.Contains(path, "/"):
		// The author of a tree without directories, such as OpenWrt's, has already selected its modules.
		return true
	case strings.HasPrefix(path, "kernel/arch/"):
		return strings.Contains(path, "/crypto/") || strings.Contains(path, "/lib/")
	case strings.HasPrefix(name, "test_"), strings.HasSuffix(name, "_kunit"), name == "tcrypt":
		return false // these modules test the kernel
	}
	return has(moduleFolders) && !has(notRouted)
}

// bootModules lists modules that a single process loads at boot, in this order. Without this list, the kernel
// would call modprobe on the first use of each module, which takes 35 to 80 ms under emulation. Loading these
// modules does not change the path of packets. Modules that a kernel does not have are skipped.
//
// The drivers that are needed to reach the guest come first, then link drivers. ifb and dummy are omitted
// because they create devices when they are loaded, and 8021q because it adds a filter to each device. The
// next groups are queueing disciplines, actions and classifiers, and modules for the firewall, NAT and flow
// offload. CPU-specific ciphers come before generic ones: ciphers for another CPU fail to load, and the
// kernel then uses the generic ones. Without the modules for IPsec, setting up an association fails. The
// modules for probes are last.
var bootModules = strings.Fields(`
	virtio_pci virtio_mmio virtio_console virtio_net virtio_rng

	veth tun bridge

	sch_fq_codel sch_cake sch_fq sch_sfq sch_tbf sch_htb sch_netem sch_ingress cls_u32 cls_matchall
	cls_flower act_police act_mirred act_gact

	nf_conntrack nf_conntrack_netlink nf_tables nft_ct nft_nat nft_masq nft_chain_nat nft_redir nft_limit
	nft_log nf_log_syslog nft_reject nft_reject_inet nft_counter nft_hash nft_quota nf_flow_table
	nf_flow_table_inet nft_flow_offload nft_fib_inet

	aesni_intel ghash_clmulni_intel sha256_ssse3 sha512_ssse3 sha1_ssse3 aes_ce_blk aes_neon_blk ghash_ce
	sha2_ce sha256_arm64 aes_arm64 chacha_neon poly1305_neon

	seqiv echainiv drbg jitterentropy_rng hmac sha1_generic sha256_generic sha512_generic aes_generic ctr
	gcm ghash_generic cbc ecb cmac authenc chacha_generic poly1305_generic chacha20poly1305 xfrm_user
	xfrm_algo esp4 esp6 xfrm_interface wireguard

	inet_diag tcp_diag udp_diag
`)

// bootList returns the list of modules that the guest loads at boot.
func bootList(chosen map[string]*module) string {
	var b strings.Builder
	for _, name := range bootModules {
		if chosen[name] != nil {
			b.WriteString(name + "\n")
		}
	}
	return b.String()
}
