package vm

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

const someVermagic = "vermagic=6.1.0-9-test SMP mod_unload"

// madeTree is a folder of modules of a kernel 6.1.0-9-test for amd64.
func madeTree(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for path, fields := range map[string][]string{
		"kernel/net/ipv6/ip6_udp_tunnel.ko.zst": {"depends="},
		"kernel/net/ipv4/udp_tunnel.ko":         {"depends=ip6_udp_tunnel"},
		"kernel/drivers/net/wireguard/wireguard.ko": {"alias=rtnl-link-wireguard",
			"alias=net-pf-16-proto-16-family-wireguard",
			"depends=udp_tunnel,curve25519-x86_64,ip6_udp_tunnel"},
		"kernel/arch/x86/crypto/curve25519-x86_64.ko": {"alias=crypto-curve25519",
			"depends=libcurve25519-generic"},
		"kernel/lib/crypto/libcurve25519-generic.ko.gz": {"depends="},
		"kernel/fs/nfs/nfs.ko":                          {"depends=sunrpc"},
		"kernel/net/sunrpc/sunrpc.ko":                   {"depends="},
		"kernel/lib/test_bpf.ko":                        {"depends="},
		"kernel/net/sctp/sctp.ko":                       {"softdep=pre: crc32c-soft", "depends=libcrc32c"},
		"kernel/arch/x86/other/crc32c_soft.ko":          {"depends="},
		"kernel/net/sched/sch_cake.ko":                  {"alias=net-sch-cake"},
	} {
		data := madeModule(t, elf.EM_X86_64, append(fields, someVermagic)...)
		switch filepath.Ext(path) {
		case ".gz":
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			z.Write(data)
			z.Close()
			data = b.Bytes()
		case ".zst":
			z, err := zstd.NewWriter(nil)
			must(t, err)
			data = z.EncodeAll(data, nil)
		}

		write(t, filepath.Join(dir, path), data)
	}

	write(t, filepath.Join(dir, "modules.builtin"), []byte("kernel/lib/libcrc32c.ko\n"))
	return dir
}

func write(t testing.TB, name string, data []byte) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(name), 0o755))
	must(t, os.WriteFile(name, data, 0o755))
}

func TestModuleClosure(t *testing.T) {
	tree, err := openModules(madeTree(t), amd64(t))
	must(t, err)
	chosen, err := tree.choose(t.Context(), wantedModule)
	must(t, err)
	dep, alias := moduleLists(chosen)
	const wantDep = `kernel/arch/x86/crypto/curve25519-x86_64.ko: kernel/lib/crypto/libcurve25519-generic.ko
kernel/arch/x86/other/crc32c_soft.ko:
kernel/drivers/net/wireguard/wireguard.ko: kernel/arch/x86/crypto/curve25519-x86_64.ko kernel/lib/crypto/libcurve25519-generic.ko kernel/net/ipv4/udp_tunnel.ko kernel/net/ipv6/ip6_udp_tunnel.ko
kernel/lib/crypto/libcurve25519-generic.ko:
kernel/net/ipv4/udp_tunnel.ko: kernel/net/ipv6/ip6_udp_tunnel.ko
kernel/net/ipv6/ip6_udp_tunnel.ko:
kernel/net/sched/sch_cake.ko:
kernel/net/sctp/sctp.ko:
`
	expect.Same(t, "modules.dep", wantDep, dep)
	const wantAlias = `alias crypto-curve25519 curve25519_x86_64
alias rtnl-link-wireguard wireguard
alias net-pf-16-proto-16-family-wireguard wireguard
alias net-sch-cake sch_cake
`
	expect.Same(t, "modules.alias", wantAlias, alias)
	if got, err := releaseOf(chosen); err != nil || got != "6.1.0-9-test" {
		t.Errorf("release: got %q, %v; want 6.1.0-9-test", got, err)
	}

	expect.Same(t, "boot list", "sch_cake\nwireguard\n", bootList(chosen))
}

// TestDependencyOrder: loaded from right to left, each module finds what it needs; a circle, which no
// kernel has, does not hang.
func TestDependencyOrder(t *testing.T) {
	chosen := map[string]*module{}
	for name, depends := range map[string][]string{"a": {"b", "c"}, "b": {"d"}, "c": {"b", "e"}, "d": nil,
		"e": {"d"}, "x": {"y"}, "y": {"x", "builtin"}} {
		chosen[name] = &module{name: name, path: name + ".ko", modinfo: modinfo{depends: depends}}
	}

	loaded := map[string]bool{}
	list := dependencies(chosen, "a")
	for _, m := range slices.Backward(list) {
		for _, d := range m.depends {
			if !loaded[d] {
				t.Errorf("%s is loaded before %s, which it needs", m.name, d)
			}
		}

		loaded[m.name] = true
	}

	if len(list) != 4 || loaded["a"] {
		t.Errorf("dependencies of a: got %v, want b, c, d, e", loaded)
	}

	got := dependencies(chosen, "x")
	if len(got) != 1 || got[0].name != "y" {
		t.Errorf("dependencies in a circle: got %v, want y", got)
	}
}

func TestModulesOfAnotherKernelAreRefused(t *testing.T) {
	for name, file := range map[string][]byte{
		"another machine": madeModule(t, elf.EM_AARCH64, someVermagic),
		"another release": madeModule(t, elf.EM_X86_64, "vermagic=5.10.0 SMP"),
		"no release":      madeModule(t, elf.EM_X86_64, "depends="),
		"no module":       []byte("text"),
		"cut off":         madeModule(t, elf.EM_X86_64, someVermagic)[:90],
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "kernel/net/a.ko"), madeModule(t, elf.EM_X86_64, someVermagic))
		write(t, filepath.Join(dir, "kernel/net/b.ko"), file)
		if release, err := addModules(t.Context(), archive{}, dir, amd64(t)); err == nil || release != "" {
			t.Errorf("%s: got release %q, %v; want an error", name, release, err)
		}
	}
}

func TestWantedModule(t *testing.T) {
	for path, want := range map[string]bool{
		"kernel/net/sched/sch_cake.ko": true, "kernel/net/bluetooth/bluetooth.ko": false,
		"kernel/drivers/net/virtio_net.ko.xz": true, "kernel/drivers/net/ethernet/intel/ice/ice.ko": false,
		"kernel/arch/x86/crypto/aesni-intel.ko": true, "kernel/arch/x86/kvm/kvm.ko": false,
		"kernel/lib/test_bpf.ko": false, "kernel/crypto/tcrypt.ko": false, "sch_cake.ko": true,
		"updates/dkms/ipt_NETFLOW.ko": true, "kernel/fs/ext4/ext4.ko": false,
	} {
		base, _, _ := strings.Cut(filepath.Base(path), ".ko")
		expect.Same(t, path, want, wantedModule(normalName(base), path))
	}
}

func TestParseModinfo(t *testing.T) {
	got := parseModinfo("license=GPL\x00alias=crypto-gcm\x00alias=with " +
		"blank\x00alias=\x00depends=gf128mul,ghash-generic\x00softdep=pre: a-b post: c\x00vermagic=6.1 " +
		"SMP\x00garbage\x00")
	want := modinfo{
		depends: []string{"gf128mul", "ghash_generic"},
		soft:    []string{"a_b", "c"},
		aliases: []string{"crypto-gcm"},
		release: "6.1",
	}
	expect.Same(t, "modinfo", want, got, cmp.AllowUnexported(modinfo{}))
}

func FuzzModinfo(f *testing.F) {
	f.Add(madeModule(f, elf.EM_X86_64, "alias=crypto-gcm", "depends=a,b", "softdep=pre: c", someVermagic))
	f.Add(madeModule(f, elf.EM_MIPS))
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, file []byte) {
		e, info, err := readModinfo(file)
		if err != nil {
			if e != nil || !cmp.Equal(info, modinfo{}, cmp.AllowUnexported(modinfo{})) {
				t.Fatalf("error %v: got %+v with it, want nothing", err, info)
			}
			return
		}

		for _, name := range append(info.depends, info.soft...) {
			if name == "" || strings.ContainsAny(name, "/\n-") {
				t.Fatalf("name of a module: got %q", name)
			}
		}

		for _, a := range info.aliases {
			if len(strings.Fields(a)) != 1 {
				t.Fatalf("alias: got %q, want one word", a)
			}
		}
	})
}
