package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// needs skips a test where a program is not installed.
func needs(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("no %s here", program)
	}
}

// madeRelease is a release of small files, from this test's program, in a folder of its own. at is the time
// of its files, which must not matter.
func madeRelease(t *testing.T, at time.Time) (*release, binary) {
	t.Helper()
	dir := t.TempDir()
	r := &release{
		source:  "..",
		work:    filepath.Join(dir, "work"),
		output:  filepath.Join(dir, "out"),
		version: "0.0.0-20261130154822-8b667f55abcd",
		time:    time.Date(2026, 11, 30, 15, 48, 22, 0, time.UTC),

		licences: map[string][]string{},
	}
	must(t, os.Mkdir(r.work, 0o755))
	must(t, os.Mkdir(r.output, 0o755))
	self, err := os.Executable()
	must(t, err)
	b := binary{
		name:   programName,
		target: target{"linux", "amd64"},
		path:   r.path("chokepoint"),
	}
	b.info, err = buildinfo.ReadFile(self)
	must(t, err)
	agent := b
	agent.name, agent.target, agent.path = agentName, target{"linux", "mipsle"}, r.path("agent-linux-mipsel")
	r.built = []binary{agent, b}
	for _, name := range []string{b.path, agent.path, r.path(thirdParty), r.path(agentThirdParty)} {
		must(t, os.WriteFile(name, []byte(filepath.Base(name)), 0o600))
		must(t, os.Chtimes(name, at, at))
	}

	return r, b
}

// TestPackagesAreReproducible: the same files give the same packages, whatever their folder and times.
func TestPackagesAreReproducible(t *testing.T) {
	var sums []string
	for _, at := range []time.Time{time.Unix(1e9, 0), time.Now()} {
		r, b := madeRelease(t, at)
		must(t, r.pack(b))
		must(t, r.pack(r.built[0]))
		elsewhere := r.built[0]
		elsewhere.target = target{"darwin", "arm64"}
		must(t, r.pack(elsewhere))
		must(t, r.writeSums())
		text, err := os.ReadFile(filepath.Join(r.output, "SHA256SUMS"))
		must(t, err)
		sums = append(sums, string(text))
		for _, ending := range []string{".deb", ".rpm", ".apk", "_openwrt-mipsel.ipk",
			"-linux-amd64.tar.gz", "-darwin-arm64.tar.gz"} {
			if !slices.ContainsFunc(r.published, func(name string) bool {
				return strings.HasSuffix(name, ending)
			}) {
				t.Errorf("packages: got %q, want one that ends in %s", r.published, ending)
			}
		}
	}

	if sums[0] != sums[1] {
		t.Errorf("checksums differ:\n%s\n%s", sums[0], sums[1])
	}
}

// TestTarball: names, modes and owners are the package's own.
func TestTarball(t *testing.T) {
	r, b := madeRelease(t, time.Now())
	must(t, r.tarball("chokepoint-1", r.files(b, r.path(thirdParty))))
	packed, err := os.Open(filepath.Join(r.output, "chokepoint-1.tar.gz"))
	must(t, err)
	defer packed.Close()
	modes := contents(t, packed)
	for name, mode := range map[string]int64{"bin/chokepoint": 0o755,
		"lib/chokepoint/agent-linux-mipsel":          0o755,
		"lib/systemd/system/chokepoint-peer.service": 0o644, "lib/systemd/system/chokepoint-bed@.service": 0o644,
		"share/doc/chokepoint/THIRD-PARTY":                     0o644,
		"share/doc/chokepoint/LICENSE":                         0o644,
		"share/doc/chokepoint/SECURITY.md":                     0o644, // pages link to it
		"share/doc/chokepoint/docs/reference/show.schema.json": 0o644} {
		if got, ok := modes["chokepoint-1/"+name]; !ok || got != mode {
			t.Errorf("%s: got mode %o, there: %v; want %o", name, got, ok, mode)
		}
	}
}

// TestMetadataOfApk: each line is a key with its value, which is all that apk reads.
func TestMetadataOfApk(t *testing.T) {
	r, b := madeRelease(t, time.Now())
	must(t, r.packProgram(b, r.files(b, r.path(thirdParty))))
	found, err := filepath.Glob(filepath.Join(r.output, "*.apk"))
	must(t, err)
	packed, err := os.Open(found[0])
	must(t, err)
	defer packed.Close()
	unzipped, err := gzip.NewReader(packed)
	must(t, err)
	archive := tar.NewReader(unzipped)
	first, err := archive.Next()
	must(t, err)
	text, err := io.ReadAll(archive)
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") && !strings.Contains(line, " = ") {
			t.Errorf("%s: got the line %q, want a key and its value", first.Name, line)
		}
	}
}

// contents returns the modes of the files in a compressed tar archive.
func contents(t *testing.T, packed io.Reader) map[string]int64 {
	t.Helper()
	unzipped, err := gzip.NewReader(packed)
	must(t, err)
	archive := tar.NewReader(unzipped)
	modes := map[string]int64{}
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return modes
		}

		must(t, err)
		modes[h.Name] = h.Mode
	}
}

// TestPackageVersion: each version is later than the one before it, as apk, rpm and dpkg order them.
func TestPackageVersion(t *testing.T) {
	_, err := exec.LookPath("dpkg")
	dpkg, before := err == nil, ""
	for _, tt := range []struct{ version, deb, apk string }{
		{"0.0.0-20261130154822-8b667f55abcd", "0.0.0~alpha.0.0.20261130154822.8b667f55abcd",
			"0.0.0_alpha0_git20261130154822"},
		{"0.0.0-20261130154823-0b667f55abcd", "0.0.0~alpha.0.0.20261130154823.0b667f55abcd",
			"0.0.0_alpha0_git20261130154823"},
		{"1.2.3-0.20261130154822-8b667f55abcd", "1.2.3~alpha.0.0.20261130154822.8b667f55abcd",
			"1.2.3_alpha0_git20261130154822"},
		{"1.2.3-alpha.1", "1.2.3~alpha.1", "1.2.3_alpha1"},
		{"1.2.3-alpha.1.0.20261130154822-8b667f55abcd", "1.2.3~alpha.1.0.20261130154822.8b667f55abcd",
			"1.2.3_alpha1_git20261130154822"},
		{"1.2.3-later", "1.2.3~later", ""},
		{"1.2.3-rc.1", "1.2.3~rc.1", "1.2.3_rc1"},
		{"1.2.3-rc.1.0.20261130154822-8b667f55abcd", "1.2.3~rc.1.0.20261130154822.8b667f55abcd",
			"1.2.3_rc1_git20261130154822"},
		{"1.2.3-rc.10", "1.2.3~rc.10", "1.2.3_rc10"},
		{"1.2.3", "1.2.3", "1.2.3"},
	} {
		got, err := packageVersion("deb", tt.version)
		if err != nil || got != tt.deb {
			t.Errorf("%s for deb: got %q, %v; want %q", tt.version, got, err, tt.deb)
		}

		if dpkg && before != "" {
			if err := exec.Command("dpkg", "--compare-versions", before, "lt", got).Run(); err != nil {
				t.Errorf("dpkg: want %s before %s: %v", before, got, err)
			}
		}

		before = got
		got, err = packageVersion("apk", tt.version)
		if got != tt.apk || (err == nil) != (tt.apk != "") {
			t.Errorf("%s for apk: got %q, %v; want %q", tt.version, got, err, tt.apk)
		}
	}
}

func TestChoose(t *testing.T) {
	got, err := choose("agents", "linux/mipsle,linux/arm,linux/arm", agentTargets())
	want := []target{{"linux", "mipsle"}, {"linux", "arm"}}
	if err != nil || !slices.Equal(got, want) || got[0].name() != "linux-mipsel" {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}

	if _, err := choose("programs", "linux/mipsle", programTargets()); err == nil {
		t.Error("a program for mipsle: got no error")
	}
}

// TestLicences: what a module's licence files say is passed on, and a module without any is refused.
func TestLicences(t *testing.T) {
	ours, err := os.ReadFile("../LICENSE")
	must(t, err)
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "a/testdata"), 0o755))
	if _, _, err := licencesIn(dir); err == nil {
		t.Error("without a licence: got no error")
	}

	for name, text := range map[string]string{"LICENSE": string(ours), "a/NOTICE.txt": "by us",
		"license.go": "x", "a/testdata/COPYING": "not ours", "a/LICENSE-2": string(ours)} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}

	text, ids, err := licencesIn(dir)
	if err != nil || !slices.Equal(ids, []string{"Apache-2.0"}) {
		t.Errorf("identifiers: got %q, %v; want Apache-2.0", ids, err)
	}

	if !strings.Contains(text, "--- a/NOTICE.txt\n\nby us\n") || strings.Contains(text, "not ours") ||
		strings.Count(text, "END OF TERMS") != 1 {
		t.Errorf("text: got %s", text)
	}
}

// TestThirdParty: the text of each dependency's licence is passed on, and of Go's.
func TestThirdParty(t *testing.T) {
	r, b := madeRelease(t, time.Now())
	must(t, r.writeLicences(t.Context(), thirdParty, b))
	text, err := os.ReadFile(r.path(thirdParty))
	must(t, err)
	sections := strings.Split(string(text), "\n"+strings.Repeat("=", 78)+"\n")
	for i, m := range modules(b) {
		if name, body := sections[1+2*i], sections[2+2*i]; !strings.HasPrefix(name, m+" (") ||
			!strings.Contains(body, "opyright") {
			t.Errorf("%s: got %s\n%s", m, name, body)
		}
	}

	if ids := r.licences["github.com/goreleaser/nfpm/v2@v2.45.2"]; !slices.Equal(ids, []string{"MIT"}) {
		t.Errorf("nfpm: got %q, want MIT", ids)
	}
}

// TestBillOfMaterials holds a bill to the schema of CycloneDX, from the module whose types it uses.
func TestBillOfMaterials(t *testing.T) {
	r, b := madeRelease(t, time.Now())
	for _, m := range modules(b) {
		r.licences[m] = []string{"MIT"}
	}

	path := r.path("bill")
	must(t, r.writeBill(path, b))
	text, err := os.ReadFile(path)
	must(t, err)
	listed, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/CycloneDX/cyclonedx-go").Output()
	must(t, err)
	const at = "http://cyclonedx.org/schema/"
	compiler := jsonschema.NewCompiler()
	for name, file := range map[string]string{"bom-1.6.schema.json": "bom-1.6.schema.json",
		"spdx.schema.json": "spdx.schema.json", "jsf-0.82.schema.json": "jsf-0.82.schemax.json"} {
		text, err := os.Open(filepath.Join(strings.TrimSpace(string(listed)), "schema", file))
		must(t, err)
		defer text.Close()
		schema, err := jsonschema.UnmarshalJSON(text)
		must(t, err)
		must(t, compiler.AddResource(at+name, schema))
	}

	compiled, err := compiler.Compile(at + "bom-1.6.schema.json")
	must(t, err)
	bill, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	must(t, err)
	if err := compiled.Validate(bill); err != nil {
		t.Errorf("the schema: %v", err)
	}

	broken, err := jsonschema.UnmarshalJSON(strings.NewReader(`{"bomFormat": "CycloneDX"}`))
	must(t, err)
	if compiled.Validate(broken) == nil {
		t.Error("a bill without a version: got no error of the schema")
	}

	for _, want := range []string{`"pkg:golang/std@1.`, `"pkg:golang/github.com/goreleaser/nfpm/v2@v2.`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the bill: got %s, want %s in it", text, want)
		}
	}
}

// TestSchemas: each schema of docs/reference is as its draft wants it.
func TestSchemas(t *testing.T) {
	files, err := filepath.Glob("../docs/reference/*.schema.json")
	must(t, err)
	if len(files) == 0 {
		t.Fatal("got no schema, want some")
	}

	for _, file := range files {
		if _, err := jsonschema.NewCompiler().Compile(file); err != nil {
			t.Error(err)
		}
	}
}

// TestWrongArchitecture: the package of the agent refuses a router of another architecture.
func TestWrongArchitecture(t *testing.T) {
	check, err := os.ReadFile("files/check-arch.sh")
	must(t, err)
	root := t.TempDir()
	must(t, os.Mkdir(filepath.Join(root, "etc"), 0o755))
	for arch, ok := range map[string]bool{"mips_24kc": true, "mipsel_24kc": false, "mips64_octeonplus": false,
		"": true} {
		release := filepath.Join(root, "etc/openwrt_release")
		must(t, os.WriteFile(release, []byte("DISTRIB_ARCH='"+arch+"'\n"), 0o644))
		text := strings.ReplaceAll(string(check), "@ARCH@", openWrt(target{"linux", "mips"}))
		script := exec.Command("sh", "-c", text)
		script.Env = append(os.Environ(), "IPKG_INSTROOT="+root)
		out, err := script.CombinedOutput()
		if (err == nil) != ok {
			t.Errorf("%q: got %v, %s; want it accepted: %v", arch, err, out, ok)
		}
	}
}

// TestMaintainerScript: an upgrade restarts a peer that runs, and nothing is ever started.
func TestMaintainerScript(t *testing.T) {
	script, err := os.ReadFile("files/installed.sh")
	must(t, err)
	dir := t.TempDir()
	said := filepath.Join(dir, "said")
	for _, name := range []string{"systemctl", "deb-systemd-invoke"} {
		fake := "#!/bin/sh\necho ${0##*/} $* >>" + said + "\n"
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(fake), 0o755))
	}

	const reload = "systemctl daemon-reload\n"
	const restart = "deb-systemd-invoke try-restart chokepoint-peer.service chokepoint-bed@*.service\n"
	for _, tt := range []struct{ runs, args, want string }{
		{dir, "configure", reload},
		{dir, "configure 1.0", reload + restart},
		{dir, "abort-upgrade 1.0", reload},
		{dir, "1", reload},
		{dir, "2", reload + restart},
		{dir + "/none", "configure 1.0", ""},
	} {
		must(t, os.WriteFile(said, nil, 0o644))
		text := strings.ReplaceAll(string(script), "/run/systemd/system", tt.runs)
		run := exec.Command("sh", append([]string{"-ec", text, "postinst"}, strings.Fields(tt.args)...)...)
		run.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := run.CombinedOutput()
		must(t, err)
		if got, err := os.ReadFile(said); err != nil || string(got) != tt.want {
			t.Errorf("%q: got %q, %v, %s; want %q", tt.args, got, err, out, tt.want)
		}
	}
}

// TestShallowClone: a clone without its history, which would be packed as another version, is refused.
func TestShallowClone(t *testing.T) {
	needs(t, "git")
	source, shallow := t.TempDir(), t.TempDir()
	author := []string{"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b"}
	for _, args := range [][]string{
		{"init", "-q"},
		{"commit", "-q", "--allow-empty", "-m", "1"},
		{"commit", "-q", "--allow-empty", "-m", "2"},
		{"clone", "-q", "--depth", "1", "file://" + source, shallow},
	} {
		_, err := command(t.Context(), source, author, "git", args...)
		must(t, err)
	}

	for dir, want := range map[string]string{source: "go build", shallow: "git fetch --unshallow --tags"} {
		if _, err := newRelease(t.Context(), dir, t.TempDir(), t.TempDir()); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q in it", dir, err, want)
		}
	}
}

// TestSign: ssh-keygen accepts the signature of these checksums by this key, and of no others. New checksums
// have none.
func TestSign(t *testing.T) {
	needs(t, "ssh-keygen")
	dir := t.TempDir()
	r := &release{output: dir}
	key, signers := filepath.Join(dir, "key"), filepath.Join(dir, "signers")
	_, err := command(t.Context(), dir, nil, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
	must(t, err)
	public, err := os.ReadFile(key + ".pub")
	must(t, err)
	must(t, os.WriteFile(signers, append([]byte("us "), public...), 0o644))
	verify := func() error {
		sums, err := os.Open(r.sums())
		must(t, err)
		defer sums.Close()
		cmd := exec.Command("ssh-keygen", "-Y", "verify", "-n", "chokepoint", "-I", "us", "-f", signers,
			"-s", r.sums()+".sig")
		cmd.Stdin = sums
		return cmd.Run()
	}
	for range 2 {
		must(t, r.writeSums())
		if _, err := os.Stat(r.sums() + ".sig"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("new checksums: got %v of their signature, want none", err)
		}

		must(t, r.sign(t.Context(), key))
		must(t, verify())
	}

	must(t, os.WriteFile(r.sums(), []byte("others"), 0o644))
	if verify() == nil {
		t.Error("other checksums: their signature was accepted")
	}
}
