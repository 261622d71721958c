package foreign_test

import (
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/foreign"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// Texts that openssl speed prints, with its messages.
const (
	elapsedText = "You have chosen to measure elapsed time instead of user CPU time.\n"
	doingText   = "Doing aes-128-cbc for 3s on 16 size blocks: 7512300 aes-128-cbc's in 3.00s\n"
	engineText  = "engine \"devcrypto\" set.\n"
	tableText   = "OpenSSL 1.1.1k  25 Mar 2021\nThe 'numbers' are in 1000s of bytes per second processed.\n" +
		"type             16 bytes\naes-128-cbc     401575.08k\n"
	lowText = "OpenSSL 1.1.1k  25 Mar 2021\nThe 'numbers' are in 1000s of bytes per second processed.\n" +
		"type             16 bytes\naes-128 cbc     201575.08k\n"
	machineText = "+H:16\n+F:22:aes-128-cbc:401575080\n"
)

// TestOpenSSLImplementations: what openssl measured by another interface, another engine or another clock is
// another cell, in each form and for each of several calls in one file.
func TestOpenSSLImplementations(t *testing.T) {
	const unstated = "whether time or CPU time divides (-elapsed)"
	for _, tt := range []struct {
		name, text string
		want       []string // implementation and timing of each figure
	}{
		{"elapsed", elapsedText + doingText + tableText, []string{"/"}},
		{"CPU time", doingText + tableText, []string{"/cpu"}},
		{"the messages left out", tableText, []string{"/?"}},
		{"low-level", elapsedText + doingText + lowText, []string{"low-level/"}},
		{"low-level, for machines", "+H:16\n+F:19:aes-128 cbc:401575080\n", []string{"low-level/?"}},
		{"a low-level cipher that no VPN has", doingText +
			"type 16 bytes\ncamellia-128 cbc 9.00k\n", []string{"low-level/cpu"}},
		{"engine", engineText + elapsedText + doingText + tableText, []string{"engine devcrypto/"}},
		{"engine of version 3", "Engine \"afalg\" set.\n" + doingText + tableText,
			[]string{"engine afalg/cpu"}},
		{"engine, for machines", engineText + machineText, []string{"engine devcrypto/?"}},
		{"an engine that is not there", "Invalid engine \"devcrypto\"\n" + doingText + tableText,
			[]string{"/cpu"}},
		{"an engine beside the low-level interface", engineText + doingText + lowText,
			[]string{"low-level/cpu"}},
		{"software behind an engine", engineText + elapsedText + doingText + tableText + doingText + tableText,
			[]string{"engine devcrypto/", "/cpu"}},
		{"an engine behind software", elapsedText + doingText + tableText + engineText + elapsedText +
			doingText + lowText + tableText, []string{"/", "low-level/", "/?"}},
		{"figures alone behind an engine", engineText + doingText + tableText + tableText,
			[]string{"engine devcrypto/cpu", "/?"}},
	} {
		var got []string
		for _, r := range read(t, []byte(tt.text), "openssl") {
			timing := r.Factors["timing"]
			if strings.Contains(strings.Join(r.Foreign.Lacks, ";"), unstated) {
				timing += "?"
			}

			elapsed := r.Foreign.Facts["time"] == "elapsed"
			if elapsed != (timing == "") {
				t.Errorf("%s: the facts are %v, timing %q", tt.name, r.Foreign.Facts, timing)
			}

			got = append(got, r.Factors["implementation"]+"/"+timing)
		}

		expect.Same(t, tt.name, tt.want, got)
	}
}

// TestOpenSSLInterfacesAreNotJoined: the low-level and the EVP interface are two cells, whose rates are not
// averaged.
func TestOpenSSLInterfacesAreNotJoined(t *testing.T) {
	var all []foreign.Result
	for _, text := range []string{tableText, lowText, engineText + tableText} {
		all = append(all, read(t, []byte(text), "openssl")...)
	}

	d := derive(t, nil, all...)
	if len(d.Cells) != 3 {
		t.Errorf("got %d cells of EVP, low-level and an engine, want 3", len(d.Cells))
	}
}
