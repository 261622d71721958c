package guest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

const (
	dependencies = `kernel/crypto/gf128mul.ko:
kernel/crypto/ghash-generic.ko: kernel/crypto/gf128mul.ko
kernel/arch/x86/crypto/ghash-clmulni-intel.ko: kernel/crypto/cryptd.ko
kernel/crypto/cryptd.ko:
kernel/drivers/net/wireguard/wireguard.ko: kernel/net/ipv4/udp_tunnel.ko kernel/net/ipv6/ip6_udp_tunnel.ko kernel/lib/curve25519.ko
kernel/net/ipv4/udp_tunnel.ko: kernel/net/ipv6/ip6_udp_tunnel.ko
kernel/net/ipv6/ip6_udp_tunnel.ko:
kernel/lib/curve25519.ko:
kernel/net/sched/sch_cake.ko:
`
	aliases = `# Aliases extracted from modules themselves.
alias crypto-ghash ghash_clmulni_intel
alias crypto-ghash ghash_generic
alias crypto-ghash-clmulni ghash_clmulni_intel
alias rtnl-link-wireguard wireguard
alias net-pf-16-proto-16-family-wireguard wireguard
alias pci:v00001AF4d*sv*sd*bc*sc*i* virtio_pci
alias net-sch-cake absent
`
	builtin = `kernel/net/ipv6/ipv6.ko
kernel/crypto/crypto_null.ko
`
)

// someModules is a folder of lists, and the log of what the kernel was given. refuse says what the kernel
// answers, by the module's name.
func someModules(t *testing.T, refuse map[string]error) (*modules, *[]string) {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{"modules.dep": dependencies, "modules.alias": aliases,
		"modules.builtin": builtin} {
		must(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o644))
	}

	var log []string
	m, err := openModules(root, func(file string) error {
		if !strings.HasPrefix(file, root+"/kernel/") {
			t.Errorf("file: got %s, want it below %s/kernel", file, root)
		}

		log = append(log, moduleName(file))
		return refuse[moduleName(file)]
	})
	must(t, err)
	return m, &log
}

func TestModprobe(t *testing.T) {
	tests := []struct {
		name   string
		args   string
		refuse map[string]error
		loaded []string
		err    error
	}{
		{"by name", "-q -- wireguard", nil, []string{"curve25519", "ip6_udp_tunnel", "udp_tunnel",
			"wireguard"}, nil},
		{"by name with dashes", "-q -- sch-cake", nil, []string{"sch_cake"}, nil},
		{"by alias", "-q -- rtnl-link-wireguard", nil, []string{"curve25519", "ip6_udp_tunnel", "udp_tunnel",
			"wireguard"}, nil},
		{"all of an alias", "-q -- crypto-ghash", nil, []string{"cryptd", "ghash_clmulni_intel", "gf128mul",
			"ghash_generic"}, nil},
		{"one of an alias is enough", "-q -- crypto-ghash",
			map[string]error{"ghash_clmulni_intel": syscall.ENODEV},
			[]string{"cryptd", "ghash_clmulni_intel", "gf128mul", "ghash_generic"}, nil},
		{"none of an alias", "-q -- crypto-ghash", map[string]error{"ghash_clmulni_intel": syscall.ENODEV,
			"gf128mul": syscall.ENOMEM},
			[]string{"cryptd", "ghash_clmulni_intel", "gf128mul"}, syscall.ENODEV},
		{"there already", "-q -- wireguard", map[string]error{"wireguard": syscall.EEXIST,
			"udp_tunnel": syscall.EEXIST},
			[]string{"curve25519", "ip6_udp_tunnel", "udp_tunnel", "wireguard"}, nil},
		{"missing dependency", "wireguard", map[string]error{"ip6_udp_tunnel": os.ErrNotExist},
			[]string{"curve25519", "ip6_udp_tunnel"}, os.ErrNotExist},
		{"part of the kernel", "-q -- crypto-null", nil, nil, nil},
		{"unknown", "-q -- net-pf-38", nil, nil, errUnknown},
		{"alias of a module that the image lacks", "-q -- net-sch-cake", nil, nil, errUnknown},
		{"each once", "-a wireguard rtnl-link-wireguard crypto-ghash ghash_generic", nil,
			[]string{"curve25519", "ip6_udp_tunnel", "udp_tunnel", "wireguard", "cryptd",
				"ghash_clmulni_intel", "gf128mul", "ghash_generic"}, nil},
		{"others after one that fails", "none sch_cake", nil, []string{"sch_cake"}, errUnknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, log := someModules(t, tt.refuse)
			names, _, err := parseRequest(strings.Fields(tt.args))
			must(t, err)
			err = m.wantAll(names)
			expect.Same(t, "loaded", tt.loaded, *log)
			if !errors.Is(err, tt.err) || err != nil && tt.err == nil {
				t.Errorf("error: got %v, want %v", err, tt.err)
			}
		})
	}
}

func TestImageWithoutModules(t *testing.T) {
	m, err := openModules(t.TempDir(), func(file string) error {
		t.Errorf("loaded: got %s, want nothing", file)
		return nil
	})
	must(t, err)
	expect.Error(t, "error", m.want("crypto-ghash"), errUnknown)
}

func TestParseRequest(t *testing.T) {
	for args, want := range map[string][]string{
		"-q -- crypto-ghash": {"crypto-ghash"},
		"-q -- -odd":         {"-odd"},
		"tun":                {"tun"},
		"-a tun veth":        {"tun", "veth"},
	} {
		got, quiet, err := parseRequest(strings.Fields(args))
		diff := cmp.Diff(want, got)
		if diff != "" || err != nil || quiet != strings.HasPrefix(args, "-q") {
			t.Errorf("modprobe %s: %v, quiet %v (-want +got):\n%s", args, err, quiet, diff)
		}
	}

	for _, args := range []string{"", "-q --", "-r tun", "nf_conntrack hashsize=1"} {
		if got, _, err := parseRequest(strings.Fields(args)); err == nil || got != nil {
			t.Errorf("modprobe %s: got %v, want an error and nothing else", args, got)
		}
	}
}

func FuzzParseDependencies(f *testing.F) {
	f.Add(dependencies)
	f.Add("../../etc/x.ko: /etc/y.ko\n:\n.ko:\n a.ko :b.ko")
	f.Add("0 /0.ko:")
	f.Fuzz(func(t *testing.T, text string) {
		for name, files := range parseDependencies(text) {
			if name == "" || name != normal(name) || len(files) == 0 {
				t.Fatalf("module %q: got %q, want a name and a file", name, files)
			}

			for _, file := range files {
				if !filepath.IsLocal(file) {
					t.Fatalf("module %q: got file %q, want it below the list's folder", name, file)
				}
			}
		}
	})
}

func FuzzParseAliases(f *testing.F) {
	f.Add(aliases, "crypto-ghash")
	f.Add("alias * x\nalias [a b\nalias a\nalias a b c\n", "a")
	f.Fuzz(func(t *testing.T, text, name string) {
		seen := map[string]bool{}
		for _, module := range parseAliases(text, normal(name)) {
			if seen[module] || module == "" || module != normal(module) || !strings.Contains(normal(text),
				module) {
				t.Fatalf("alias %q: got module %q, want one of the list, once", name, module)
			}

			seen[module] = true
		}

		builtIn(text, normal(name))
	})
}
