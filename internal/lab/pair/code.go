package pair

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// A code consists of 130 random bits in Crockford's alphabet, which has no letters that look alike, and ten
// check bits: 28 characters in groups of four.
const (
	codeBytes  = 17 // the last one holds two bits
	codeLetter = 26 // characters that carry the bits
	checkSize  = 2  // characters of the check
	codeGroup  = 4
)

const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

func letters() *base32.Encoding { return base32.NewEncoding(alphabet).WithPadding(base32.NoPadding) }

// ErrCode means that a text is not a code, or was mistyped.
var ErrCode = errors.New("not a code")

// NewCode draws a code. Its bytes are the random ones, see Text.
func NewCode() host.Secret {
	b := make([]byte, codeBytes)
	rand.Read(b) // never fails since Go 1.24
	b[codeBytes-1] &= 0xc0
	return host.SecretFrom(b)
}

// Text returns the code as people type it: the only place where it leaves its type, for its creator's screen
// or file.
func Text(code host.Secret) string {
	var text string
	_ = code.Use(func(b []byte) error { // never fails by itself
		text = letters().EncodeToString(b)[:codeLetter] + checksum(b)
		return nil
	})
	groups := slices.Collect(slices.Chunk([]byte(text), codeGroup))
	return string(bytes.Join(groups, []byte("-")))
}

// checksum is computed over the random bytes.
func checksum(b []byte) string {
	h := sha256.Sum256(append([]byte("chokepoint code "), b...))
	return letters().EncodeToString(h[:])[:checkSize]
}

// ParseCode parses what Text wrote, tolerating case, spaces, hyphens, and the letters that Crockford's
// alphabet lacks because they look like digits. An error never contains part of the text.
func ParseCode(text string) (host.Secret, error) {
	plain := strings.Map(func(r rune) rune {
		switch r {
		case ' ', '-', '\t', '\r', '\n':
			return -1
		case 'o', 'O':
			return '0'
		case 'i', 'I', 'l', 'L':
			return '1'
		}
		return r
	}, text)
	plain = strings.ToUpper(plain)
	if len(plain) != codeLetter+checkSize {
		return host.Secret{}, fmt.Errorf("%w: it has %d characters, not %d", ErrCode, len(plain), codeLetter+
			checkSize)
	}

	// The last byte is zero beyond its two bits.
	b, err := letters().DecodeString(plain[:codeLetter] + "00")
	if err != nil || len(b) != codeBytes {
		return host.Secret{}, fmt.Errorf("%w: it has a character that no code has", ErrCode)
	}

	if checksum(b) != plain[codeLetter:] {
		return host.Secret{}, fmt.Errorf("%w: a character is mistyped", ErrCode)
	}

	return host.SecretFrom(b), nil
}
