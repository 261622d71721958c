package kernel

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func espEnd(c ESPCipher, id uint32, local, remote string) ESP {
	key := make(ESPKey, c.KeySize())
	return ESP{
		ID:     id,
		Cipher: c,
		Local:  addr(local),
		Remote: addr(remote),
		Out:    ESPAssociation{2 * id, key},
		In:     ESPAssociation{2*id + 1, key},
	}
}

var espCiphers = [...]ESPCipher{ESPAESGCM128, ESPAESGCM256, ESPAESCBC256SHA256, ESPChaCha20Poly1305}

func TestProbeESPIsConclusiveAndLeavesNothing(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		for _, c := range espCiphers {
			for _, outer6 := range []bool{false, true} {
				err := ProbeESP(c, outer6, true)
				t.Logf("cipher %d, IPv6 outside %v: %v", c, outer6, err)
				if err != nil && !errors.Is(err, ErrUnsupported) {
					t.Errorf("cipher %d, IPv6 outside %v: got %v, want no error or ErrUnsupported", c, outer6,
						err)
				}
			}
		}

		devices(t, "lo")
	})
}

// TestESPIsSetUpWholeOrNotAtAll: a tunnel whose associations another has is refused and takes nothing of
// the other's away.
func TestESPIsSetUpWholeOrNotAtAll(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		if err := ProbeESP(ESPAESGCM128, false, true); errors.Is(err, ErrUnsupported) {
			t.Skip("skip: the kernel has no IPsec: " + err.Error())
		}

		e := espEnd(ESPAESGCM128, 51821, "198.18.0.1", "198.18.0.2")
		must(t, AddESP(e))
		if err := AddESP(e); !errors.Is(err, unix.EEXIST) {
			t.Errorf("adding it twice: got %v, want that it exists", err)
		}

		mixed := espEnd(ESPAESGCM128, 51822, "198.18.0.1", "198.18.0.2")
		mixed.In.SPI = e.In.SPI
		if err := AddESP(mixed); !errors.Is(err, unix.EEXIST) {
			t.Errorf("adding one with another's SPI: got %v, want that it exists", err)
		}

		if _, err := ReadESP(mixed); !errors.Is(err, ErrAbsent) {
			t.Errorf("reading what was refused: got %v, want that it is absent", err)
		}

		reads(t, "the first", ESPStats{})(ReadESP(e))
		must(t, RemoveESP(e))
		must(t, RemoveESP(e))
		if _, err := ReadESP(e); !errors.Is(err, ErrAbsent) {
			t.Errorf("reading what was removed: got %v, want that it is absent", err)
		}
	})
}

func TestESPRefusesKeysOfAnotherLength(t *testing.T) {
	e := espEnd(ESPAESGCM128, 51821, "198.18.0.1", "198.18.0.2")
	e.Cipher = ESPAESGCM256
	if err := AddESP(e); err == nil || !strings.Contains(err.Error(), "want 36") {
		t.Errorf("got %v, want that the length is wrong", err)
	}
}

func TestESPKeysAreNotPrinted(t *testing.T) {
	key := ESPKey("secretsecretsecretse")
	e := ESP{Out: ESPAssociation{1, key}}
	b, err := key.MarshalText()
	must(t, err)
	text := fmt.Sprintf("%v %+v %#v %s %x %d %q ", e, e, e, key, key, key, key) + string(b)
	for _, form := range []string{"secret", fmt.Sprintf("%x", "secret"), "115 101 99"} {
		if strings.Contains(text, form) {
			t.Errorf("the key is printed: %q", text)
		}
	}
}

func TestESPAlgorithmsHoldAllOfTheKey(t *testing.T) {
	for _, c := range espCiphers {
		key := make(ESPKey, c.KeySize())
		for i := range key {
			key[i] = byte(i + 1)
		}

		var held int
		for _, a := range c.algorithms(key) {
			held += strings.Count(string(a.Data), string(key)) * len(key)
			if c == ESPAESCBC256SHA256 {
				held += (strings.Count(string(a.Data), string(key[:32])) + strings.Count(string(a.Data),
					string(key[32:]))) * 32
			}
		}

		if held != len(key) {
			t.Errorf("cipher %d: its attributes hold %d bytes of %d", c, held, len(key))
		}
	}
}
