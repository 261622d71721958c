package plan_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestCellsOfCiphers: they say nothing of traffic, and what they leave out follows from the algorithm.
func TestCellsOfCiphers(t *testing.T) {
	p := read(t, `
matrix: {engine: cipher, algorithm: [aes-128-gcm, aes-128-cbc, sha256, ed25519], streams: [1, 4]}
include:
  - {engine: cipher, algorithm: chacha20-poly1305, block_size: 16384, threads: all, node: router}
  - {engine: cipher, library: go, algorithm: chacha20-poly1305, block_size: 16384, operation: decrypt}
  - {engine: cipher, algorithm: ed25519, operation: encrypt}
  - {engine: cipher, library: kernel, cipher_mode: evp}
  - {engine: cipher, node: modem}
  - {streams: 2}
`)
	want := []string{
		"algorithm=aes-128-gcm block_size=1420 cipher_mode=aead engine=cipher library=openssl node=client " +
			"operation=encrypt threads=1 topology=forward",
		"algorithm=aes-128-cbc block_size=1420 engine=cipher library=openssl node=client operation=encrypt " +
			"threads=1 topology=forward",
		"algorithm=sha256 block_size=1420 engine=cipher library=openssl node=client operation=hash threads=1 " +
			"topology=forward",
		"algorithm=ed25519 engine=cipher library=openssl node=client operation=sign threads=1 " +
			"topology=forward",
		"algorithm=chacha20-poly1305 block_size=16384 cipher_mode=evp engine=cipher library=openssl " +
			"node=router operation=encrypt threads=all topology=forward",
		"algorithm=chacha20-poly1305 block_size=16384 cipher_mode=aead engine=cipher library=go node=client " +
			"operation=decrypt threads=1 topology=forward",
		"congestion=cubic direction=up engine=native ip=4 nat=off offload=wire protocol=tcp streams=2 " +
			"topology=forward tunnel=none",
	}
	if diff := cmp.Diff(want, keys(p.Cells())); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}

	var reasons []string
	for _, s := range p.Skipped() {
		reasons = append(reasons, s.Reason)
	}

	if diff := cmp.Diff([]string{"ed25519 has no operation encrypt: it has sign, verify",
		"cipher_mode evp is openssl's: library kernel works on packets",
		"topology forward has no node modem"}, reasons); diff != "" {
		t.Errorf("skipped (-want +got):\n%s", diff)
	}

	notes := strings.Join(p.Notes(), "; ")
	if !strings.Contains(notes,
		"streams: engine cipher sends nothing (8 combinations)") {
		t.Errorf("notes: got %q", notes)
	}

	rows := map[string]int{}
	for _, r := range p.Rows() {
		rows[r.Kind]++
	}

	runs := p.Design.Method.Runs
	if diff := cmp.Diff(map[string]int{record.RowCipher: 6 * runs, record.RowLoad: runs, record.RowIdle: runs,
		record.RowVerify: 1}, rows); diff != "" {
		t.Errorf("kinds of rows: the ciphers have no path (-want +got):\n%s", diff)
	}
}

func TestCiphersAreNotSearched(t *testing.T) {
	p := read(t, "method: {search: quick}\nmatrix: {protocol: udp}\ninclude: [{engine: cipher}]\n")
	s := p.Skipped()
	if len(s) != 1 || !strings.Contains(s[0].Reason, "sends nothing") {
		t.Errorf("skipped: got %+v, want the cipher", s)
	}
}

func TestLevelsOfCiphers(t *testing.T) {
	for _, tt := range []struct{ factor, text, want string }{
		{"threads", "all", "all"}, {"threads", "4", "4"}, {"threads", "0", ""}, {"threads", "every", ""},
		{"block_size", "1420", "1420"}, {"block_size", "0", ""}, {"algorithm", "rot13", ""},
		{"node", "router-a", "router-a"}, {"node", "a b", ""}, {"library", "libressl", ""},
	} {
		f, ok := words().Lookup(tt.factor)
		if !ok {
			t.Fatalf("no factor %s", tt.factor)
		}

		if got, err := f.Parse(tt.text); got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: Parse(%q): got %q, %v, want %q", tt.factor, tt.text, got, err, tt.want)
		}
	}
}
