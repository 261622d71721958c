package chokepoint_test

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// layers is the rule: a package imports only packages of lower layers, never of its own, never above. A
// package that is missing here fails, so a new one is a decision, written down. docs/architecture.md shows
// the same table.
var layers = [][]string{
	0: {"unit", "check", "labtest/apart", "labtest/killed", "labtest/steady"},
	1: {"catalogue", "factor", "overhead", "qdisc", "analysis/statistics",
		"analysis/evidence", "labtest/expect"},
	2: {"record", "lab/host", "lab/kernel", "probe/bpf", "analysis/model", "cipher"},
	3: {"analysis/method", "analysis/metrics", "analysis/ciphers", "record/store", "progress",
		"lab/journal", "lab/knob",
		"lab/pair", "lab/ssh", "lab/tunnel", "lab/vm/guest", "trial/ciphers", "trial/meter",
		"probe", "trial/traffic", "userfile", "labtest/routeros"},
	4: {"plan", "analysis/validity", "analysis/comparison", "analysis/search", "analysis/diagnosis",
		"analysis/history",
		"trial/watch",
		"trial/traffic/stream", "trial/traffic/frames", "trial/traffic/shortflow", "trial/traffic/latency",
		"trial/traffic/responsiveness", "trial/traffic/iperf3",
		"lab/driver", "lab/vm", "lab/agent", "lab/isp", "lab/labgrid"},
	5: {"analysis", "foreign", "lab", "registry/node", "trial/traffic/ceiling"},
	6: {"trial", "analysis/tuning", "bundle", "labtest/quick"},
	7: {"labtest", "report"},
	8: {"registry"},
	9: {"app"},

	10: {"serve"},
	11: {"bed"},

	12: {"bench/rig"},
	13: {"cmd/*", "bench/*", "dist"},
}

// laterStages lists, for a room, those that it may not import in any layer: a lab and a probe do not know the
// trial that uses them, what measures computes no result, and published results do not depend on how ours are
// computed.
var laterStages = map[string][]string{
	"plan":      {"lab", "probe", "trial", "report", "foreign"},
	"lab":       {"plan", "trial", "analysis", "report", "foreign"},
	"probe":     {"plan", "trial", "analysis", "report", "foreign"},
	"trial":     {"analysis", "report", "foreign"},
	"catalogue": {"analysis"},
	"analysis":  {"plan", "lab", "probe", "trial", "report", "foreign"},
	"report":    {"lab", "probe", "trial"},
}

// layerOf returns the layer of a package, or -1.
func layerOf(pkg string) int {
	for n, names := range layers {
		for _, name := range names {
			if name == pkg {
				return n
			}

			dir, wild := strings.CutSuffix(name, "/*")
			rest, below := strings.CutPrefix(pkg, dir+"/")
			if wild && below && !strings.Contains(rest, "/") {
				return n
			}
		}
	}
	return -1
}

// projectPackage returns the table's name of an imported project package.
func projectPackage(imported string) (string, bool) {
	rest, ok := strings.CutPrefix(imported, module+"/")
	return strings.TrimPrefix(rest, "internal/"), ok
}

func unlisted(t *tree) []string {
	var found []string
	for _, pkg := range t.packages() {
		if layerOf(pkg) < 0 {
			found = append(found, fmt.Sprintf("package %s is missing from the layer table", pkg))
		}
	}
	return found
}

func unusedEntries(t *tree) []string {
	var found []string
	have := t.packages()
	for _, names := range layers {
		for _, name := range names {
			exists := slices.ContainsFunc(have, func(pkg string) bool {
				dir, wild := strings.CutSuffix(name, "/*")
				return pkg == name || wild && strings.HasPrefix(pkg, dir+"/")
			})
			if !exists {
				found = append(found, fmt.Sprintf("layer table names %s, which does not exist", name))
			}
		}
	}

	return found
}

func upwardImports(t *tree) []string {
	var found []string
	for _, f := range t.production() {
		from := layerOf(f.pkg)
		f.imports(func(spec *ast.ImportSpec, _, imported string) {
			pkg, ours := projectPackage(imported)
			to := layerOf(pkg)
			if ours && from >= 0 && to >= from {
				found = append(found, fmt.Sprintf("%s: %s (layer %d) imports %s (layer %d)", t.at(spec),
					f.pkg, from, pkg, to))
			}

			if ours && slices.Contains(laterStages[room(f.pkg)], room(pkg)) {
				found = append(found, fmt.Sprintf("%s: %s imports %s, a later stage", t.at(spec), f.pkg, pkg))
			}

			if ours && to < 0 {
				found = append(found, fmt.Sprintf("%s: %s imports %s, which has no layer", t.at(spec), f.pkg,
					pkg))
			}
		})
	}
	return found
}

// home says where a sensitive dependency may be imported: path is a prefix that ends at a path element.
type home struct {
	path  string
	homes []string
}

var homes = []home{
	{"github.com/vishvananda/netlink", []string{"lab/kernel"}},
	{"github.com/vishvananda/netns", []string{"lab/kernel"}},
	{"github.com/cilium/ebpf", []string{"probe/bpf"}},
	{"github.com/mdlayher", []string{"lab/kernel"}},
	{"github.com/insomniacslk/dhcp", []string{"lab/isp"}},
	{"github.com/safchain/ethtool", []string{"lab/kernel"}},
	{"github.com/google/nftables", []string{"lab/kernel"}},
	{"golang.zx2c4.com/wireguard/wgctrl", []string{"lab/kernel"}},
	// The userspace implementation is a library that runs in the tunnel's own child process.
	{"golang.zx2c4.com/wireguard", []string{"lab/kernel", "lab/tunnel"}},
	// Programs of bench/ drive the built binary and the peers from outside, as a user does.
	// dist builds the release with go and git.
	{"os/exec", []string{"lab/host", "labtest/apart", "labtest/killed", "bench/*", "dist"}},
	{"database/sql", []string{"record/store"}},
	{"modernc.org", []string{"record/store"}},
	{"github.com/jackc", []string{"record/store"}},
	{"github.com/klauspost/compress", []string{"record/store", "lab/vm"}},
	{"html/template", []string{"report"}},
	{"text/template", []string{"report"}},
	{"go.yaml.in/yaml", []string{"plan"}},
	{"github.com/dbos-inc", []string{"bed"}},
	{"github.com/robfig/cron", []string{"bed"}},
	{"github.com/spf13", []string{"cmd/chokepoint"}},
	{"github.com/HdrHistogram", []string{"analysis"}},
	{"github.com/srwiley/rasterx", []string{"report"}},
	{"golang.org/x/crypto", []string{"trial/ciphers"}},
	{"golang.org/x/image", []string{"report"}},
	{"golang.org/x/net", []string{"lab/isp"}},
	{"golang.org/x/term", []string{"progress", "cmd/chokepoint"}},
	{"golang.org/x/text", []string{"progress"}},
	{"os/signal", []string{"lab/agent", "lab/vm/guest", "cmd/*", "bench/*", "dist"}},
	{"github.com/goreleaser/nfpm", []string{"dist"}},
	{"github.com/CycloneDX", []string{"dist"}},
	{"github.com/google/licensecheck", []string{"dist"}},
	{"golang.org/x/perf", nil}, // an oracle, for tests only
	{"github.com/google/jsonschema-go", nil},
	{"github.com/google/go-cmp", []string{"labtest", "labtest/expect"}},
	{"github.com/rogpeppe/go-internal", []string{"labtest"}},
	{"testing", []string{"labtest", "labtest/apart", "labtest/expect", "labtest/killed", "labtest/steady"}},
	{"crypto/tls", []string{"lab/pair"}}, // never in the small agent
	{"crypto/x509", []string{"lab/pair", "lab/tunnel"}},
	// Nothing else here speaks HTTP; the tests play a service.
	{"net/http", []string{"trial/meter", "serve", "bed"}},
	{"unsafe", []string{"lab/kernel", "lab/host", "probe", "probe/bpf", "trial/watch",
		"trial/traffic", "trial/traffic/*"}},
	{"C", nil}, // CGO_ENABLED=0
}

func strayDependencies(t *tree) []string {
	var found []string
	for _, f := range t.production() {
		f.imports(func(spec *ast.ImportSpec, _, imported string) {
			h, ok := homeOf(imported)
			if ok && !slices.ContainsFunc(h.homes, func(name string) bool {
				dir, wild := strings.CutSuffix(name, "/*")
				return f.pkg == name || wild && strings.HasPrefix(f.pkg, dir+"/")
			}) {
				found = append(found, fmt.Sprintf("%s: %s imports %s, whose home is %v", t.at(spec), f.pkg,
					imported, h.homes))
			}
		})
	}
	return found
}

// homeOf returns the first entry whose path is, or contains, the import.
func homeOf(imported string) (home, bool) {
	for _, h := range homes {
		if imported == h.path || strings.HasPrefix(imported, h.path+"/") {
			return h, true
		}
	}
	return home{}, false
}

// pure packages compute: no files, no network, no clock, no output, and no randomness that a seed does not
// decide.
var pure = []string{"unit", "check", "cipher", "factor", "overhead", "qdisc", "record", "plan", "analysis",
	"analysis/method", "analysis/statistics", "analysis/evidence", "analysis/metrics", "analysis/search", "analysis/validity",
	"analysis/comparison",
	"analysis/diagnosis", "analysis/ciphers", "analysis/model", "catalogue", "bundle"}

var impureImports = []string{"os", "net", "syscall", "golang.org/x/sys", "crypto/rand", "log", "io/ioutil",
	"plugin"}

// impureMembers are functions that a pure package may not call; types and constants of the same packages
// are fine.
var impureMembers = map[string][]string{
	"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
	"fmt":  {"Print", "Printf", "Println", "Scan", "Scanf", "Scanln"},
}

// seededRandom are the members of math/rand that take or carry a seed.
var seededRandom = []string{"New", "NewPCG", "NewChaCha8", "NewSource", "NewZipf", "Rand", "Source",
	"Source64", "PCG", "ChaCha8", "Zipf"}

func impure(t *tree) []string {
	var found []string
	for _, f := range t.production() {
		if !slices.Contains(pure, f.pkg) {
			continue
		}

		f.imports(func(spec *ast.ImportSpec, _, imported string) {
			pkg, ours := projectPackage(imported)
			stray := ours && !slices.Contains(pure, pkg)
			for _, p := range impureImports {
				stray = stray || imported == p || strings.HasPrefix(imported, p+"/")
			}

			if stray && imported != "net/netip" {
				found = append(found, fmt.Sprintf("%s: pure package %s imports %s", t.at(spec), f.pkg,
					imported))
			}
		})
		f.selections(func(n ast.Node, imported, member string) {
			random := (imported == "math/rand" || imported == "math/rand/v2") &&
				!slices.Contains(seededRandom, member)
			if random || slices.Contains(impureMembers[imported], member) {
				found = append(found, fmt.Sprintf("%s: pure package %s uses %s.%s", t.at(n), f.pkg, imported,
					member))
			}
		})
	}
	return found
}
