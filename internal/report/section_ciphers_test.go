package report

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/ciphers"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/cipher"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// cipherDocument has two ciphers in blocks of two sizes and a key.
func cipherDocument() *analysis.Document {
	value := func(x float64) statistics.Value {
		return statistics.Summarise([]float64{x * .99, x, x * 1.01})
	}
	d := &analysis.Document{
		Format:  record.Format,
		Metrics: metrics.Metrics(),
		Catalogue: &factor.Catalogue{Factors: slices.Concat(factor.Base(factor.Options{}),
			cipher.Factors(nil))},
		Run: analysis.RunHead{
			RunHead: record.RunHead{ID: "20261126-040000-0001", Lab: "local", Status: record.RunDone},
			Plan:    "crypto",
		},
		Ciphers: []analysis.CipherNode{{
			Node:     "router",
			Versions: map[string]string{"openssl": "OpenSSL 3.0"},
			CPU: ciphers.CPU{
				Model:     "Tiny",
				Threads:   4,
				ClockFrom: cipher.ClockTold,
				Features:  ciphers.Features([]string{"aes", "neon"}),
			},
			Advice: []ciphers.Advice{{Kind: ciphers.AdviceVPN, Library: "openssl", Text: "WireGuard does."}},
			Shares: []analysis.CipherShare{{Label: "wireguard", Text: "the tunnel's cipher takes 62 %"}},
		}},
	}
	add := func(algorithm, block string, m map[string]statistics.Value) {
		f := factor.Cell{"engine": "cipher", "library": "openssl", "algorithm": algorithm, "threads": "1",
			"operation": "encrypt"}
		if block != "" {
			f["block_size"] = block
		}

		d.Cells = append(d.Cells, analysis.Cell{
			Cell: metrics.Cell{
				ID:      f.ID(),
				Factors: f,
				Label:   algorithm + " " + block,
				Metrics: m,
				Grade:   evidence.GradeValid,
			},
			Runs: 3,
		})
	}
	for i, block := range []string{"1420", "16384"} {
		rate := 1e9 * float64(i+1)
		add("aes-128-gcm", block, map[string]statistics.Value{metrics.CipherRate: value(5 * rate),
			metrics.CyclesPerByte: value(3.25), metrics.CipherClock: value(2e9)})
		add("chacha20-poly1305", block, map[string]statistics.Value{metrics.CipherRate: value(2 * rate)})
	}

	add("x25519", "", map[string]statistics.Value{metrics.CipherOps: value(23456),
		metrics.CyclesPerOp: value(85300)})
	return d
}

// TestCiphersAreShown: rates, cycles, features, advice and share, in every form; nothing of a path.
func TestCiphersAreShown(t *testing.T) {
	d := cipherDocument()
	for form, text := range shown(t, d) {
		for _, want := range []string{"5.00 Gbit/s", "10.0 Gbit/s", "23.5 kop/s", "3.25", "85,300 cycles",
			"2.00 GHz", "WireGuard does.", "takes 62 %", "of the cipher", "OpenSSL 3.0", "4 threads",
			"All are of openssl", "the kernel reports none", "per byte, operation"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q", form, want)
			}
		}

		for _, not := range []string{"Traffic runs between", "Goodput is TCP payload",
			"Goodput is application payload", "UDP echo", "of tester"} {
			if strings.Contains(text, not) {
				t.Errorf("%s has %q", form, not)
			}
		}
	}

	var s Section
	cipherSection(newView(d), &s)
	var charts []string
	for _, b := range s.Blocks {
		if f, ok := b.(Figure); ok {
			charts = append(charts, f.ID+" "+f.Title)
		}
	}

	if want := []string{"ciphers-openssl-16384-bars Library openssl, blocks of 16384 bytes",
		"ciphers-openssl-1420-bars Library openssl, blocks of 1420 bytes",
		"ciphers-openssl-keys-bars Library openssl, keys"}; !slices.Equal(charts, want) {
		t.Errorf("charts: got %q, want %q", charts, want)
	}
}

// TestLibrariesAreApart: each has a table and charts of its own, in every form, and traffic has another.
func TestLibrariesAreApart(t *testing.T) {
	d := cipherDocument()
	for i := range d.Cells {
		c := &d.Cells[i]
		if factor.Cell(c.Factors)["algorithm"] == "chacha20-poly1305" {
			c.Factors["library"], c.Label = "go", "by Go"
		}
	}

	d.Cells = append(d.Cells, sampleDocument().Cells[0])
	v := newView(d)
	rows := map[string]int{}
	for _, table := range resultTables(v) {
		rows[table.ID+" "+table.Of] = len(table.Rows)
	}

	if want := map[string]int{"result-table Traffic": 1, "result-table-openssl Library openssl": 3,
		"result-table-go Library go": 2}; !maps.Equal(rows, want) {
		t.Errorf("rows of tables: got %v, want %v", rows, want)
	}

	var s Section
	cipherSection(v, &s)
	for _, b := range s.Blocks {
		f, ok := b.(Figure)
		if !ok {
			continue
		}

		for _, c := range f.Cells {
			want := cipher.LibraryFactor.Of(c.Factors)
			if !strings.HasPrefix(f.ID, "ciphers-"+want+"-") {
				t.Errorf("chart %s has a bar of library %s", f.ID, want)
			}
		}
	}

	for form, text := range shown(t, d) {
		for _, want := range []string{"Library openssl", "Library go", "Traffic"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q", form, want)
			}
		}
	}

	out, err := Brief(d)
	n := strings.Count(string(out), "| range |")
	if err != nil || n != 3 {
		t.Errorf("a post has %d tables (%v), want 3:\n%s", n, err, out)
	}
}

func TestNoSectionWithoutCiphers(t *testing.T) {
	var s Section
	if cipherSection(newView(sampleDocument()), &s); len(s.Blocks) > 0 || len(cipherLines(newView(
		sampleDocument()))) > 0 {
		t.Errorf("a run without ciphers has a section of them: %+v", s.Blocks)
	}
}

// TestSharedIsOfAll: what one cell does not have is not said of all, and a table's cycles are per what its
// own cells take.
func TestSharedIsOfAll(t *testing.T) {
	d := cipherDocument()
	d.Cells = slices.Delete(d.Cells, 1, 4) // an AEAD in blocks of 1420 bytes, and x25519
	ofGo := cipherDocument().Cells[2]      // per byte alone
	ofGo.Factors["library"] = "go"
	d.Cells = append(d.Cells, ofGo)
	v := newView(d)
	heads := map[string]string{}
	for _, full := range resultTables(v) {
		if full.Of == "Library openssl" && !strings.Contains(full.Caption, "All are of openssl · encrypt · "+
			"1 thread. ") {
			t.Errorf("got %q, want what x25519 has, too", full.Caption)
		}

		for _, table := range []Table{full, terminalTable(full)} {
			for _, c := range table.Columns {
				if c.Head == "Cycles" {
					heads[table.Of] += c.Sub + ";"
				}
			}
		}
	}

	want := map[string]string{"Library openssl": "per byte, operation;per byte, operation;",
		"Library go": "per byte;per byte;"}
	if !maps.Equal(heads, want) {
		t.Errorf("cycles: got %q, want %q", heads, want)
	}
}
