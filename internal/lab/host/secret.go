package host

import (
	"crypto/rand"
	"fmt"
	"log/slog"
)

// Secret is a key or code that must never be printed, logged or stored. Every printing path redacts it; it
// reaches a node only through SecretSession, and is read only inside Use. The zero value is "no secret".
type Secret struct {
	// The bytes, behind a function: fmt does not call methods of a Secret in an unexported field but prints
	// its contents, even through a pointer.
	bytes func() []byte
}

const redacted = "[secret]"

// NewSecret draws n random bytes.
func NewSecret(n int) Secret {
	b := make([]byte, n)
	rand.Read(b) // never fails since Go 1.24
	return SecretFrom(b)
}

// SecretFrom takes ownership of b.
func SecretFrom(b []byte) Secret { return Secret{func() []byte { return b }} }

// Empty reports whether there is no secret.
func (s Secret) Empty() bool { return len(s.read()) == 0 }

// Use passes the bytes to f, which must not keep them.
func (s Secret) Use(f func(b []byte) error) error { return f(s.read()) }

func (s Secret) read() []byte {
	if s.bytes == nil {
		return nil
	}
	return s.bytes()
}

// Format prints a placeholder for any verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

func (Secret) String() string               { return redacted }
func (Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }
