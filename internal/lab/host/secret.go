package host

import (
	"crypto/rand"
	"fmt"
)

// Secret holds a key or pairing code that must never be printed, logged or stored. All its formatting methods
// return a placeholder. SecretSession transmits a Secret to a node, and Use gives access to its bytes. The
// zero value means "no secret".
type Secret struct {
	// bytes is a function because fmt does not call the formatting methods of unexported fields. fmt would
	// print a byte slice, even one behind a pointer.
	bytes func() []byte
}

const redacted = "[secret]"

// NewSecret returns a Secret of n random bytes.
func NewSecret(n int) Secret {
	b := make([]byte, n)
	rand.Read(b) // never returns an error since Go 1.24
	return SecretFrom(b)
}

// SecretFrom returns a Secret that consists of b, and takes ownership of b.
func SecretFrom(b []byte) Secret { return Secret{func() []byte { return b }} }

// Empty reports whether s contains no secret.
func (s Secret) Empty() bool { return len(s.read()) == 0 }

// Use calls f with the bytes of the secret. f must not retain them.
func (s Secret) Use(f func(b []byte) error) error { return f(s.read()) }

func (s Secret) read() []byte {
	if s.bytes == nil {
		return nil
	}
	return s.bytes()
}

// Format writes a placeholder for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalText returns a placeholder, in JSON and logs, too.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
