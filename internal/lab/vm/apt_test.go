package vm

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

func remember(t *testing.T, r Recipe, known resolved) {
	t.Helper()
	b, err := json.Marshal(known)
	must(t, err)
	must(t, os.WriteFile(r.resolvedFile(), b, 0o600))
}

func TestParsePolicy(t *testing.T) {
	const out = `linux-image-cloud-amd64:
  Installed: (none)
  Candidate: 6.1.192-2
  Version table:
     6.1.192-2 500
        500 http://deb.debian.org/debian-security bookworm-security/main amd64 Packages
virtual:
  Installed: (none)
  Candidate: (none)
openvpn:
  Installed: (none)
  Candidate: 2.6.14-0+deb12u2
`
	expect.Same(t, "candidates", []string{"linux-image-cloud-amd64", "openvpn"}, parsePolicy(out))
}

func TestParseSimulation(t *testing.T) {
	const out = `Reading package lists...
The following NEW packages will be installed:
  dash iproute2
Inst libc6 (2.36-9+deb12u14 Debian:12.15/oldstable [amd64]) []
Inst libxtables12 (1:1.8.9-2 Debian:12.15/oldstable, Debian-Security:12/oldstable-security [amd64])
Inst old [1.0] (2.0 Debian:12.15/oldstable [all]) [x:amd64 ]
Inst foreign:arm64 (1 Debian:12 [arm64])
Inst ../../evil (1 Debian:12 [all])
Inst broken (1
Conf libc6 (2.36-9+deb12u14 Debian:12.15/oldstable [amd64])
`
	want := []aptItem{
		{"foreign", "1", "arm64"}, {"libc6", "2.36-9+deb12u14", "amd64"},
		{"libxtables12", "1:1.8.9-2", "amd64"}, {"old", "2.0", "all"},
	}
	got := parseSimulation(out)
	diff := cmp.Diff(want, got)
	if diff != "" {
		t.Fatalf("packages (-want +got):\n%s", diff)
	}

	expect.Same(t, "archive", "libxtables12_1%3a1.8.9-2_amd64.deb", got[2].file())
}

func TestParseURIs(t *testing.T) {
	const out = `Reading package lists...
'http://deb.debian.org/debian/pool/main/i/iptables/libxtables12_1.8.9-2_amd64.deb' libxtables12_1%3a1.8.9-2_amd64.deb 30596 SHA256:ab12
'http://deb.debian.org/debian/pool/x.deb' x_1_all.deb 1 MD5Sum:00
`
	expect.Same(t, "sums", map[string]string{"libxtables12_1%3a1.8.9-2_amd64.deb": "ab12"}, parseURIs(out))
}

// TestDownloadChecksTheCache: an archive that was changed since, its size as it was, is not unpacked but
// fetched again; what cannot be had as the lists have it is an error. apt-get is a script here.
func TestDownloadChecksTheCache(t *testing.T) {
	bin := t.TempDir()
	dir := t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	a := apt{dir: dir, say: t.Logf}
	item := aptItem{"x", "1", "all"}
	archive := filepath.Join(dir, "cache/archives", item.file())
	must(t, os.MkdirAll(filepath.Dir(archive), 0o700))
	sum := sha256.Sum256([]byte("good"))
	aptGet := func(serves string) {
		t.Helper()
		script := fmt.Sprintf(`#!/bin/sh
to=%s
for a in "$@"; do case "$a" in Dir::Cache::archives=*) to=${a#*=};; esac; done
case "$*" in *--print-uris*) echo "'http://x/' %s 4 SHA256:%x";; *) printf %s >"$to/%s";; esac
`, filepath.Dir(archive), item.file(), sum, serves, item.file())
		must(t, os.WriteFile(filepath.Join(bin, "apt-get"), []byte(script), 0o700))
	}
	for _, tt := range []struct{ cached, serves, want string }{
		{"", "good", "good"}, {"good", "none", "good"}, {"evil", "good", "good"}, {"evil", "evil", ""},
	} {
		aptGet(tt.serves)
		os.Remove(archive)
		if tt.cached != "" {
			must(t, os.WriteFile(archive, []byte(tt.cached), 0o600))
		}

		files, err := a.download(t.Context(), []aptItem{item})
		if tt.want == "" {
			expect.Error(t, fmt.Sprintf("%+v", tt), err, errOutdated)
			continue
		}

		if err != nil || len(files) != 1 {
			t.Errorf("%+v: got %q, %v, want the archive", tt, files, err)
			continue
		}

		if b, err := os.ReadFile(files[0]); err != nil || string(b) != tt.want {
			t.Errorf("%+v: got %q, %v", tt, b, err)
		}
	}
}

// TestAptKeepsItsSandbox: as root apt-get takes from the network as its own user, who can write where it is
// to. So nothing that we say names another, and the folder that it gets is in a public one.
func TestAptKeepsItsSandbox(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skip: only root has rights to give up")
	}

	bin := t.TempDir()
	dir := t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	script := `#!/bin/sh
echo "$@" >` + dir + `/said
for a in "$@"; do case "$a" in Dir::State::lists=*) stat -c %a "${a#*=}" >` + dir + `/mode;; esac; done
`
	a := apt{dir: dir, say: t.Logf}
	must(t, errors.Join(os.WriteFile(filepath.Join(bin, "apt-get"), []byte(script), 0o700),
		os.Mkdir(filepath.Join(dir, "lists"), 0o700), a.fetch(t.Context(), "Dir::State::lists", "lists",
			"update")))
	said, err1 := os.ReadFile(filepath.Join(dir, "said"))
	mode, err2 := os.ReadFile(filepath.Join(dir, "mode"))
	if err1 != nil || err2 != nil || string(mode) != "755\n" || !strings.Contains(string(said),
		"Dir::State::lists="+lentDirs) {
		t.Errorf("got %q, mode %q, %v, want a public folder", said, mode, errors.Join(err1, err2))
	}

	for _, text := range []string{string(said), a.config()} {
		if strings.Contains(strings.ToLower(text), "apt::sandbox") {
			t.Errorf("got %s, want the sandbox left as apt has it", text)
		}
	}
}

func FuzzAptOutput(f *testing.F) {
	f.Add("Inst libc6 (2.36-9 Debian:12.15/oldstable [amd64]) []\n")
	f.Add("a:\n  Candidate: 1\n")
	f.Fuzz(func(t *testing.T, out string) {
		for _, i := range parseSimulation(out) {
			if i.Name == "" || i.Version == "" || i.Arch == "" || strings.ContainsAny(i.file(), "/ \n") {
				t.Fatalf("package: got %+v", i)
			}
		}

		for _, name := range parsePolicy(out) {
			if name == "" {
				t.Fatal("candidate: got an empty name")
			}
		}
	})
}

func TestRewriteSources(t *testing.T) {
	for name, tt := range map[string]struct {
		text   string
		deb822 bool
		arch   string
		want   string
	}{
		"debian as it is": {
			"Types: deb\nURIs: http://deb.debian.org/debian\nSuites: bookworm\nComponents: " +
				"main\nSigned-By: " +
				"/usr/share/keyrings/k.gpg\n", true, "arm64",
			"Types: deb\nURIs: http://deb.debian.org/debian\nSuites: bookworm\nComponents: " +
				"main\nSigned-By: " +
				"/usr/share/keyrings/k.gpg\n",
		},
		"limit of architectures": {
			"Types: deb\nArchitectures: amd64\n i386\nURIs: http://x/\n\nTypes: deb\narchitectures: amd64\n",
			true, "arm64",
			"Types: deb\nURIs: http://x/\n\nTypes: deb\n",
		},
		"ubuntu to ports": {
			"URIs: http://de.archive.ubuntu.com/ubuntu/ https://security.ubuntu.com/ubuntu\nURIs: " +
				"http://deb.debian.org/ubuntu\n", true, "arm64",
			"URIs: http://ports.ubuntu.com/ubuntu-ports/ https://ports.ubuntu.com/ubuntu-ports\nURIs: " +
				"http://deb.debian.org/ubuntu\n",
		},
		"ports to ubuntu": {
			"deb http://ports.ubuntu.com/ubuntu-ports noble main\n", false, "amd64",
			"deb http://archive.ubuntu.com/ubuntu noble main\n",
		},
		"lines": {
			"# comment\n\ndeb [arch=amd64 signed-by=/k.gpg] http://x/ a b\ndeb [ arch=amd64 ]  http://x/ a " +
				"b\ndeb-src http://x/ a b\ndeb http://x/ [b] a\n", false, "arm64",
			"deb [signed-by=/k.gpg] http://x/ a b\ndeb http://x/ a b\ndeb http://x/ [b] a\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			expect.Same(t, "sources", tt.want, rewriteSources(tt.text, tt.deb822, tt.arch))
		})
	}
}

// FuzzRewriteSources: rewriting twice is rewriting once, and an option that says whom to trust stays what
// it is.
func FuzzRewriteSources(f *testing.F) {
	f.Add("Types: deb\nArchitectures: amd64\n i386\nURIs: http://archive.ubuntu.com/ubuntu\n", true)
	f.Add("deb [arch=amd64 signed-by=/k.gpg] http://x/ a b\n", false)
	f.Fuzz(func(t *testing.T, text string, deb822 bool) {
		for _, arch := range []string{"amd64", "arm64"} {
			once := rewriteSources(text, deb822, arch)
			twice := rewriteSources(once, deb822, arch)
			if twice != once {
				t.Fatalf("%s: rewritten twice: got %q, want %q", arch, twice, once)
			}

			if strings.Count(once, "trusted=yes") > strings.Count(text, "trusted=yes") {
				t.Fatalf("%s: got %q, which trusts more than %q", arch, once, text)
			}
		}
	})
}
