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

// A pairing code consists of 130 random bits and 10 check bits. It is written as 28 characters in groups of
// four. Crockford's alphabet has no letters that look like digits.
const (
	codeBytes  = 17 // bytes for the random bits; the last byte contains only two bits
	codeLetter = 26 // number of characters for the random bits
	checkSize  = 2  // number of check characters
	codeGroup  = 4
)

const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

func letters() *base32.Encoding { return base32.NewEncoding(alphabet).WithPadding(base32.NoPadding) }

// ErrCode reports that a text is not a valid pairing code, for example because it was mistyped.
var ErrCode = errors.New("not a code")

// NewCode returns the bytes of a random pairing code. Text formats them.
func NewCode() host.Secret {
	b := make([]byte, codeBytes)
	rand.Read(b) // never returns an error since Go 1.24
	b[codeBytes-1] &= 0xc0
	return host.SecretFrom(b)
}

// Text returns the pairing code in the form that users type. Use it only to show the code to the user who
// creates it, because the result is a string and not a Secret.
func Text(code host.Secret) string {
	var text string
	_ = code.Use(func(b []byte) error { // error ignored: the function never fails
		text = letters().EncodeToString(b)[:codeLetter] + checksum(b)
		return nil
	})
	groups := slices.Collect(slices.Chunk([]byte(text), codeGroup))
	return string(bytes.Join(groups, []byte("-")))
}

// checksum returns the check characters for the random bytes of a pairing code.
func checksum(b []byte) string {
	h := sha256.Sum256(append([]byte("chokepoint code "), b...))
	return letters().EncodeToString(h[:])[:checkSize]
}

// ParseCode parses a pairing code formatted by Text. It ignores case, spaces and hyphens, and accepts O for
// 0, and I or L for 1. Errors never contain a part of the text.
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

	// Append "00" to complete the last byte, which has only two random bits.
	b, err := letters().DecodeString(plain[:codeLetter] + "00")
	if err != nil || len(b) != codeBytes {
		return host.Secret{}, fmt.Errorf("%w: it has a character that no code has", ErrCode)
	}

	if checksum(b) != plain[codeLetter:] {
		return host.Secret{}, fmt.Errorf("%w: a character is mistyped", ErrCode)
	}

	return host.SecretFrom(b), nil
}
